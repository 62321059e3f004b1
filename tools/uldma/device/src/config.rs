// SPDX-License-Identifier: MIT OR Apache-2.0

//! PCI configuration space of one node's function.

use crate::layout::{
    BAR_CONTEXT, BAR_CONTROL, BAR_CONTROL_SIZE, BAR_SHADOW, BAR_WINDOW, DEVICE_ID, MSIX_PBA_OFFSET,
    MSIX_TABLE_OFFSET, MSIX_VECTORS, VENDOR_ID,
};

/// Bytes of the configuration space.
pub const CONFIG_SIZE: usize = 256;
/// BARs of a function.
pub const BARS: usize = 6;

const COMMAND: usize = 0x04;
const STATUS: usize = 0x06;
const REVISION: usize = 0x08;
const FIRST_BAR: usize = 0x10;
const SUBSYSTEM: usize = 0x2c;
const CAPABILITIES: usize = 0x34;
const MSIX: usize = 0x40;

const COMMAND_MEMORY: u16 = 1 << 1;
const COMMAND_MASTER: u16 = 1 << 2;
const COMMAND_INTX_OFF: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// System peripheral, other; revision 1.
const CLASS_REVISION: u32 = 0x0880_0001;
const BAR_64BIT: u32 = 0b0100;
const BAR_PREFETCHABLE: u32 = 0b1000;
const MSIX_ID: u8 = 0x11;
/// Function mask and enable.
const MSIX_CONTROL_WRITABLE: u16 = 0b11 << 14;

/// Sizes of the BARs that depend on options.
#[derive(Clone, Copy, Debug)]
pub struct BarSizes {
    /// Bytes of each BAR; a power of two, or 0 where there is none.
    pub bytes: [u64; BARS],
}

impl BarSizes {
    /// Sizes for a number of contexts, log2 of the shadow space and bytes of the window.
    pub fn new(contexts: u32, shadow_bits: u32, window: u64) -> Self {
        /// log2 of the largest page that PAGE_SHIFT can name.
        const LARGEST_PAGE_SHIFT: u32 = 16;
        let mut bytes = [0; BARS];
        bytes[BAR_CONTROL as usize] = BAR_CONTROL_SIZE as u64;
        bytes[BAR_CONTEXT as usize] = u64::from(contexts.next_power_of_two()) << LARGEST_PAGE_SHIFT;
        bytes[BAR_SHADOW as usize] = 1 << shadow_bits;
        bytes[BAR_WINDOW as usize] = window;
        Self { bytes }
    }
}

/// The registers, and their writable bits.
#[derive(Clone, Debug)]
pub struct Config {
    bytes: [u8; CONFIG_SIZE],
    writable: [u8; CONFIG_SIZE],
}

impl Config {
    /// Returns the state after a reset.
    pub fn new(sizes: &BarSizes) -> Self {
        let mut config = Self {
            bytes: [0; CONFIG_SIZE],
            writable: [0; CONFIG_SIZE],
        };
        let identity = (u32::from(DEVICE_ID) << 16) | u32::from(VENDOR_ID);
        config.put32(0, identity, 0);
        config.put16(
            COMMAND,
            0,
            COMMAND_MEMORY | COMMAND_MASTER | COMMAND_INTX_OFF,
        );
        config.put16(STATUS, STATUS_CAPABILITIES, 0);
        config.put32(REVISION, CLASS_REVISION, 0);
        config.put32(SUBSYSTEM, identity, 0);
        config.put16(CAPABILITIES, MSIX as u16, 0);
        for (bar, kind) in [
            (BAR_CONTROL, 0),
            (BAR_CONTEXT, 0),
            (BAR_SHADOW, BAR_64BIT | BAR_PREFETCHABLE),
            (BAR_WINDOW, BAR_64BIT | BAR_PREFETCHABLE),
        ] {
            let size = sizes.bytes[bar as usize];
            let address_bits = !size.wrapping_sub(1);
            let register = FIRST_BAR + bar as usize * 4;
            config.put32(register, kind, address_bits as u32);
            if kind & BAR_64BIT != 0 {
                config.put32(register + 4, 0, (address_bits >> 32) as u32);
            }
        }
        config.put16(MSIX, u16::from(MSIX_ID), 0);
        config.put16(MSIX + 2, MSIX_VECTORS - 1, MSIX_CONTROL_WRITABLE);
        config.put32(MSIX + 4, MSIX_TABLE_OFFSET as u32 | BAR_CONTROL, 0);
        config.put32(MSIX + 8, MSIX_PBA_OFFSET as u32 | BAR_CONTROL, 0);
        config
    }

