// SPDX-License-Identifier: GPL-2.0

//! The poll of a NAPI context.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    prelude::*,
    time::Delta, //
};

use super::skb::{
    Offload,
    SkBuff, //
};

unsafe extern "C" {
    fn uldma_napi_complete(napi: *mut c_void, done: u32) -> u32;
    fn uldma_napi_complete_and_poll(napi: *mut c_void, done: u32, after: u64, idle: u32);
    fn uldma_skb_alloc(napi: *mut c_void, count: u32) -> *mut c_void;
    fn uldma_skb_receive(napi: *mut c_void, skb: *mut c_void, offload: *const Offload) -> c_int;
}

/// A NAPI context that is being polled: the right to receive packets by it.
///
/// # Invariants
///
/// The pointer is the context that the network stack polls on this CPU during `'a`.
pub(crate) struct Poll<'a> {
    napi: NonNull<c_void>,
    /// Maximum number of packets that this poll may receive; 0 if it may only complete packets
    /// that were sent.
    budget: u32,
    _poll: PhantomData<(&'a (), *mut ())>,
}

impl Poll<'_> {
    /// Wraps a poll of the network stack.
    ///
    /// # Safety
    ///
    /// `napi` must be polled during the life of the result.
    pub(super) unsafe fn new(napi: NonNull<c_void>, budget: u32) -> Self {
        // INVARIANT: As the function requires.
        Self {
            napi,
            budget,
            _poll: PhantomData,
        }
    }

    /// Returns the maximum number of packets that this poll may receive; 0 if it may only complete
    /// packets that were sent.
    pub(crate) fn budget(&self) -> u32 {
        self.budget
    }

    /// Allocates a packet of `count` bytes, which are not initialised.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn alloc(&self, count: u32) -> Result<SkBuff> {
        // SAFETY: By the type invariant the context is polled.
        let skb = unsafe { uldma_skb_alloc(self.napi.as_ptr(), count) };
        let skb = NonNull::new(skb).ok_or(ENOMEM)?;
        // SAFETY: It was made just now, for this caller.
        Ok(unsafe { SkBuff::from_raw(skb) })
    }

    /// Passes a packet that a peer sent to the network stack.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `offload` does not fit the packet.
    pub(crate) fn receive(&self, skb: SkBuff, offload: &Offload) -> Result {
        // SAFETY: By the type invariant the context is polled; the packet is passed on.
        let ret =
            unsafe { uldma_skb_receive(self.napi.as_ptr(), skb.into_raw().as_ptr(), offload) };
        kernel::error::to_result(ret)
    }

    /// Ends polling after `done` packets, less than the budget. Returns true if interrupts are to
    /// be enabled, and false if the stack polls again.
    pub(crate) fn complete(self, done: u32) -> bool {
        // SAFETY: By the type invariant the context is polled.
        unsafe { uldma_napi_complete(self.napi.as_ptr(), done) != 0 }
    }

    /// Ends polling after `done` packets, less than the budget. The stack polls again after the time
    /// `after`, or earlier, so interrupts are not needed until then.
    pub(crate) fn complete_and_poll(self, done: u32, after: Delta) {
        self.complete_until(done, after, false);
    }

    /// As [`Poll::complete_and_poll`], and has idle processors call
    /// [`Driver::poll_idle`](super::net_device::Driver::poll_idle) until then.
    pub(crate) fn complete_and_wait(self, done: u32, after: Delta) {
        self.complete_until(done, after, true);
    }

    fn complete_until(self, done: u32, after: Delta, by_idle: bool) {
        let after = u64::try_from(after.as_nanos()).unwrap_or(0);
        // SAFETY: By the type invariant the context is polled.
        unsafe {
            uldma_napi_complete_and_poll(self.napi.as_ptr(), done, after, by_idle.into());
        }
    }
}
