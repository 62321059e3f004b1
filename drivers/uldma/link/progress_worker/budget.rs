// SPDX-License-Identifier: GPL-2.0

//! The budget of one run of the work item, after which other work gets the CPU.
//!
//! Each round costs one, whatever caused it, so a peer that rings or sends all the time cannot
//! prolong a run. Doorbells without any work behind them are counted as well: peers need not ring a
//! node that is awake, so a few of these in a row show that doorbells carry no information at
//! present, and the timer replaces them.

use kernel::prelude::*;

/// Rounds of one run.
const ROUNDS: u32 = 64;
/// Number of consecutive doorbells without work after which the timer replaces doorbells.
const VAIN: u32 = 8;

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// Something was done.
    Found,
    /// A doorbell had rung, and there was nothing to do.
    Vain,
    /// There was nothing to do.
    Empty,
}

/// The rest of a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// More rounds.
    Rounds,
    /// Nothing: the work item goes to the end of its queue.
    Nothing,
    /// Nothing, and doorbells carry no information.
    NothingButRings,
}

/// The budget of one run.
#[derive(Debug)]
pub(super) struct Budget {
    rounds: u32,
    vain: u32,
    /// Initial value of `vain`.
    vain_limit: u32,
}

impl Budget {
    /// Creates the budget of a run; `moderated` if doorbells were ignored before.
    pub(super) fn of_run(moderated: bool) -> Self {
        let vain_limit = if moderated { 1 } else { VAIN };
        Self {
            rounds: ROUNDS,
            vain: vain_limit,
            vain_limit,
        }
    }

    /// Creates the budget of a caller that does `rounds` rounds itself.
    pub(super) fn of_caller(rounds: u32) -> Self {
        Self {
            rounds,
            vain: u32::MAX,
            vain_limit: u32::MAX,
        }
    }

    /// Pays for a round. Returns what remains.
    pub(super) fn pay(&mut self, round: Round) -> Left {
        self.rounds = self.rounds.saturating_sub(1);
        match round {
            Round::Found => self.vain = self.vain_limit,
            Round::Vain => self.vain = self.vain.saturating_sub(1),
            Round::Empty => (),
        }
        match (self.vain, self.rounds) {
            (0, _) => Left::NothingButRings,
            (_, 0) => Left::Nothing,
            _ => Left::Rounds,
        }
    }
}

#[kunit_tests(uldma_progress_budget)]
mod tests {
    use super::*;

    /// Returns how many rounds there are until the budget is used up, and why it is.
    fn rounds(mut budget: Budget, kind: impl Fn(u32) -> Round) -> (u32, Left) {
        let mut count = 0;
        loop {
            let left = budget.pay(kind(count));
            count += 1;
            if left != Left::Rounds {
                return (count, left);
            }
        }
    }

    #[test]
    fn a_run_ends_whatever_comes() {
        let found = rounds(Budget::of_run(false), |_| Round::Found);
        assert_eq!(found, (ROUNDS, Left::Nothing));
        let empty = rounds(Budget::of_run(false), |_| Round::Empty);
        assert_eq!(empty, (ROUNDS, Left::Nothing));
        let caller = rounds(Budget::of_caller(4), |_| Round::Vain);
        assert_eq!(caller, (4, Left::Nothing));
    }

    #[test]
    fn rings_for_nothing_end_it_early() {
        let vain = rounds(Budget::of_run(false), |_| Round::Vain);
        assert_eq!(vain, (VAIN, Left::NothingButRings));
        let again = rounds(Budget::of_run(true), |_| Round::Vain);
        assert_eq!(again, (1, Left::NothingButRings));
    }

    #[test]
    fn rings_with_something_behind_are_welcome() {
        let mixed = |count: u32| match count % VAIN {
            0 => Round::Found,
            _ => Round::Vain,
        };
        let honest = rounds(Budget::of_run(false), mixed);
        assert_eq!(honest, (ROUNDS, Left::Nothing));
    }
}
