// SPDX-License-Identifier: GPL-2.0

//! Module parameters.

use kernel::time::Delta;

use crate::{
    kernel_ext::{
        compat::parameter,
        vma::Caching, //
    },
    module_parameters, //
};

/// Returns true if adjacent areas with the same users are merged.
pub(crate) fn merge() -> bool {
    parameter(&module_parameters::merge) != 0
}

/// Returns the regions and the bytes that the pin cache of an address space may keep.
pub(crate) fn pin_cache() -> (usize, usize) {
    (
        parameter(&module_parameters::pin_cache_regions),
        parameter(&module_parameters::pin_cache_bytes),
    )
}

/// Returns the milliseconds for which a revalidation waits for the file locks of other processes.
pub(crate) fn revalidate_ms() -> u32 {
    parameter(&module_parameters::revalidate_ms)
}

/// Returns how many pages that nothing pins a device may have entered; 0 for its default.
pub(crate) fn optimistic_entries() -> usize {
    parameter(&module_parameters::optimistic_entries)
}

/// Returns the number of nodes that share an ivshmem device.
pub(crate) fn ivshmem_nodes() -> u32 {
    parameter(&module_parameters::ivshmem_nodes)
}

/// Returns the number of loopback nodes, and the bytes of their window.
pub(crate) fn loopback() -> (u32, usize) {
    (
        parameter(&module_parameters::loopback),
        parameter(&module_parameters::loopback_bytes),
    )
}

/// Returns the time slice in milliseconds of a context while others wait for one.
pub(crate) fn context_slice_ms() -> i64 {
    parameter(&module_parameters::context_slice_ms).into()
}

/// Returns the timeout in milliseconds of an access to a detached context.
pub(crate) fn context_wait_ms() -> i64 {
    parameter(&module_parameters::context_wait_ms).into()
}

/// Returns true if insecure initiation methods are allowed.
pub(crate) fn insecure_methods() -> bool {
    parameter(&module_parameters::insecure_methods) != 0
}

/// Returns the cache mode of windows that are no memory of this machine.
pub(crate) fn window_caching() -> Caching {
    if parameter(&module_parameters::window_wc) != 0 {
        Caching::WriteCombine
    } else {
        Caching::Uncached
    }
}

/// Returns the maximum number of regions and imports of an open file.
pub(crate) fn max_file_regions() -> usize {
    parameter(&module_parameters::max_file_regions)
}

/// Returns true if the node may have sessions with `node`: no peers are named, or this one is.
pub(crate) fn is_link_peer(node: u32) -> bool {
    let named: u32 = parameter(&module_parameters::link_peers);
    named == 0 || 1u32.checked_shl(node).is_some_and(|bit| named & bit != 0)
}

/// Returns the number of slots of the control ring of each peer.
pub(crate) fn link_slots() -> u32 {
    parameter(&module_parameters::link_slots)
}

/// Returns the time without a heartbeat after which the link to a peer is down.
pub(crate) fn link_timeout() -> Delta {
    Delta::from_millis(parameter(&module_parameters::link_timeout_ms).into())
}

/// Returns the maximum backoff of a peer before its next session.
pub(crate) fn link_backoff() -> Delta {
    Delta::from_millis(parameter(&module_parameters::link_backoff_ms).into())
}

/// Returns what a sleep and a wake-up cost, unless that is to be measured.
pub(crate) fn wakeup() -> Option<Delta> {
    match parameter(&module_parameters::wakeup_us) {
        0 => None,
        us => Some(Delta::from_micros(us.into())),
    }
}

/// Returns the maximum time for which the progress worker polls.
pub(crate) fn link_busy_poll() -> Delta {
    Delta::from_micros(parameter(&module_parameters::link_busy_poll_us).into())
}

/// Returns the maximum time for which a call polls before it sleeps.
pub(crate) fn link_spin() -> Delta {
    Delta::from_micros(parameter(&module_parameters::link_spin_us).into())
}

/// Returns the interval of polling in place of doorbells, if any.
pub(crate) fn link_poll() -> Option<Delta> {
    match parameter(&module_parameters::link_poll_us) {
        0 => None,
        us => Some(Delta::from_micros(us.into())),
    }
}

/// Returns which devices have a network interface: 0, none; 1, those whose peers are other machines;
/// 2 and more, all.
pub(crate) fn network() -> u8 {
    parameter(&module_parameters::network)
}

/// Returns the bytes from which on the engine moves a packet; none if it moves no packets.
pub(crate) fn network_engine() -> Option<u32> {
    match parameter(&module_parameters::network_engine_bytes) {
        0 => None,
        bytes => Some(bytes),
    }
}

/// Returns the bytes of the range of the own section that each peer writes packets to; 0 for the
/// default.
pub(crate) fn network_bytes() -> usize {
    parameter(&module_parameters::network_bytes)
}
