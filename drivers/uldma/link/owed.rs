// SPDX-License-Identifier: GPL-2.0

//! The number of answers that a peer may send: one for each query of this session.
//!
//! Answers can be lost, for example when a ring is full, so a peer may owe some forever. It owes at
//! most as many as can be in flight: queries in its ring, one that it handles, and answers in the
//! own ring.

use kernel::prelude::*;

use super::area::MAX_SLOTS;

/// Maximum number of answers in flight.
const MOST: u32 = 2 * MAX_SLOTS + 1;

/// The answers that a peer owes.
#[derive(Debug, Default)]
pub(super) struct Owed(u32);

impl Owed {
    /// Notes a query to the peer.
    pub(super) fn asked(&mut self) {
        self.0 = MOST.min(self.0 + 1);
    }

    /// Notes an answer of the peer. Returns true if there was a query for it.
    pub(super) fn answered(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

#[kunit_tests(uldma_link_owed)]
mod tests {
    use super::*;

    #[test]
    fn each_question_has_one_answer() {
        let mut owed = Owed::default();
        assert!(!owed.answered());
        owed.asked();
        owed.asked();
        assert!(owed.answered());
        assert!(owed.answered());
        assert!(!owed.answered());
    }

    #[test]
    fn questions_do_not_add_up_for_ever() {
        let mut owed = Owed::default();
        (0..10 * MOST).for_each(|_| owed.asked());
        let mut answers = 0;
        while owed.answered() {
            answers += 1;
        }
        assert_eq!(answers, MOST);
    }
}
