// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registers of the device: each access is a command, so none may be merged, moved or left out.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{compiler_fence, Ordering};

use crate::sys::Mapping;

/// A register that takes stores and answers loads. Each access reaches the device exactly once, in
/// program order.
///
/// The paper needs a barrier wherever a write buffer could merge or delay accesses (§4.2, fig. 10).
/// The methods decide where, and this trait how.
pub(crate) trait Register: Copy {
    /// Stores a word of eight bytes.
    fn store(self, word: u64);

    /// Loads a word of eight bytes; a negative value is a refusal.
    fn load(self) -> i64;

    /// Orders all earlier stores to memory, and all earlier accesses to registers, before all later
    /// accesses to registers. To be called before the first access of an initiation.
    fn begin(self);

    /// Orders earlier accesses to registers before later ones.
    fn barrier(self);
}

/// The mapped address of a register.
///
/// # Invariants
///
/// `address` lies in a mapping of registers that lives for `'a`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisterAddress<'a> {
    address: NonNull<u8>,
    mapping: PhantomData<&'a Mapping>,
}

impl<'a> RegisterAddress<'a> {
    /// Returns the register at `offset` of a mapping of registers; none outside of it.
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

    /// Returns the address modulo eight, for the size word.
    #[inline]
    pub(crate) fn low(self) -> u64 {
        self.address.as_ptr() as u64 & 7
    }

    /// Returns the address modulo the page size.
    #[inline]
    pub(crate) fn in_page(self, page_size: u64) -> u64 {
        (self.address.as_ptr() as u64)
            .checked_rem(page_size)
            .unwrap_or(0)
    }

    /// Returns the register `bytes` further on; none on another page, which may not be mapped.
    #[inline]
    pub(crate) fn further(self, bytes: u64) -> Option<Self> {
        let page = super::PAGE as u64;
        let left = page - self.in_page(page);
        (bytes < left).then(|| {
            // SAFETY: the mapping consists of whole pages, and the sum stays in the page that
            // `address` lies in.
            let address = unsafe { self.address.add(bytes as usize) };
            Self { address, ..self }
        })
    }

    /// The aligned register.
    #[inline]
    pub(super) fn word(self) -> *mut u64 {
        // Clearing the low bits stays in the same word, hence in the same page.
        let low = self.address.as_ptr() as usize & 7;
        self.address.as_ptr().wrapping_sub(low).cast()
    }
}

/// The owner of an address has checked that it is mapped with the rights for its accesses.
impl Register for RegisterAddress<'_> {
    #[inline]
    fn store(self, word: u64) {
        // SAFETY: by the type's invariant the word is mapped; it is aligned; it is a register and
        // not memory, so no Rust object changes.
        unsafe { self.word().write_volatile(word) };
    }

    #[inline]
    fn load(self) -> i64 {
        // SAFETY: as above.
        let answer = unsafe { self.word().read_volatile() };
        // Accesses that depend on the answer other than by its value, such as those to the data,
        // come after.
        compiler_fence(Ordering::SeqCst);
        answer as i64
    }

    #[inline]
    fn begin(self) {
        // x86 does not let an uncached store pass an earlier store, so a compiler barrier is
        // enough.
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
        other::memory_barrier();
    }

    #[inline]
    fn barrier(self) {
        // x86 keeps uncached accesses in program order, and merges none.
        compiler_fence(Ordering::SeqCst);
        #[cfg(not(any(target_arch = "x86_64", target_arch = "x86")))]
        other::register_barrier();
    }
}

#[cfg(target_arch = "aarch64")]
mod other {
    /// The kernel's `dma_wmb()`, widened to the outer domain that a device is in, and to loads.
    #[inline]
    pub(super) fn memory_barrier() {
        // SAFETY: a barrier has no operands and no effect but ordering.
        unsafe { std::arch::asm!("dsb osh", options(nostack, preserves_flags)) };
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
    compile_error!("define in register.rs how this architecture orders accesses to registers");
}

#[cfg(test)]
pub(crate) mod fake {
    //! A device that answers loads, for tests of the sequences.

    use std::cell::RefCell;

    use super::Register;

    /// One access as seen by the device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Access {
        Store(u64, u64),
        Load(u64),
        Begin,
        Barrier,
    }

    /// Maps an access (a store with its word) to its answer.
    type Answer<'a> = dyn FnMut(Access) -> i64 + 'a;

    /// A device, and the accesses that it has seen.
    pub(crate) struct Bus<'a> {
        pub(crate) seen: RefCell<Vec<Access>>,
        answer: RefCell<Box<Answer<'a>>>,
    }

    impl<'a> Bus<'a> {
        pub(crate) fn new(answer: impl FnMut(Access) -> i64 + 'a) -> Self {
            Self {
                seen: RefCell::default(),
                answer: RefCell::new(Box::new(answer)),
            }
        }

        pub(crate) fn at(&self, address: u64) -> At<'_, 'a> {
            At { bus: self, address }
        }

        /// Returns the accesses without the barriers.
        pub(crate) fn accesses(&self) -> Vec<Access> {
            let seen = self.seen.borrow();
            let real = |access: &&Access| !matches!(access, Access::Begin | Access::Barrier);
            seen.iter().filter(real).copied().collect()
        }

        fn see(&self, access: Access) -> i64 {
            self.seen.borrow_mut().push(access);
            (self.answer.borrow_mut())(access)
        }
    }

    /// A register of it.
    #[derive(Clone, Copy)]
    pub(crate) struct At<'bus, 'a> {
        bus: &'bus Bus<'a>,
        address: u64,
    }

    impl Register for At<'_, '_> {
        fn store(self, word: u64) {
            self.bus.see(Access::Store(self.address, word));
        }

        fn load(self) -> i64 {
            self.bus.see(Access::Load(self.address))
        }

        fn begin(self) {
            self.bus.seen.borrow_mut().push(Access::Begin);
        }

        fn barrier(self) {
            self.bus.seen.borrow_mut().push(Access::Barrier);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_is_the_aligned_word() {
        let map = Mapping::anonymous(8192).unwrap();
        let register = RegisterAddress::new(&map, 4099).unwrap();
        assert_eq!((register.low(), register.in_page(4096)), (3, 3));
        register.begin();
        register.store(77);
        register.barrier();
        assert_eq!(map.word(4096).load(Ordering::Relaxed), 77);
        assert_eq!(register.load(), 77);
        register.further(8).unwrap().store(78);
        assert_eq!(map.word(4104).load(Ordering::Relaxed), 78);
        assert!(RegisterAddress::new(&map, 8192).is_none());
        assert!(register.further(4093).is_none());
        assert!(register.further(u64::MAX).is_none());
    }
}