    fn put16(&mut self, offset: usize, value: u16, writable: u16) {
        self.bytes[offset..offset + 2].copy_from_slice(&value.to_le_bytes());
        self.writable[offset..offset + 2].copy_from_slice(&writable.to_le_bytes());
    }

    fn put32(&mut self, offset: usize, value: u32, writable: u32) {
        self.bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        self.writable[offset..offset + 4].copy_from_slice(&writable.to_le_bytes());
    }

    /// Reads; bytes that do not exist read as ones.
    pub fn read(&self, offset: u64, data: &mut [u8]) {
        for (index, byte) in data.iter_mut().enumerate() {
            *byte = place(offset, index)
                .and_then(|place| self.bytes.get(place))
                .copied()
                .unwrap_or(0xff);
        }
    }

    /// Writes the bits that can be written.
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        for (index, new) in data.iter().enumerate() {
            let Some(place) = place(offset, index) else {
                return;
            };
            if let (Some(byte), Some(mask)) = (self.bytes.get_mut(place), self.writable.get(place))
            {
                *byte = (*byte & !mask) | (new & mask);
            }
        }
    }

    fn command(&self) -> u16 {
        u16::from_le_bytes([self.bytes[COMMAND], self.bytes[COMMAND + 1]])
    }

    /// Returns true if the function answers in its BARs.
    pub fn decodes_memory(&self) -> bool {
        self.command() & COMMAND_MEMORY != 0
    }

    /// Returns true if the function may do DMA.
    pub fn is_bus_master(&self) -> bool {
        self.command() & COMMAND_MASTER != 0
    }
}

/// Place of a byte of an access, if that is a number at all.
fn place(offset: u64, index: usize) -> Option<usize> {
    usize::try_from(offset).ok()?.checked_add(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn config() -> Config {
        Config::new(&BarSizes::new(8, 34, 64 << 20))
    }

    fn read32(config: &Config, offset: u64) -> u32 {
        let mut data = [0; 4];
        config.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn bars_tell_their_size() {
        let mut config = config();
        for bar in 0..6 {
            config.write(0x10 + bar * 4, &[0xff; 4]);
        }
        let masks: Vec<u32> = (0..6).map(|bar| read32(&config, 0x10 + bar * 4)).collect();
        assert_eq!(
            masks,
            [
                0xffff_0000,
                0xfff8_0000,
                0xc,
                0xffff_fffc,
                0xfc00_000c,
                0xffff_ffff
            ]
        );
    }

    #[test]
    fn identity_and_msix() {
        let config = config();
        assert_eq!(read32(&config, 0), 0x00f7_1b36);
        assert_eq!(read32(&config, 8) >> 8, 0x08_8000);
        assert_eq!(read32(&config, 0x34), 0x40);
        assert_eq!(read32(&config, 0x40), 0x0002_0011);
        assert_eq!(read32(&config, 0x44), 0x8000);
        assert_eq!(read32(&config, 0x48), 0xc000);
        assert_eq!(read32(&config, 0x1000), u32::MAX);
    }

    #[test]
    fn command_bits() {
        let mut config = config();
        assert!(!config.decodes_memory() && !config.is_bus_master());
        config.write(4, &[0xff, 0xff]);
        assert!(config.decodes_memory() && config.is_bus_master());
        assert_eq!(read32(&config, 4) & 0xffff, 0x0406);
    }

    proptest! {
        #[test]
        fn any_access_is_harmless(offset: u64, near in 0u64..300, data: Vec<u8>) {
            let mut config = config();
            let identity = read32(&config, 0);
            for offset in [offset, near] {
                config.write(offset, &data);
                let mut out = data.clone();
                config.read(offset, &mut out);
            }
            prop_assert_eq!(read32(&config, 0), identity);
        }
    }
}
