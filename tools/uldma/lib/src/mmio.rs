// SPDX-License-Identifier: MIT OR Apache-2.0

//! All volatile accesses, fences and pointer arithmetic of this crate.
//!
//! Two kinds of memory are behind a [`Mapping`]: *registers* (shadow pages), where each access
//! is an order to the device, and *shared memory* (status page, window, registered buffers),
//! which somebody else may change at any time.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, AtomicU64, Ordering};

use crate::sys::Mapping;

/// Bytes of the smallest page that Linux has: each mapping has as many at least.
const PAGE: usize = 4096;

impl Mapping {
    /// The word of shared memory at `offset`, which must be a multiple of eight.
    ///
    /// # Panics
    ///
    /// When the word does not lie in the mapping or is not aligned.
    #[inline]
    pub(crate) fn word(&self, offset: usize) -> &AtomicU64 {
        // Where the offset is a constant in the first page, nothing is left to check at run time.
        let there = offset <= PAGE - 8 || offset <= self.length() - 8;
        assert!(offset % 8 == 0 && there);
        // SAFETY: the word lies in the mapping, which consists of whole pages, and is aligned, as
        // pages are; it stays mapped while `self` is borrowed. Others reach it by hardware accesses only, or
        // through this function, hence atomically.
        unsafe { AtomicU64::from_ptr(self.base().as_ptr().add(offset).cast()) }
    }

    /// Copies shared memory at `offset` into `target`, once, in no particular order.
    ///
    /// # Panics
    ///
    /// When the range does not lie in the mapping.
    #[inline]
    pub(crate) fn read(&self, offset: usize, target: &mut [u8]) {
        assert!(self.holds(offset, target.len()));
        // SAFETY: the source lies in the mapping, the target is ours alone, so they do not
        // overlap. The bytes may change while they are copied; any value of them is a valid u8,
        // and whoever calls checks what it got.
        unsafe {
            copy(
                self.base().as_ptr().add(offset),
                target.as_mut_ptr(),
                target.len(),
            )
        };
    }

    /// Copies `source` to shared memory at `offset`, in no particular order.
    ///
    /// # Panics
    ///
    /// When the range does not lie in the mapping.
    #[inline]
    pub(crate) fn write(&self, offset: usize, source: &[u8]) {
        assert!(self.holds(offset, source.len()));
        // SAFETY: the target lies in the mapping, which no reference in this process overlaps
        // (see `Mapping`), so not `source` either.
        unsafe {
            copy(
                source.as_ptr(),
                self.base().as_ptr().add(offset),
                source.len(),
            )
        };
    }

    #[inline]
    fn holds(&self, offset: usize, length: usize) -> bool {
        offset <= self.length() && length <= self.length() - offset
    }

    /// The bytes, for a mapping that nobody else can change.
    ///
    /// # Safety
    ///
    /// For as long as the slice lives, nobody writes to the mapping.
    pub(crate) unsafe fn as_slice(&self) -> &[u8] {
        // SAFETY: the bytes are mapped readable and initialised (the kernel zeroes pages), and by
        // the caller's promise they do not change.
        unsafe { std::slice::from_raw_parts(self.base().as_ptr(), self.length()) }
    }

    /// The bytes, for a mapping that nobody else can reach.
    ///
    /// # Safety
    ///
    /// For as long as the slice lives, nobody else reads or writes the mapping.
    pub(crate) unsafe fn as_slice_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.base().as_ptr(), self.length()) }
    }
}

/// Copies memory in pieces that memcpy() moves with vector registers. What is longer it may leave
/// to one string instruction, which emulators carry out byte by byte, and which on some processors
/// does not fill the write-combining buffers that a window is written through.
///
/// # Safety
///
/// As [`std::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn copy(source: *const u8, target: *mut u8, length: usize) {
    const PIECE: usize = 2048;
    let mut done = 0;
    while done < length {
        let piece = PIECE.min(length - done);
        // SAFETY: the piece lies in both ranges, which the caller answers for.
        unsafe { std::ptr::copy_nonoverlapping(source.add(done), target.add(done), piece) };
        done += piece;
    }
}

/// One shadow address: the register that stands for one byte of a region.
///
/// # Invariants
///
/// `address` lies in a mapping of shadow pages that lives for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShadowAddress<'a> {
    address: NonNull<u8>,
    mapping: PhantomData<&'a Mapping>,
}

