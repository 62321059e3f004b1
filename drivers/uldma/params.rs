// SPDX-License-Identifier: GPL-2.0

//! What the administrator chose when the module was loaded.

use kernel::time::Delta;

use crate::{
    kernel_ext::compat::parameter,
    module_parameters, //
};

/// Returns true if areas that nothing tells apart any more are merged.
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

/// Milliseconds for which a revalidation waits for the file locks of other processes.
pub(crate) fn revalidate_ms() -> u32 {
    parameter(&module_parameters::revalidate_ms)
}

/// Nodes that share the memory of an ivshmem device.
pub(crate) fn ivshmem_nodes() -> u32 {
    parameter(&module_parameters::ivshmem_nodes)
}

/// Nodes that are joined by memory of this machine, and bytes of it.
pub(crate) fn loopback() -> (u32, usize) {
    (
        parameter(&module_parameters::loopback),
        parameter(&module_parameters::loopback_bytes),
    )
}

/// Milliseconds for which an open file keeps a context that another wants.
pub(crate) fn context_slice_ms() -> i64 {
    parameter(&module_parameters::context_slice_ms).into()
}

/// Milliseconds for which an access waits for the registers of its context.
pub(crate) fn context_wait_ms() -> i64 {
    parameter(&module_parameters::context_wait_ms).into()
}

/// Whether contexts can have initiation methods by which other processes can misuse them.
pub(crate) fn insecure_methods() -> bool {
    parameter(&module_parameters::insecure_methods) != 0
}

/// Regions and imports that one open file can have.
pub(crate) fn max_file_regions() -> usize {
    parameter(&module_parameters::max_file_regions)
}

/// Messages that a peer can have in flight to this node.
pub(crate) fn link_slots() -> u32 {
    parameter(&module_parameters::link_slots)
}

/// How long a peer can be silent before the link to it is down.
pub(crate) fn link_timeout() -> Delta {
    Delta::from_millis(parameter(&module_parameters::link_timeout_ms).into())
}

/// The longest time for which a peer waits for its next session.
pub(crate) fn link_backoff() -> Delta {
    Delta::from_millis(parameter(&module_parameters::link_backoff_ms).into())
}

/// What a sleep and a wake-up cost, unless that is to be measured.
pub(crate) fn wakeup() -> Option<Delta> {
    match parameter(&module_parameters::wakeup_us) {
        0 => None,
        us => Some(Delta::from_micros(us.into())),
    }
}

/// The longest time for which the work item polls for more before peers have to ring.
pub(crate) fn link_busy_poll() -> Delta {
    Delta::from_micros(parameter(&module_parameters::link_busy_poll_us).into())
}

/// The longest time for which a call polls for what it waits for before it sleeps.
pub(crate) fn link_spin() -> Delta {
    Delta::from_micros(parameter(&module_parameters::link_spin_us).into())
}

/// How often is looked instead of being interrupted, if at all.
pub(crate) fn link_poll() -> Option<Delta> {
    match parameter(&module_parameters::link_poll_us) {
        0 => None,
        us => Some(Delta::from_micros(us.into())),
    }
}
