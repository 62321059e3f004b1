// SPDX-License-Identifier: GPL-2.0

//! Whether the device may use an entry of a table.
//!
//! The driver retracts an entry before it frees what the entry names, and waits until the device
//! does not use it any more. Meanwhile other calls may change other fields of the entry. So
//! whether the device sees an entry belongs to the table, and no change of a field publishes what
//! was retracted: only what ends the retraction does.

use kernel::prelude::*;

/// What the device finds at an entry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Publication {
    /// Nothing: there is no entry.
    #[default]
    Empty,
    /// The entry.
    Valid,
    /// Nothing: the entry was retracted, by so many that have not restored it.
    Retracted(u8),
}

impl Publication {
    /// Publishes a new entry.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is an entry.
    pub(crate) fn enter(&mut self) -> Result {
        if *self != Self::Empty {
            return Err(EBUSY);
        }
        *self = Self::Valid;
        Ok(())
    }

    /// Hides the entry, if there is one.
    pub(crate) fn retract(&mut self) {
        *self = match *self {
            Self::Empty => Self::Empty,
            Self::Valid => Self::Retracted(1),
            // Beyond the maximum it stays retracted.
            Self::Retracted(times) => Self::Retracted(times.saturating_add(1)),
        };
    }

    /// Ends one retraction. Returns true if the entry is to be published, as that was the last.
    pub(crate) fn restore(&mut self) -> bool {
        match *self {
            Self::Retracted(1) => *self = Self::Valid,
            Self::Retracted(times) if times < u8::MAX => *self = Self::Retracted(times - 1),
            _ => return false,
        }
        *self == Self::Valid
    }
}

#[kunit_tests(uldma_publication)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_entered_once() {
        let mut state = Publication::default();
        assert!(!state.restore());
        state.retract();
        assert_eq!(state, Publication::Empty);
        assert_eq!(state.enter(), Ok(()));
        assert_eq!(state.enter(), Err(EBUSY));
        assert!(!state.restore());
        assert_eq!(state, Publication::Valid);
    }

    #[test]
    fn the_last_of_those_that_retracted_it_restores_an_entry() {
        let mut state = Publication::Valid;
        state.retract();
        state.retract();
        assert_eq!(state.enter(), Err(EBUSY));
        assert!(!state.restore());
        assert!(state.restore());
        assert_eq!(state, Publication::Valid);
    }

    #[test]
    fn an_entry_that_was_retracted_too_often_stays_retracted() {
        let mut state = Publication::Valid;
        for _ in 0..300 {
            state.retract();
        }
        for _ in 0..300 {
            assert!(!state.restore());
        }
    }
}
