// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counter of the shm_ctl mode: areas in a System V segment, over all its attachments in all
//! processes (§4.1.2).

use uldma::Result;

/// Counts the areas of one segment: [`super::all_areas::AllAreas`] here, a number in tests.
pub(super) trait AreaCounter {
    /// Returns the number of areas.
    fn areas(&self) -> u64;

    /// Adds one area.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`]: ERANGE when there are too many.
    fn add(&mut self) -> Result<()>;

    /// Removes one area. Returns true if it was the last one.
    fn remove(&mut self) -> bool;
}

/// A number, for tests.
#[cfg(test)]
#[derive(Debug, Default)]
pub(super) struct ShmCounter(u64);

#[cfg(test)]
impl AreaCounter for ShmCounter {
    fn areas(&self) -> u64 {
        self.0
    }

    fn add(&mut self) -> Result<()> {
        self.0 += 1;
        Ok(())
    }

    fn remove(&mut self) -> bool {
        self.0 -= 1;
        self.0 == 0
    }
}
