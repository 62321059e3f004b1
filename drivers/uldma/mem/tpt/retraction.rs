// SPDX-License-Identifier: GPL-2.0

//! Page entries that are retracted for a while, and then name the same pages, or others.
//!
//! The entries are restored by the call that retracted them, and by nothing else: until then other
//! calls may change them, but the device sees none of them.

use core::ops::Range;

use kernel::prelude::*;

use crate::hw::Hw;

use super::{
    Proof,
    Tables,
    Tpt, //
};

/// Passes runs of entries to its argument, the same each time.
pub(crate) type Runs<'a> = dyn Fn(&mut dyn FnMut(Range<u32>)) + 'a;

impl Tpt {
    /// Calls `wait` while the entries of `runs` are retracted, and if it succeeds, `change` with
    /// what it returned. The entries are restored in any case.
    ///
    /// # Errors
    ///
    /// Those of `wait` and `change`; `ENODEV` without tables.
    fn with_retracted<T>(
        &self,
        runs: &Runs<'_>,
        wait: impl FnOnce() -> Result<T>,
        change: impl FnOnce(&mut Tables, T) -> Result,
    ) -> Result {
        self.with(|tables| {
            runs(&mut |run| tables.pages.retract_all(run.start, run.end - run.start));
            Ok(())
        })?;
        // Without the lock, since this waits for the device.
        let waited = wait();
        self.with(|tables| {
            let result = waited.and_then(|waited| change(tables, waited));
            runs(&mut |run| tables.pages.restore_all(run.start, run.end - run.start));
            result
        })
    }

    /// Ends all transfers that use `region`, or the entries of `runs` without it. Later ones may
    /// use these entries.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; `ENODEV` without tables.
    pub(crate) fn end_transfers(&self, hw: Hw<'_>, region: u32, runs: &Runs<'_>) -> Result {
        self.with_retracted(runs, || self.invalidate_region(hw, region), |_, ()| Ok(()))
    }

    /// Calls `change` while the device cannot use the entries of `runs`.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer; `ENODEV` without tables; those of `change`.
    pub(super) fn change_entries(
        &self,
        hw: Hw<'_>,
        runs: &Runs<'_>,
        change: impl FnOnce(&mut Tables, Proof) -> Result,
    ) -> Result {
        self.with_retracted(runs, || Proof::of_retracted_pages(self, hw), change)
    }
}
