// SPDX-License-Identifier: GPL-2.0

//! Whether the adapter answers accesses to its registers.
//!
//! It does not once it has left the bus, and neither while an administrator has disabled its memory
//! space. Stores are lost then, and loads return all ones or zero, whichever the bus has for them. But
//! it does DMA all the same, so that neither value is proof of anything before a register has another
//! one.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

use super::Adapter;
use crate::hw::{
    layout::{
        reg,
        Word, //
    },
    registers::{
        ControlBar,
        Registers, //
    }, //
};

/// Returns true if a load returns this where no device answers. Registers may have the value, too.
pub(super) fn is_doubtful<T: Word>(value: T) -> bool {
    let raw = value.to_raw();
    raw == 0 || raw == u64::MAX || raw == u32::MAX.into()
}

impl Adapter {
    /// Returns the registers of a device that answers.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if it does not, which makes it sick.
    pub(super) fn answering<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a ControlBar<'a>> {
        let bar = self.registers.access(dev)?;
        // No version has this value.
        if is_doubtful(bar.read(reg::VERSION)) {
            Err(self.health.silent(dev))
        } else {
            Ok(bar)
        }
    }

    /// Returns what `read` reads from a register whose value a load does not change.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; those of `read`.
    pub(super) fn answer<T: Word>(
        &self,
        dev: &Device<Bound>,
        read: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let value = read()?;
        if !is_doubtful(value) {
            return Ok(value);
        }
        self.answering(dev)?;
        // The device may not have answered before.
        read()
    }
}

#[kunit_tests(uldma_adapter_answer)]
mod tests {
    use super::*;
    use crate::hw::layout;

    #[test]
    fn what_a_bus_may_return_proves_nothing() {
        assert!(is_doubtful(0u32));
        assert!(is_doubtful(u32::MAX));
        assert!(is_doubtful(0u64));
        assert!(is_doubtful(u64::MAX));
        assert!(!is_doubtful(1u32));
        assert!(!is_doubtful(layout::VERSION));
        assert!(!is_doubtful(u64::MAX - 1));
    }
}
