// SPDX-License-Identifier: GPL-2.0

//! The budget of one run of the work item, after which other work gets the CPU.
//!
//! Each round costs one, whatever caused it, so a peer that rings or sends all the time cannot
//! prolong a run.

use kernel::prelude::*;

/// Rounds of one run.
const ROUNDS: u32 = 64;

/// The budget of one run.
#[derive(Debug)]
pub(super) struct Budget {
    rounds: u32,
    found: bool,
}

impl Budget {
    /// Creates the budget of a run.
    pub(super) fn of_run() -> Self {
        Self::of_caller(ROUNDS)
    }

    /// Creates the budget of a caller that does `rounds` rounds itself.
    pub(super) fn of_caller(rounds: u32) -> Self {
        Self {
            rounds,
            found: false,
        }
    }

    /// Pays for a round, which found work or none. Returns false if no round is left.
    pub(super) fn pay(&mut self, found: bool) -> bool {
        self.found |= found;
        self.rounds = self.rounds.saturating_sub(1);
        self.rounds > 0
    }

    /// Returns true if a round has found work.
    pub(super) fn has_found(&self) -> bool {
        self.found
    }
}

#[kunit_tests(uldma_progress_budget)]
mod tests {
    use super::*;

    /// Returns how many rounds there are until the budget is used up.
    fn rounds(budget: &mut Budget, found: impl Fn(u32) -> bool) -> u32 {
        let mut count = 0;
        while budget.pay(found(count)) {
            count += 1;
        }
        count + 1
    }

    #[test]
    fn a_run_ends_whatever_comes() {
        for found in [true, false] {
            assert_eq!(rounds(&mut Budget::of_run(), |_| found), ROUNDS);
            assert_eq!(rounds(&mut Budget::of_caller(4), |_| found), 4);
        }
    }

    #[test]
    fn one_round_with_work_is_enough() {
        let (mut empty, mut one) = (Budget::of_run(), Budget::of_run());
        rounds(&mut empty, |_| false);
        rounds(&mut one, |count| count == 3);
        assert!(!empty.has_found() && one.has_found());
    }
}
