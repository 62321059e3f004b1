// SPDX-License-Identifier: MIT OR Apache-2.0

//! Decodes the registers of BAR0.
//!
//! Registers are read with 4 or 8 bytes at a multiple of that, and written with their own width. An
//! 8-byte access to two adjacent 4-byte registers accesses the lower one first. A register of 8
//! bytes can be read in halves, but is written at once.

use crate::layout::{ctx, reg, MSIX_TABLE_OFFSET};

/// A register, by its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// A register of the node.
    Control(usize),
    /// A register of a context block.
    Context {
        /// The context; may be one that the device does not have.
        context: usize,
        /// Byte offset in the block.
        offset: usize,
    },
}

impl Register {
    /// Returns the register at a byte offset in BAR0.
    pub fn at(offset: usize) -> Self {
        match offset.checked_sub(reg::CONTEXT_BLOCKS) {
            Some(in_blocks) if offset < MSIX_TABLE_OFFSET => Register::Context {
                context: in_blocks / ctx::STRIDE,
                offset: in_blocks % ctx::STRIDE,
            },
            _ => Register::Control(offset),
        }
    }

    /// Returns true if the register has 8 bytes.
    fn is_wide(self) -> bool {
        match self {
            Register::Control(offset) => matches!(
                offset,
                reg::PAGE_DIRECTORY
                    | reg::REGION_DIRECTORY
                    | reg::INVALIDATE
                    | reg::DMA_SOURCE
                    | reg::DMA_DESTINATION
                    | reg::DMA_SIZE
                    | reg::DMA_STATUS
                    | reg::RUNNING
                    | reg::WINDOW_SIZE
            ),
            Register::Context { offset, .. } => {
                matches!(offset, ctx::STATUS_PAGE | ctx::KEY) || offset >= ctx::ARM
            }
        }
    }
}

/// A file of registers.
pub trait RegisterFile {
    /// Reads a whole register; one that does not exist reads as 0.
    fn load(&mut self, register: Register) -> u64;
    /// Writes a whole register; one that does not exist or is read-only ignores it.
    fn store(&mut self, register: Register, value: u64);
}

/// Splits a load into loads of registers; `None` for an access that is not served.
pub fn load(file: &mut impl RegisterFile, offset: usize, width: usize) -> Option<u64> {
    if !matches!(width, 4 | 8) || offset % width != 0 {
        return None;
    }
    let aligned = Register::at(offset & !7);
    Some(match (aligned.is_wide(), width) {
        (true, 8) => file.load(aligned),
        (true, _) => (file.load(aligned) >> (offset % 8 * 8)) & 0xffff_ffff,
        (false, 8) => {
            let low = file.load(aligned) & 0xffff_ffff;
            low | (file.load(Register::at(offset + 4)) << 32)
        }
        (false, _) => file.load(Register::at(offset)) & 0xffff_ffff,
    })
}

/// Splits a store into stores to registers; `None` for an access that is not served.
pub fn store(file: &mut impl RegisterFile, offset: usize, width: usize, value: u64) -> Option<()> {
    if !matches!(width, 4 | 8) || offset % width != 0 {
        return None;
    }
    let aligned = Register::at(offset & !7);
    match (aligned.is_wide(), width) {
        (true, 8) => file.store(aligned, value),
        (true, _) => return None,
        (false, 8) => {
            file.store(aligned, value & 0xffff_ffff);
            file.store(Register::at(offset + 4), value >> 32);
        }
        (false, _) => file.store(Register::at(offset), value & 0xffff_ffff),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[derive(Default)]
    struct Plain(HashMap<String, u64>);

    impl RegisterFile for Plain {
        fn load(&mut self, register: Register) -> u64 {
            let key = format!("{register:?}");
            self.0.get(&key).copied().unwrap_or(0)
        }
        fn store(&mut self, register: Register, value: u64) {
            self.0.insert(format!("{register:?}"), value);
        }
    }

    #[test]
    fn widths() {
        let mut file = Plain::default();
        let wide = 0x1122_3344_5566_7788;
        assert_eq!(store(&mut file, reg::PAGE_DIRECTORY, 8, wide), Some(()));
        assert_eq!(load(&mut file, reg::PAGE_DIRECTORY, 4), Some(0x5566_7788));
        assert_eq!(
            load(&mut file, reg::PAGE_DIRECTORY + 4, 4),
            Some(0x1122_3344)
        );
        assert_eq!(store(&mut file, reg::PAGE_DIRECTORY, 4, 0), None);
        assert_eq!(store(&mut file, reg::CONTROL, 8, wide), Some(()));
        assert_eq!(load(&mut file, reg::CONTROL, 4), Some(0x5566_7788));
        assert_eq!(load(&mut file, reg::STATUS, 4), Some(0x1122_3344));
        assert_eq!(load(&mut file, reg::CONTROL, 8), Some(wide));
        for (offset, width) in [(0, 1), (0, 2), (2, 4), (4, 8), (0, 16)] {
            assert_eq!(load(&mut file, offset, width), None);
            assert_eq!(store(&mut file, offset, width, 0), None);
        }
    }

    #[test]
    fn context_blocks() {
        let arm = reg::CONTEXT_BLOCKS + 3 * ctx::STRIDE + ctx::ARM;
        assert_eq!(
            Register::at(arm),
            Register::Context {
                context: 3,
                offset: ctx::ARM
            }
        );
        assert!(Register::at(arm).is_wide());
        assert_eq!(
            Register::at(MSIX_TABLE_OFFSET),
            Register::Control(MSIX_TABLE_OFFSET)
        );
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(offset in 0usize..0x2_0000, width in 0usize..20, value: u64) {
            let mut file = Plain::default();
            let stored = store(&mut file, offset, width, value).is_some();
            let loaded = load(&mut file, offset, width);
            if stored {
                let mask = if width == 8 { u64::MAX } else { 0xffff_ffff };
                prop_assert_eq!(loaded, Some(value & mask));
            }
        }
    }
}
