// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device's counters of a context.

use std::os::fd::AsFd;

use super::Context;
use crate::error::{Error, Result};
use crate::sys;

impl Context {
    /// The device's counters of this context: loads, stores, initiations.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENXIO when there is no context, ENODEV when the device has been removed.
    pub fn stats(&self) -> Result<ContextStats> {
        let raw = sys::context_stats(self.device.as_fd(), Default::default())
            .map_err(|errno| Error::system("read the context's counters", errno))?;
        Ok(ContextStats {
            shadow_stores: raw.out_shadow_stores,
            shadow_loads: raw.out_shadow_loads,
            page_stores: raw.out_page_stores,
            page_loads: raw.out_page_loads,
            initiations: raw.out_initiations,
            refused: raw.out_refused,
            completed: raw.out_completed,
            bytes: raw.out_bytes,
            bad_keys: raw.out_bad_keys,
        })
    }
}

/// The device's counters of one context, since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextStats {
    /// Stores to shadow pages.
    pub shadow_stores: u64,
    /// Loads from shadow pages.
    pub shadow_loads: u64,
    /// Stores to the context page.
    pub page_stores: u64,
    /// Loads from the context page.
    pub page_loads: u64,
    /// Transfers started.
    pub initiations: u64,
    /// Initiations refused.
    pub refused: u64,
    /// Transfers ended.
    pub completed: u64,
    /// Bytes moved.
    pub bytes: u64,
    /// Stores of this open file that named a wrong key.
    pub bad_keys: u64,
}

impl ContextStats {
    /// Returns the number of loads from the device by the context's owner.
    pub fn loads(&self) -> u64 {
        self.shadow_loads + self.page_loads
    }

    /// Returns the number of stores to the device by the context's owner.
    pub fn stores(&self) -> u64 {
        self.shadow_stores + self.page_stores
    }

    /// Returns the difference to `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            shadow_stores: self.shadow_stores.wrapping_sub(before.shadow_stores),
            shadow_loads: self.shadow_loads.wrapping_sub(before.shadow_loads),
            page_stores: self.page_stores.wrapping_sub(before.page_stores),
            page_loads: self.page_loads.wrapping_sub(before.page_loads),
            initiations: self.initiations.wrapping_sub(before.initiations),
            refused: self.refused.wrapping_sub(before.refused),
            completed: self.completed.wrapping_sub(before.completed),
            bytes: self.bytes.wrapping_sub(before.bytes),
            bad_keys: self.bad_keys.wrapping_sub(before.bad_keys),
        }
    }
}
