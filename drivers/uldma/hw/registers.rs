// SPDX-License-Identifier: GPL-2.0

//! Typed access to the registers of an adapter.

use kernel::{
    io::Io,
    pci,
    prelude::*, //
};

use super::layout::{
    context_page,
    ControlRegister,
    Readable,
    Register,
    Word,
    Writable,
    BAR_CONTROL_SIZE, //
};

/// BAR0, mapped.
pub(super) type ControlBar<'a> = pci::Bar<'a, BAR_CONTROL_SIZE>;

/// Access to declared registers, each with its own width and type.
///
/// A register of 4 bytes whose position is a constant is accessed without a check. A register whose
/// position is computed is checked, and so is one of 8 bytes, since the kernel guarantees that a BAR is
/// aligned to 4 bytes only.
pub(super) trait Registers {
    /// Reads `register`, which has 4 bytes and a constant position.
    fn read<T: Word, A: Readable>(&self, register: Register<ControlRegister, T, A>) -> T;

    /// Writes `value` to `register`, which has 4 bytes and a constant position.
    fn write<T: Word, A: Writable>(&self, register: Register<ControlRegister, T, A>, value: T);

    /// Reads `register`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the register is outside of the BAR or not aligned.
    fn try_read<T: Word, A: Readable>(
        &self,
        register: Register<ControlRegister, T, A>,
    ) -> Result<T>;

    /// Writes `value` to `register`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the register is outside of the BAR or not aligned.
    fn try_write<T: Word, A: Writable>(
        &self,
        register: Register<ControlRegister, T, A>,
        value: T,
    ) -> Result;
}

impl Registers for ControlBar<'_> {
    #[inline(always)]
    fn read<T: Word, A: Readable>(&self, register: Register<ControlRegister, T, A>) -> T {
        const { assert!(size_of::<T>() == 4, "see the trait") };
        T::from_raw(self.read32(register.offset()).into())
    }

    #[inline(always)]
    fn write<T: Word, A: Writable>(&self, register: Register<ControlRegister, T, A>, value: T) {
        const { assert!(size_of::<T>() == 4, "see the trait") };
        // CAST: A value of 4 bytes has no more bits.
        self.write32(value.to_raw() as u32, register.offset());
    }

    #[inline(always)]
    fn try_read<T: Word, A: Readable>(
        &self,
        register: Register<ControlRegister, T, A>,
    ) -> Result<T> {
        Ok(T::from_raw(match size_of::<T>() {
            8 => self.try_read64(register.offset())?,
            _ => self.try_read32(register.offset())?.into(),
        }))
    }

    #[inline(always)]
    fn try_write<T: Word, A: Writable>(
        &self,
        register: Register<ControlRegister, T, A>,
        value: T,
    ) -> Result {
        match size_of::<T>() {
            8 => self.try_write64(value.to_raw(), register.offset()),
            // CAST: A value of 4 bytes has no more bits.
            _ => self.try_write32(value.to_raw() as u32, register.offset()),
        }
    }
}

/// Wakes the device to poll the queue of a context, whose page is at byte `page` of BAR1.
///
/// # Errors
///
/// `EINVAL` if the page is outside of the BAR.
pub(super) fn wake(pages: &pci::Bar<'_>, page: usize) -> Result {
    // The device takes a store anywhere in the page, so that a read-only register does.
    pages.try_write64(0, page + context_page::REMAINING.offset())
}
