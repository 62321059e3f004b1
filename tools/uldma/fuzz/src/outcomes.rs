// SPDX-License-Identifier: MIT OR Apache-2.0

//! The outcomes of the cases of a run.

use std::collections::BTreeMap;

/// Number of cases, by outcome.
#[derive(Debug, Default)]
pub(crate) struct Outcomes(BTreeMap<String, u64>);

impl Outcomes {
    /// Counts one.
    pub(crate) fn add(&mut self, outcome: impl Into<String>) {
        *self.0.entry(outcome.into()).or_default() += 1;
    }

    /// Returns all outcomes and their numbers, in alphabetical order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&String, &u64)> {
        self.0.iter()
    }
}
