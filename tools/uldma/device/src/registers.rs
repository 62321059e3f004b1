// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decodes the registers of BAR0.
//!
//! Registers are read with 4 or 8 bytes at a multiple of that, and written with their own width. An
//! 8-byte access to two adjacent 4-byte registers accesses the lower one first. A register of 8
//! bytes can be read in halves, but is written at once.

use crate::layout::{ContextRegister, ControlRegister, CONTEXT_BLOCKS};

/// A register of BAR0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Register {
    /// A register of the node.
    Control(ControlRegister),
    /// A register of a context block.
    Context {
        /// The context; may be one that the device does not have.
        context: usize,
        /// The register in the block.
        register: ContextRegister,
    },
}

impl Register {
    /// Returns the register at a byte offset in BAR0, if one starts there.
    pub fn at(offset: usize) -> Option<Self> {
        if let Some((context, offset)) = CONTEXT_BLOCKS.locate(offset) {
            let register = ContextRegister::decode(offset)?;
            Some(Register::Context { context, register })
        } else {
            ControlRegister::decode(offset).map(Register::Control)
        }
    }

    /// Returns true if the register has 8 bytes.
    fn is_wide(self) -> bool {
        let width = match self {
            Register::Control(register) => register.width(),
            Register::Context { register, .. } => register.width(),
        };
        width == 8
    }

    /// Returns the register of 8 bytes that byte `offset` is in.
    fn wide_at(offset: usize) -> Option<Self> {
        Self::at(offset & !7).filter(|register| register.is_wide())
    }
}

/// A file of registers.
pub trait RegisterFile {
    /// Reads a whole register.
    fn load(&mut self, register: Register) -> u64;
    /// Writes a whole register; one that is read-only ignores it.
    fn store(&mut self, register: Register, value: u64);
}

/// Loads 4 bytes, which are 0 where no register is.
fn load_narrow(file: &mut impl RegisterFile, offset: usize) -> u64 {
    Register::at(offset).map_or(0, |register| file.load(register) & 0xffff_ffff)
}

/// Stores 4 bytes, to no effect where no register is.
fn store_narrow(file: &mut impl RegisterFile, offset: usize, value: u64) {
    if let Some(register) = Register::at(offset) {
        file.store(register, value & 0xffff_ffff);
    }
}

/// Splits a load into loads of registers; `None` for an access that is not served.
pub fn load(file: &mut impl RegisterFile, offset: usize, width: usize) -> Option<u64> {
    if !matches!(width, 4 | 8) || offset % width != 0 {
        return None;
    }
    Some(match (Register::wide_at(offset), width) {
        (Some(register), 8) => file.load(register),
        (Some(register), _) => (file.load(register) >> (offset % 8 * 8)) & 0xffff_ffff,
        (None, 8) => load_narrow(file, offset) | (load_narrow(file, offset + 4) << 32),
        (None, _) => load_narrow(file, offset),
    })
}

/// Splits a store into stores to registers; `None` for an access that is not served.
pub fn store(file: &mut impl RegisterFile, offset: usize, width: usize, value: u64) -> Option<()> {
    if !matches!(width, 4 | 8) || offset % width != 0 {
        return None;
    }
    match (Register::wide_at(offset), width) {
        (Some(register), 8) => file.store(register, value),
        (Some(_), _) => return None,
        (None, 8) => {
            store_narrow(file, offset, value);
            store_narrow(file, offset + 4, value >> 32);
        }
        (None, _) => store_narrow(file, offset, value),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{ctx, reg, MSIX_TABLE_OFFSET};
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Default)]
    struct Plain(HashMap<Register, u64>);

    impl RegisterFile for Plain {
        fn load(&mut self, register: Register) -> u64 {
            self.0.get(&register).copied().unwrap_or(0)
        }
        fn store(&mut self, register: Register, value: u64) {
            self.0.insert(register, value);
        }
    }

    #[test]
    fn widths() {
        let mut file = Plain::default();
        let wide = 0x1122_3344_5566_7788;
        let directory = reg::PAGE_DIRECTORY.offset();
        assert_eq!(store(&mut file, directory, 8, wide), Some(()));
        assert_eq!(load(&mut file, directory, 4), Some(0x5566_7788));
        assert_eq!(load(&mut file, directory + 4, 4), Some(0x1122_3344));
        assert_eq!(store(&mut file, directory, 4, 0), None);
        let (control, status) = (reg::CONTROL.offset(), reg::STATUS.offset());
        assert_eq!(store(&mut file, control, 8, wide), Some(()));
        assert_eq!(load(&mut file, control, 4), Some(0x5566_7788));
        assert_eq!(load(&mut file, status, 4), Some(0x1122_3344));
        assert_eq!(load(&mut file, control, 8), Some(wide));
        for (offset, width) in [(0, 1), (0, 2), (2, 4), (4, 8), (0, 16)] {
            assert_eq!(load(&mut file, offset, width), None);
            assert_eq!(store(&mut file, offset, width, 0), None);
        }
    }

    #[test]
    fn context_blocks() {
        let arm = Register::Context {
            context: 3,
            register: ContextRegister::ARM,
        };
        let offset = ctx::ARM.of(CONTEXT_BLOCKS.at(3).unwrap()).offset();
        assert_eq!(Register::at(offset), Some(arm));
        assert!(arm.is_wide());
        assert_eq!(Register::wide_at(offset + 4), Some(arm));
        assert_eq!(Register::at(offset + 4), None);
        assert_eq!(Register::at(MSIX_TABLE_OFFSET), None);
        assert!(CONTEXT_BLOCKS.at(256).is_none());
    }

    #[test]
    fn arrays() {
        let last = reg::PEER_DOORBELL.at(7).unwrap().offset();
        let doorbell = ControlRegister::PEER_DOORBELL(7);
        assert_eq!(Register::at(last), Some(Register::Control(doorbell)));
        assert!(reg::PEER_DOORBELL.at(8).is_none());
        assert_eq!(Register::at(last + 2), None);
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(offset in 0usize..0x2_0000, width in 0usize..20, value: u64) {
            let mut file = Plain::default();
            let stored = store(&mut file, offset, width, value).is_some();
            let loaded = load(&mut file, offset, width);
            if stored {
                let half = |at| if Register::at(at).is_some() { 0xffff_ffff } else { 0 };
                let mask = match (Register::wide_at(offset), width) {
                    (Some(_), _) => u64::MAX,
                    (None, 8) => half(offset) | (half(offset + 4) << 32),
                    (None, _) => half(offset),
                };
                prop_assert_eq!(loaded, Some(value & mask));
            }
        }
    }
}
