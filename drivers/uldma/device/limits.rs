// SPDX-License-Identifier: GPL-2.0

//! Limits of a device: from its geometry and the module parameters.

use kernel::prelude::*;

use crate::{
    connection,
    hw::{
        layout,
        Geometry, //
    },
    kernel_ext::compat::parameter,
    link::{
        lane::Lane,
        requests::MAX_REQUESTS, //
    },
    mem::lmm,
    module_parameters,
    params,
    user_abi::ledger::{
        Amounts,
        Limits,
        Resource, //
    }, //
};

/// Returns the options of the locked memory manager.
pub(super) fn lmm() -> lmm::Options {
    let (locks, bytes) = params::pin_cache();
    lmm::Options {
        merge: params::merge(),
        cache: lmm::Limits { locks, bytes },
        revalidate_ms: params::revalidate_ms(),
    }
}

/// Returns the bytes of the own section that can be allocated.
fn window(geometry: &Geometry) -> Result<usize> {
    let peers = (0..geometry.nodes).filter(|node| *node != geometry.node);
    peers
        .map(|peer| Ok(Lane::inbound(geometry, peer)?.ranges().len()))
        .sum()
}

/// Returns what all users together can have of a device, and the limits of one user.
pub(super) fn of(geometry: &Geometry) -> Result<(Amounts, Limits)> {
    // Entry 0 of the region table and context 0 are the kernel's.
    let contexts = usize::try_from(geometry.contexts.saturating_sub(1))?;
    let regions = usize::try_from(geometry.region_capacity.saturating_sub(1))?;
    let pages = usize::try_from(geometry.page_capacity)?;
    let mut capacity = Amounts::default();
    let mut chosen = Amounts::default();
    for (resource, all, each) in [
        (Resource::Regions, regions, &module_parameters::user_regions),
        (Resource::Pages, pages, &module_parameters::user_pages),
        (
            Resource::Contexts,
            contexts,
            &module_parameters::user_contexts,
        ),
        (
            Resource::ExclusiveContexts,
            contexts,
            &module_parameters::user_exclusive_contexts,
        ),
        (
            Resource::Connections,
            connection::MAX_CONNECTIONS,
            &module_parameters::user_connections,
        ),
        (
            Resource::Listeners,
            connection::MAX_LISTENERS,
            &module_parameters::user_listeners,
        ),
        (
            Resource::Window,
            window(geometry)?,
            &module_parameters::user_window_bytes,
        ),
        (
            Resource::Requests,
            MAX_REQUESTS,
            &module_parameters::user_requests,
        ),
        (
            Resource::Endpoints,
            usize::try_from(geometry.endpoint_capacity)?,
            &module_parameters::user_endpoints,
        ),
        (
            Resource::Transfers,
            layout::QUEUE_DEPTH,
            &module_parameters::user_transfers,
        ),
        (
            // An address space has an open file, so this leaves numbers of address spaces, too.
            Resource::Objects,
            lmm::MAX_SPACES,
            &module_parameters::user_objects,
        ),
    ] {
        capacity = capacity.with(resource, all);
        chosen = chosen.with(resource, parameter(each));
    }
    let peers = usize::try_from(geometry.nodes.saturating_sub(1))?;
    Ok((capacity, Limits::new(capacity, chosen, peers)))
}
