// SPDX-License-Identifier: GPL-2.0

//! Packets.

use core::ptr::NonNull;

use kernel::{
    error::to_result,
    prelude::*, //
};

use crate::kernel_ext::window::Window;

unsafe extern "C" {
    fn uldma_skb_len(skb: *const c_void) -> u32;
    fn uldma_skb_addresses(skb: *const c_void, addresses: *mut [[u8; 6]; 2]) -> c_int;
    fn uldma_skb_offload(skb: *const c_void, offload: *mut Offload) -> c_int;
    fn uldma_skb_copy_toio(skb: *mut c_void, from: u32, count: u32, to: *mut c_void) -> c_int;
    fn uldma_skb_copy_fromio(skb: *mut c_void, to: u32, count: u32, from: *const c_void) -> c_int;
    fn uldma_skb_drop(skb: *mut c_void);
    fn uldma_skb_consume(skb: *mut c_void);
}

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MacAddress(pub(crate) [u8; 6]);

impl MacAddress {
    /// Returns true for addresses of groups, which includes the broadcast address.
    pub(crate) fn is_multicast(&self) -> bool {
        let Self([first, ..]) = self;
        first & 1 != 0
    }
}

/// What is left to be done with a packet: its checksum, and its segmentation. The values are those
/// of `struct virtio_net_hdr`, in the order of the CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offload {
    pub(crate) flags: u8,
    pub(crate) gso_type: u8,
    /// Bytes of all headers, as a hint.
    pub(crate) hdr_len: u16,
    /// Bytes of each segment behind the headers.
    pub(crate) gso_size: u16,
    /// The byte from which on the checksum is computed.
    pub(crate) csum_start: u16,
    /// The place of the checksum behind that byte.
    pub(crate) csum_offset: u16,
}

/// A packet that is ours; it is dropped with this.
///
/// # Invariants
///
/// The pointer is a `struct sk_buff` of which this has the only reference.
pub(crate) struct SkBuff(NonNull<c_void>);

// SAFETY: A packet may be used and freed by any thread.
unsafe impl Send for SkBuff {}

impl SkBuff {
    /// Takes over a packet.
    ///
    /// # Safety
    ///
    /// `skb` must be a packet, and the reference to it is passed on.
    pub(super) unsafe fn from_raw(skb: NonNull<c_void>) -> Self {
        // INVARIANT: As the function requires.
        Self(skb)
    }

    /// Passes on the reference.
    pub(super) fn into_raw(self) -> NonNull<c_void> {
        let skb = self.0;
        core::mem::forget(self);
        skb
    }

    pub(super) fn as_ptr(&self) -> *mut c_void {
        self.0.as_ptr()
    }

    /// Returns the number of bytes, Ethernet header included.
    pub(crate) fn len(&self) -> u32 {
        // SAFETY: By the type invariant this is a packet.
        unsafe { uldma_skb_len(self.as_ptr()) }
    }

    /// Returns the Ethernet addresses that it is for, and that it is from.
    ///
    /// # Errors
    ///
    /// `EFAULT` if it has no Ethernet header.
    pub(crate) fn addresses(&self) -> Result<(MacAddress, MacAddress)> {
        let mut addresses = [[0; 6]; 2];
        // SAFETY: By the type invariant this is a packet; there are the bytes of two addresses.
        to_result(unsafe { uldma_skb_addresses(self.as_ptr(), &mut addresses) })?;
        let [to, from] = addresses.map(MacAddress);
        Ok((to, from))
    }

    /// Returns what the sender has left to the device.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a way of segmentation that no device of this module offers.
    pub(crate) fn offload(&self) -> Result<Offload> {
        let mut offload = Offload::default();
        // SAFETY: By the type invariant this is a packet.
        to_result(unsafe { uldma_skb_offload(self.as_ptr(), &mut offload) })?;
        Ok(offload)
    }

    /// Copies `count` bytes from byte `from` on to byte `at` of a window.
    ///
    /// # Errors
    ///
    /// `EINVAL` beyond the packet or the window, `EFAULT` if the CPU cannot read its bytes.
    pub(crate) fn copy_to_window(
        &self,
        from: u32,
        count: u32,
        window: &Window,
        at: usize,
    ) -> Result {
        let to = self.place(from, count, window, at)?;
        // SAFETY: `place` checked both ranges.
        to_result(unsafe { uldma_skb_copy_toio(self.as_ptr(), from, count, to) })
    }

    /// Copies `count` bytes from byte `at` of a window to byte `to`.
    ///
    /// # Errors
    ///
    /// As [`SkBuff::copy_to_window`].
    pub(crate) fn copy_from_window(
        &mut self,
        to: u32,
        count: u32,
        window: &Window,
        at: usize,
    ) -> Result {
        let from = self.place(to, count, window, at)?;
        // SAFETY: `place` checked both ranges; the bytes of a packet that is borrowed mutably are ours.
        to_result(unsafe { uldma_skb_copy_fromio(self.as_ptr(), to, count, from) })
    }

    /// Checks both ranges of a copy, and returns the address in the window.
    fn place(&self, start: u32, count: u32, window: &Window, at: usize) -> Result<*mut c_void> {
        let end = start.checked_add(count).ok_or(EINVAL)?;
        if end > self.len() {
            return Err(EINVAL);
        }
        window.range(at, usize::try_from(count)?)
    }

    /// Frees a packet that was sent.
    pub(crate) fn consume(self) {
        // SAFETY: The reference is passed on.
        unsafe { uldma_skb_consume(self.into_raw().as_ptr()) };
    }
}

impl Drop for SkBuff {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the reference is ours.
        unsafe { uldma_skb_drop(self.as_ptr()) };
    }
}
