// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's side of the mlock protocol: counters in, action codes out.
//!
//! In the paper (§4.1.2) the counters live in the kernel and the codes are the results of its
//! ioctl. Here the driver pins and needs no counters, so they live in the library. The rules are
//! the paper's.

use std::collections::HashMap;

use super::segment::{Key, Segment, Span};

/// Action of the library after the driver's answer (§4.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing (`MLOCK_NOP`).
    Nop,
    /// Lock the range (`MLOCK_LOCK`).
    Lock,
    /// Unlock the range (`MLOCK_UNLOCK`).
    Unlock,
}

/// An action code and its range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The action.
    pub action: Action,
    /// The range: the whole segment, or after a failed registration, the range of that.
    pub span: Span,
}

/// Counts the areas of this process in each segment.
///
/// There is one counter per process *and* segment, because every process must lock: the first one
/// may be the first to leave.
#[derive(Debug, Default)]
pub(crate) struct Agent {
    areas: HashMap<Key, u64>,
}

impl Agent {
    /// Counts a new area in the segment.
    pub(crate) fn registered(&mut self, segment: &Segment, given: Span) -> Answer {
        if !segment.shared() {
            // Only pins hold private memory (§2.2), and whether memory is private is known only
            // after the query.
            return Answer {
                action: Action::Unlock,
                span: given,
            };
        }
        let areas = self.areas.entry(segment.key()).or_default();
        *areas += 1;
        Answer {
            action: if *areas == 1 {
                Action::Lock
            } else {
                Action::Nop
            },
            span: segment.span(),
        }
    }

    /// Returns the answer to a failed registration of an area in the segment.
    pub(crate) fn failed(&self, segment: &Segment, given: Span) -> Answer {
        let action = match self.areas(segment) {
            // As for private memory always. The smaller range is cheaper to unlock.
            0 => Action::Unlock,
            _ => Action::Nop,
        };
        Answer {
            action,
            span: given,
        }
    }

    /// Counts the end of an area in the segment.
    pub(crate) fn deregistered(&mut self, segment: &Segment) -> Answer {
        let action = match self.areas.get_mut(&segment.key()) {
            Some(areas) if *areas > 1 => {
                *areas -= 1;
                Action::Nop
            }
            Some(_) => {
                self.areas.remove(&segment.key());
                Action::Unlock
            }
            None => Action::Nop,
        };
        Answer {
            action,
            span: segment.span(),
        }
    }

    /// Returns the number of this process's areas in the segment.
    pub(crate) fn areas(&self, segment: &Segment) -> u64 {
        self.areas.get(&segment.key()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::tests::{private, shared};
    use super::*;

    const GIVEN: Span = Span {
        start: 0x5000,
        length: 100,
    };

    fn whole(segment: &Segment, action: Action) -> Answer {
        Answer {
            action,
            span: segment.span(),
        }
    }

    #[test]
    fn the_first_area_locks_the_segment_and_the_last_unlocks_it() {
        let (mut agent, segment) = (Agent::default(), shared(0x4000, 3));
        assert_eq!(
            agent.registered(&segment, GIVEN),
            whole(&segment, Action::Lock)
        );
        assert_eq!(
            agent.registered(&segment, GIVEN),
            whole(&segment, Action::Nop)
        );
        assert_eq!(agent.deregistered(&segment), whole(&segment, Action::Nop));
        assert_eq!(
            agent.deregistered(&segment),
            whole(&segment, Action::Unlock)
        );
        // And again from the start.
        assert_eq!(
            agent.registered(&segment, GIVEN),
            whole(&segment, Action::Lock)
        );
    }

    #[test]
    fn a_first_registration_that_fails_unlocks_only_what_was_given() {
        let (mut agent, segment) = (Agent::default(), shared(0x4000, 3));
        let undo = Answer {
            action: Action::Unlock,
            span: GIVEN,
        };
        assert_eq!(agent.failed(&segment, GIVEN), undo);
        assert_eq!(agent.areas(&segment), 0);
        agent.registered(&segment, GIVEN);
        let nothing = Answer {
            action: Action::Nop,
            span: GIVEN,
        };
        assert_eq!(agent.failed(&segment, GIVEN), nothing);
        assert_eq!(agent.areas(&segment), 1);
    }

    #[test]
    fn segments_count_apart_even_where_one_is_attached_twice() {
        let mut agent = Agent::default();
        let (here, there) = (shared(0x4000, 3), shared(0x9000, 3));
        assert_eq!(agent.registered(&here, GIVEN).action, Action::Lock);
        assert_eq!(agent.registered(&there, GIVEN).action, Action::Lock);
        assert_eq!(agent.deregistered(&here).action, Action::Unlock);
        assert_eq!(agent.areas(&there), 1);
    }

    #[test]
    fn private_memory_is_never_left_locked() {
        let (mut agent, heap) = (Agent::default(), private(0x4000));
        let undo = Answer {
            action: Action::Unlock,
            span: GIVEN,
        };
        assert_eq!(agent.registered(&heap, GIVEN), undo);
        assert_eq!(agent.registered(&heap, GIVEN), undo);
        assert_eq!(agent.failed(&heap, GIVEN), undo);
        assert_eq!(agent.deregistered(&heap).action, Action::Nop);
    }

    /// Two processes, each with its own agent: the one that leaves first takes only its own lock.
    #[test]
    fn processes_count_apart() {
        let segment = shared(0x4000, 3);
        let (mut first, mut second) = (Agent::default(), Agent::default());
        assert_eq!(first.registered(&segment, GIVEN).action, Action::Lock);
        assert_eq!(second.registered(&segment, GIVEN).action, Action::Lock);
        assert_eq!(first.deregistered(&segment).action, Action::Unlock);
        assert_eq!(second.areas(&segment), 1);
        assert_eq!(second.deregistered(&segment).action, Action::Unlock);
    }
}
