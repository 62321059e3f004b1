// SPDX-License-Identifier: MIT OR Apache-2.0

//! The system calls that this crate makes, as safe functions: ioctl, mmap and a few small ones.
//!
//! Every call is counted per thread ([`calls`]), so that programs can say what an operation costs.

use std::cell::Cell;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::libc;
use nix::sys::mman::{madvise, mmap, mmap_anonymous, munmap, MapFlags, MmapAdvise, ProtFlags};

use crate::uapi;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

/// System calls that this crate has made on this thread so far.
///
/// An exact count that does not rest on this crate's word is in [`crate::measure::Tracer`].
pub fn calls() -> u64 {
    CALLS.get()
}

/// Notes that this thread makes one more system call.
pub(crate) fn count_call() {
    CALLS.set(CALLS.get() + 1);
}

/// Enters and leaves the kernel through the driver and does nothing there.
pub(crate) fn nop(fd: BorrowedFd<'_>) -> Result<(), Errno> {
    count_call();
    // SAFETY: the command takes no argument, so the kernel touches no memory of ours.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), uapi::request(uapi::ULDMA_CMD_NOP)) };
    Errno::result(result).map(drop)
}

macro_rules! ioctls {
    ($($(#[$doc:meta])* $name:ident($command:ident, $argument:ident);)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name(
            fd: BorrowedFd<'_>,
            mut argument: uapi::$argument,
        ) -> Result<uapi::$argument, Errno> {
            argument.size = size_of::<uapi::$argument>() as u32;
            count_call();
            // SAFETY: `argument` is the structure that the command is defined with and says its
            // own size, so the kernel stays within it; it lives until the call returns.
            let result = unsafe {
                libc::ioctl(
                    fd.as_raw_fd(),
                    uapi::request(uapi::$command),
                    std::ptr::from_mut(&mut argument),
                )
            };
            Errno::result(result).map(|_| argument)
        }
    )*};
}

ioctls! {
    /// What the device is and has.
    query(ULDMA_CMD_QUERY, uldma_query);
    /// Pins memory and names it.
    region_register(ULDMA_CMD_REGION_REGISTER, uldma_region_register);
    /// Ends a region or an import.
    region_unregister(ULDMA_CMD_REGION_UNREGISTER, uldma_handle);
    /// Offers a region to the peer.
    region_export(ULDMA_CMD_REGION_EXPORT, uldma_region_export);
    /// Takes the offer back.
    region_unexport(ULDMA_CMD_REGION_UNEXPORT, uldma_handle);
    /// Gains access to a region of the peer.
    region_import(ULDMA_CMD_REGION_IMPORT, uldma_region_import);
    /// Takes a register context.
    context_create(ULDMA_CMD_CONTEXT_CREATE, uldma_context_create);
    /// Gives the register context back.
    context_destroy(ULDMA_CMD_CONTEXT_DESTROY, uldma_handle);
    /// The device's counters of this opener's context.
    context_stats(ULDMA_CMD_CONTEXT_STATS, uldma_context_stats);
    /// Sets the eventfd that pending events signal.
    eventfd(ULDMA_CMD_EVENTFD, uldma_eventfd);
    /// Starts a transfer through the kernel.
    dma(ULDMA_CMD_DMA, uldma_dma);
    /// Sleeps until a transfer has ended.
    dma_wait(ULDMA_CMD_DMA_WAIT, uldma_dma_wait);
    /// Takes a part of this node's inbound window.
    segment_create(ULDMA_CMD_SEGMENT_CREATE, uldma_segment_create);
    /// Reaches a segment of the peer.
    segment_attach(ULDMA_CMD_SEGMENT_ATTACH, uldma_segment_attach);
    /// Ends a segment or an attachment.
    segment_destroy(ULDMA_CMD_SEGMENT_DESTROY, uldma_handle);
    /// Wakes the other side of a segment.
    doorbell(ULDMA_CMD_DOORBELL, uldma_handle);
}

/// An argument for the commands that take a handle only.
pub(crate) fn handle(handle: u32) -> uapi::uldma_handle {
    uapi::uldma_handle { size: 0, handle }
}

