// SPDX-License-Identifier: GPL-2.0

//! How many answers a peer may give: one for each question that it was asked in this session.
//!
//! An answer can be lost, as where the ring is full, so a peer may owe some for ever. It owes no more
//! than can be on their way: questions in its ring, one that it deals with, and answers in the own ring.

use kernel::prelude::*;

use super::handshake::MAX_SLOTS;

/// Most answers that can be on their way.
const MOST: u32 = 2 * MAX_SLOTS + 1;

/// The answers that a peer owes.
#[derive(Debug, Default)]
pub(super) struct Owed(u32);

impl Owed {
    /// The peer was asked something.
    pub(super) fn asked(&mut self) {
        self.0 = MOST.min(self.0 + 1);
    }

    /// The peer answered; whether it was asked for that.
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
