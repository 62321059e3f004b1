// SPDX-License-Identifier: GPL-2.0

//! The user of the current process, and its capabilities.

use kernel::{
    bindings,
    prelude::*,
    task::Kuid, //
};

/// A capability, by its number in `include/uapi/linux/capability.h`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Capability {
    /// May lock memory without limit.
    IpcLock = 14,
    /// May administrate the system.
    SysAdmin = 21,
    /// May have more of a resource than others.
    SysResource = 24,
}

unsafe extern "C" {
    fn uldma_current_uid() -> u32;
}

/// The real user of the current process, by the number that the initial namespace gives it.
pub(crate) fn current_user() -> u32 {
    // SAFETY: May be called from process context.
    unsafe { uldma_current_uid() }
}

/// The effective user of the current process, by the number that the initial namespace gives it.
pub(crate) fn current_effective_user() -> u32 {
    Kuid::current_euid().into_raw().val
}

/// Returns true if the current process has `capability`, and now uses it.
pub(crate) fn capable(capability: Capability) -> bool {
    // SAFETY: May be called from process context with any capability.
    unsafe { bindings::capable(capability as c_int) }
}

/// Returns true if the current process has `capability`, without an audit record.
pub(crate) fn has(capability: Capability) -> bool {
    let namespace = &raw mut bindings::init_user_ns;
    // SAFETY: As for `capable`; the initial namespace is always there.
    unsafe { bindings::ns_capable_noaudit(namespace, capability as c_int) }
}