impl<'a> ShadowAddress<'a> {
    /// The register at `offset` of a mapping of shadow pages; none outside of it.
    pub(crate) fn new(mapping: &'a Mapping, offset: usize) -> Option<Self> {
        if offset >= mapping.length() {
            return None;
        }
        // SAFETY: the offset was checked to lie in the mapping.
        let address = unsafe { mapping.base().add(offset) };
        Some(Self {
            address,
            mapping: PhantomData,
        })
    }

    /// The address modulo eight, which the size word carries.
    #[inline]
    pub(crate) fn low(self) -> u64 {
        self.address.as_ptr() as u64 & 7
    }

    /// The aligned register.
    #[inline]
    fn register(self) -> *mut u64 {
        // Clearing the low bits stays in the same word, hence in the same page.
        let low = self.address.as_ptr() as usize & 7;
        self.address.as_ptr().wrapping_sub(low).cast()
    }
}

/// Starts a transfer: stores the size word to the destination's shadow address, then loads from
/// the source's. Exactly one store and one load reach the device, in this order, after all
/// earlier stores of this thread to ordinary memory.
///
/// The caller has made sure that `destination` is mapped writable and `source` readable, and that
/// no other thread does the same for the same context at the same time.
#[inline]
pub(crate) fn initiate(
    destination: ShadowAddress<'_>,
    source: ShadowAddress<'_>,
    size_word: u64,
) -> i64 {
    write_barrier();
    // SAFETY: by the type's invariant the word is mapped; it is aligned; it is a register and not
    // memory, so nothing that Rust knows of changes.
    unsafe { destination.register().write_volatile(size_word) };
    register_barrier();
    // SAFETY: as above.
    let answer = unsafe { source.register().read_volatile() };
    compiler_fence(Ordering::SeqCst);
    answer as i64
}

/// Orders earlier stores to memory before later stores to registers.
#[inline]
fn write_barrier() {
    // x86 does not let an uncached store pass an earlier store, so only the compiler is told.
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
    other::write_barrier();
}

/// Orders a store to a register before a later load from another register.
#[inline]
fn register_barrier() {
    // x86 keeps uncached accesses in program order.
    compiler_fence(Ordering::SeqCst);
    #[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
    other::register_barrier();
}

/// Orders all earlier accesses to shared memory before all later ones, stores before loads
/// included.
#[inline]
pub(crate) fn full_barrier() {
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(target_arch = "aarch64")]
mod other {
    /// The kernel's `dma_wmb()`, widened to the outer domain that a device is in.
    #[inline]
    pub(super) fn write_barrier() {
        // SAFETY: a barrier has no operands and no effect but ordering.
        unsafe { std::arch::asm!("dsb oshst", options(nostack, preserves_flags)) };
    }

    /// Two registers may lie in different pages of one device: order them explicitly.
    #[inline]
    pub(super) fn register_barrier() {
        // SAFETY: as above.
        unsafe { std::arch::asm!("dmb osh", options(nostack, preserves_flags)) };
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
mod other {
    compile_error!("say in mmio.rs how this architecture orders memory before device registers");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_initiation_stores_then_loads_the_aligned_words() {
        let map = Mapping::anonymous(8192).unwrap();
        map.word(4096).store(77, Ordering::Relaxed);
        let destination = ShadowAddress::new(&map, 13).unwrap();
        let source = ShadowAddress::new(&map, 4099).unwrap();
        assert_eq!((destination.low(), source.low()), (5, 3));
        assert_eq!(initiate(destination, source, 0x1234), 77);
        assert_eq!(map.word(8).load(Ordering::Relaxed), 0x1234);
        assert!(ShadowAddress::new(&map, 8192).is_none());
    }

    #[test]
    #[should_panic(expected = "offset % 8 == 0")]
    fn a_word_outside_of_the_mapping_is_refused() {
        let map = Mapping::anonymous(4096).unwrap();
        map.word(4096);
    }

    #[test]
    #[should_panic(expected = "holds")]
    fn a_copy_that_wraps_around_is_refused() {
        let map = Mapping::anonymous(4096).unwrap();
        map.read(usize::MAX, &mut [0; 2]);
    }

    #[test]
    fn copies_go_where_they_should() {
        let map = Mapping::anonymous(4096).unwrap();
        map.write(4090, b"abcdef");
        let mut back = [0; 6];
        map.read(4090, &mut back);
        assert_eq!(&back, b"abcdef");
    }
}
