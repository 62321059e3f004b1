// SPDX-License-Identifier: GPL-2.0

//! Capabilities of the current process.

use kernel::{
    bindings,
    prelude::*, //
};

/// A capability, by its number in `include/uapi/linux/capability.h`.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum Capability {
    /// May lock memory without limit.
    IpcLock = 14,
    /// May administrate the system.
    SysAdmin = 21,
}

/// Whether the current process has `capability`, and now uses it.
pub(crate) fn capable(capability: Capability) -> bool {
    // SAFETY: May be called from process context with any capability.
    unsafe { bindings::capable(capability as c_int) }
}

/// Whether the current process has `capability`; only asked, so that no audit tells of it.
pub(crate) fn has(capability: Capability) -> bool {
    let namespace = &raw mut bindings::init_user_ns;
    // SAFETY: As for `capable`; the initial namespace is always there.
    unsafe { bindings::ns_capable_noaudit(namespace, capability as c_int) }
}
