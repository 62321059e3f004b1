// SPDX-License-Identifier: GPL-2.0

//! Packets that a device reads.

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::to_result,
    prelude::*, //
};

use super::skb::SkBuff;

unsafe extern "C" {
    fn uldma_skb_map(
        dev: *mut bindings::device,
        skb: *const c_void,
        from: u32,
        pieces: *mut Piece,
        most: u32,
    ) -> c_int;
    fn uldma_skb_unmap(dev: *mut bindings::device, pieces: *const Piece, count: u32);
}

/// Maximum number of pieces of a packet: the usual number of fragments, and what is before them.
pub(crate) const MAX_PIECES: usize = 18;

/// A piece of a packet, as a device sees it: `struct uldma_piece`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Piece {
    /// Bus address of the first byte.
    pub(crate) address: u64,
    /// Number of bytes.
    pub(crate) bytes: u64,
}

fn as_raw(dev: &Device<Bound>) -> *mut bindings::device {
    // CAST: `Device` is `#[repr(transparent)]` over `Opaque<struct device>`.
    core::ptr::from_ref(dev).cast_mut().cast()
}

/// A packet that is mapped for a device to read, from some byte on. It stays mapped and allocated
/// forever if it is dropped without [`MappedSkb::unmap`], since the device may read it.
pub(crate) struct MappedSkb {
    /// None after `unmap`.
    skb: Option<SkBuff>,
    pieces: [Piece; MAX_PIECES],
    count: usize,
}

impl MappedSkb {
    /// Maps what `skb` has from byte `from` on.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for more pieces than [`MAX_PIECES`], `ENOMEM` if one cannot be mapped, `EINVAL` for a
    /// packet of packets; with the packet.
    pub(crate) fn new(
        dev: &Device<Bound>,
        skb: SkBuff,
        from: u32,
    ) -> Result<Self, (Error, SkBuff)> {
        const MOST: u32 = MAX_PIECES as u32;
        let mut pieces = [Piece::default(); MAX_PIECES];
        // SAFETY: The device is bound, this is a packet, and there is room for so many pieces.
        let count =
            unsafe { uldma_skb_map(as_raw(dev), skb.as_ptr(), from, pieces.as_mut_ptr(), MOST) };
        match to_result(count) {
            Ok(()) => Ok(Self {
                skb: Some(skb),
                pieces,
                // It is not negative, and not more than there is room for.
                count: usize::try_from(count).unwrap_or(0).min(MAX_PIECES),
            }),
            Err(err) => Err((err, skb)),
        }
    }

    /// Returns the mapped pieces, in the order of their bytes.
    pub(crate) fn pieces(&self) -> &[Piece] {
        self.pieces.get(..self.count).unwrap_or_default()
    }

    /// Ends the mapping; `dev` is the same, and does not read the packet any more.
    pub(crate) fn unmap(mut self, dev: &Device<Bound>) -> Option<SkBuff> {
        let pieces = self.pieces();
        // A packet has far fewer than 2^32 pieces.
        let count = u32::try_from(pieces.len()).unwrap_or(0);
        // SAFETY: The device is bound, and `new` has mapped these.
        unsafe { uldma_skb_unmap(as_raw(dev), pieces.as_ptr(), count) };
        self.skb.take()
    }
}

impl Drop for MappedSkb {
    fn drop(&mut self) {
        if let Some(skb) = self.skb.take() {
            core::mem::forget(skb);
        }
    }
}