/// Memory that this process has mapped, unmapped on drop.
///
/// There is no reference to its bytes: others (the device, the peer, the kernel) may change it
/// at any time. [`crate::mmio`] has the ways to touch it.
///
/// # Invariants
///
/// `length` is a multiple of eight, not zero, and `length` bytes from `base` stay mapped for as long as the value lives, and no Rust reference
/// to them exists other than those that [`crate::mmio`] makes.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    length: NonZeroUsize,
}

// SAFETY: a mapping belongs to the process and not to a thread, and `&Mapping` gives access only
// through functions that treat the bytes as memory shared with somebody else anyway.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `length` bytes of a device file (or other file) at `offset`, shared.
    pub(crate) fn shared(
        fd: impl AsFd,
        offset: u64,
        length: u64,
        prot: ProtFlags,
    ) -> Result<Self, Errno> {
        let length = length_of(length)?;
        let offset = libc::off_t::try_from(offset).map_err(|_| Errno::EOVERFLOW)?;
        count_call();
        // SAFETY: without MAP_FIXED the kernel picks unused addresses, so nothing that exists
        // changes its meaning.
        let base = unsafe { mmap(None, length, prot, MapFlags::MAP_SHARED, fd, offset)? };
        Ok(Self::own(base, length))
    }

    /// Maps `length` bytes of fresh zeroed memory, not inherited by child processes.
    pub(crate) fn anonymous(length: u64) -> Result<Self, Errno> {
        let length = length_of(length)?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        count_call();
        // SAFETY: as in `shared`.
        let base = unsafe { mmap_anonymous(None, length, prot, MapFlags::MAP_PRIVATE)? };
        let mapping = Self::own(base, length);
        count_call();
        // SAFETY: the range is our own mapping and nothing in this process relies on children
        // seeing it. A child would otherwise copy pinned pages at fork().
        unsafe { madvise(base, length.get(), MmapAdvise::MADV_DONTFORK)? };
        Ok(mapping)
    }

    fn own(base: NonNull<c_void>, length: NonZeroUsize) -> Self {
        Self {
            base: base.cast(),
            length,
        }
    }

    /// First byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length.get()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        count_call();
        // SAFETY: the range is ours, and with `self` the last way to name it goes.
        // It can only fail for arguments that mmap() could not have returned.
        let _ = unsafe { munmap(self.base.cast(), self.length.get()) };
    }
}

/// Pages are mapped whole, so rounding up to words names no byte that is not there.
fn length_of(length: u64) -> Result<NonZeroUsize, Errno> {
    let length = usize::try_from(length)
        .ok()
        .and_then(|length| length.checked_next_multiple_of(8));
    NonZeroUsize::new(length.ok_or(Errno::EOVERFLOW)?).ok_or(Errno::EINVAL)
}

/// A number that nobody can guess, never zero.
pub(crate) fn random() -> Result<u64, Errno> {
    loop {
        let mut bytes = [0u8; 8];
        count_call();
        // SAFETY: the buffer is as long as said.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if Errno::result(got)? == 8 && bytes != [0; 8] {
            return Ok(u64::from_ne_bytes(bytes));
        }
    }
}

/// Lets the process `tracer` trace this one where Yama would forbid it.
pub(crate) fn allow_tracer(tracer: u32) {
    // SAFETY: this command takes a number and touches no memory. Where it fails (no Yama),
    // there is nothing to allow.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(tracer), 0, 0, 0) };
}

/// A system call that does nothing and that a tracer recognises by its argument.
pub(crate) fn mark(command: i32) {
    // SAFETY: prctl() refuses an unknown command with EINVAL before it looks at anything else.
    let _ = unsafe { libc::prctl(command, 0, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_differ() {
        assert_ne!(random().unwrap(), random().unwrap());
    }

    #[test]
    fn a_mapping_needs_a_length() {
        assert_eq!(Mapping::anonymous(0).unwrap_err(), Errno::EINVAL);
        assert!(Mapping::anonymous(u64::MAX).is_err());
    }

    #[test]
    fn calls_are_counted() {
        let before = calls();
        drop(Mapping::anonymous(4096).unwrap());
        assert_eq!(calls() - before, 3);
    }
}
