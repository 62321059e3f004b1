// SPDX-License-Identifier: GPL-2.0

//! References to eventfds.

use core::ptr::NonNull;

use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*, //
};

/// A reference to an eventfd that can be signalled.
///
/// # Invariants
///
/// `ctx` is a reference to an `eventfd_ctx` that this object owns.
pub(crate) struct EventFd {
    ctx: NonNull<bindings::eventfd_ctx>,
}

// SAFETY: An `eventfd_ctx` may be used and put from any thread.
unsafe impl Send for EventFd {}
// SAFETY: `eventfd_signal_mask` may be called from many threads at once.
unsafe impl Sync for EventFd {}

impl EventFd {
    /// Takes a reference to the eventfd behind `fd` of the current process.
    ///
    /// # Errors
    ///
    /// `EBADF` for a descriptor that is not open, `EINVAL` for one that is no eventfd.
    pub(crate) fn from_fd(fd: i32) -> Result<Self> {
        // SAFETY: May be called with any number, from process context.
        let ctx = from_err_ptr(unsafe { bindings::eventfd_ctx_fdget(fd) })?;
        // INVARIANT: `eventfd_ctx_fdget` returned a reference that is ours.
        Ok(Self {
            ctx: NonNull::new(ctx).ok_or(EINVAL)?,
        })
    }

    /// Adds one to the counter and wakes its waiters. Does not sleep.
    pub(crate) fn signal(&self) {
        // SAFETY: By the type invariant the context is alive.
        unsafe { bindings::eventfd_signal_mask(self.ctx.as_ptr(), 0) };
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we own a reference.
        unsafe { bindings::eventfd_ctx_put(self.ctx.as_ptr()) };
    }
}
