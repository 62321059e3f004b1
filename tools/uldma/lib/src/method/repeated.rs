// SPDX-License-Identifier: MIT OR Apache-2.0

//! Repeated passing of arguments, by which the device detects interleaved accesses of others
//! (§3.3).
//!
//! Each load is checked at once, and any value but the expected one restarts the sequence from its
//! first access. The paper retries without limit; here the number of attempts is limited.

use crate::method::refusal::Refusal;
use crate::mmio::Register;
use crate::sys::uapi;

/// Number of accesses of the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Accesses {
    /// Load from the source, store to the destination, load from the source (fig. 5).
    Three,
    /// Store, load, store, load (fig. 6).
    Four,
    /// Four accesses and a load from the destination (fig. 7).
    Five,
}

/// An attempt that did not start the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedAttempt {
    /// Another process interfered, and the answer is FAIL: restart.
    Fail,
    /// The answer is not the expected code: restart.
    UnexpectedCode,
    /// The device refuses, with this negative answer.
    Refused(i64),
}

/// Attempts that were disturbed by others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Disturbances {
    /// Number of attempts.
    pub attempts: u64,
    /// Number of those, of methods that pass arguments repeatedly, that the device answered by
    /// FAIL.
    pub fails: u64,
}

/// Starts a transfer and returns its ticket; counts the failed attempts.
///
/// # Errors
///
/// The device's refusal, or [`Refusal::Contended`] when more than `retries` attempts were
/// disturbed.
#[inline]
pub(crate) fn initiate<R: Register>(
    accesses: Accesses,
    destination: R,
    source: R,
    size_word: u64,
    retries: u32,
    disturbed: &mut Disturbances,
) -> Result<u64, Refusal> {
    for _ in 0..=retries {
        let attempt = match accesses {
            Accesses::Three => three(destination, source, size_word),
            Accesses::Four => four(destination, source, size_word),
            Accesses::Five => five(destination, source, size_word),
        };
        match attempt {
            Ok(ticket) => return Ok(ticket),
            Err(FailedAttempt::Refused(answer)) => return Err(Refusal::from_answer(answer)),
            Err(missed) => {
                disturbed.attempts += 1;
                disturbed.fails += u64::from(missed == FailedAttempt::Fail);
            }
        }
    }
    Err(Refusal::Contended)
}

/// LD source, ST destination, LD source.
#[inline]
pub(crate) fn three<R: Register>(
    destination: R,
    source: R,
    size_word: u64,
) -> Result<u64, FailedAttempt> {
    source.begin();
    check(source.load(), uapi::ULDMA_REPEATED_OK1)?;
    destination.store(size_word);
    destination.barrier();
    check(source.load(), uapi::ULDMA_REPEATED_OK3)
}

/// ST destination, LD source, ST destination, LD source.
#[inline]
pub(crate) fn four<R: Register>(
    destination: R,
    source: R,
    size_word: u64,
) -> Result<u64, FailedAttempt> {
    destination.begin();
    destination.store(size_word);
    destination.barrier();
    check(source.load(), uapi::ULDMA_REPEATED_OK1)?;
    destination.store(size_word);
    destination.barrier();
    check(source.load(), uapi::ULDMA_REPEATED_OK3)
}

/// ST destination, LD source, ST destination, LD source, LD destination, with the barriers of
/// fig. 10: before the first access and between each store and the load after it.
#[inline]
pub(crate) fn five<R: Register>(
    destination: R,
    source: R,
    size_word: u64,
) -> Result<u64, FailedAttempt> {
    destination.begin();
    destination.store(size_word);
    destination.barrier();
    check(source.load(), uapi::ULDMA_REPEATED_OK1)?;
    destination.store(size_word);
    destination.barrier();
    check(source.load(), uapi::ULDMA_REPEATED_OK2)?;
    check(destination.load(), uapi::ULDMA_REPEATED_OK3)
}

/// Returns the bits above the code, if the code is the expected one.
#[inline]
fn check(answer: i64, due: u32) -> Result<u64, FailedAttempt> {
    let word = answer as u64;
    let code = word & u64::from(uapi::ULDMA_REPEATED_CODE_MASK);
    if answer < 0 {
        Err(FailedAttempt::Refused(answer))
    } else if code == u64::from(due) {
        Ok(word >> uapi::ULDMA_REPEATED_TICKET_SHIFT)
    } else if code == u64::from(uapi::ULDMA_REPEATED_FAIL) {
        Err(FailedAttempt::Fail)
    } else {
        Err(FailedAttempt::UnexpectedCode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio::fake::{Access, Bus};

    /// The paper's machine of five states (§4.1, fig. 8), cell by cell: what it answers to a load.
    #[derive(Default)]
    struct Machine {
        state: u8,
        destination: u64,
        source: u64,
        started: u64,
    }

    impl Machine {
        fn step(&mut self, access: Access) -> i64 {
            let (next, answer) = match (self.state, access) {
                (0, Access::Store(address, _)) => {
                    self.destination = address;
                    (1, 0)
                }
                (1, Access::Load(address)) => {
                    self.source = address;
                    (2, 1)
                }
                (2, Access::Store(address, _)) if address == self.destination => (3, 0),
                (3, Access::Load(address)) if address == self.source => (4, 2),
                (4, Access::Load(address)) if address == self.destination => {
                    self.started += 1;
                    (0, ((self.started << 12) | 3) as i64)
                }
                _ => (0, 0),
            };
            self.state = next;
            answer
        }
    }

    /// Starts one, and says what disturbed it.
    fn run(accesses: Accesses, bus: &Bus<'_>, retries: u32) -> (Result<u64, Refusal>, [u64; 2]) {
        let mut disturbed = Disturbances::default();
        let (to, from) = (bus.at(0xd), bus.at(0x5));
        let begun = initiate(accesses, to, from, 0x1234, retries, &mut disturbed);
        (begun, [disturbed.attempts, disturbed.fails])
    }

    const STORE: Access = Access::Store(0xd, 0x1234);
    const SOURCE: Access = Access::Load(0x5);
    const DESTINATION: Access = Access::Load(0xd);

    #[test]
    fn five_accesses_start_a_transfer() {
        let mut machine = Machine::default();
        let bus = Bus::new(move |access| machine.step(access));
        for ticket in 1..=3 {
            let begun = run(Accesses::Five, &bus, 0);
            assert_eq!(begun, (Ok(ticket), [0, 0]));
        }
        assert_eq!(
            bus.accesses()[..5],
            [STORE, SOURCE, STORE, SOURCE, DESTINATION]
        );
        assert_eq!(
            bus.seen.borrow()[..8],
            [
                Access::Begin,
                STORE,
                Access::Barrier,
                SOURCE,
                STORE,
                Access::Barrier,
                SOURCE,
                DESTINATION
            ]
        );
    }

    /// Steps 8 to 12 of the paper's verification run (§4.4): one switch costs two attempts.
    #[test]
    fn whoever_is_interrupted_begins_anew() {
        let mut machine = Machine::default();
        let mut count = 0;
        let bus = Bus::new(|access| {
            count += 1;
            if count == 5 {
                // Another process after the fourth access: its first store is consumed, what it
                // does next succeeds, and it is preempted after one more store.
                for access in [
                    Access::Store(0xc, 1),
                    Access::Load(0xd),
                    Access::Store(0xc, 1),
                ] {
                    machine.step(access);
                }
            }
            machine.step(access)
        });
        let begun = run(Accesses::Five, &bus, 9);
        // OK1 where OK3 is due, and FAIL where OK1 is.
        assert_eq!(begun, (Ok(1), [2, 1]));
        let seen = bus.accesses();
        assert_eq!(seen[5..7], [STORE, SOURCE]);
        assert_eq!(seen[7..], [STORE, SOURCE, STORE, SOURCE, DESTINATION]);
    }

    #[test]
    fn attempts_are_bounded_and_refusals_are_final() {
        let bus = Bus::new(|_| 0);
        let refused = run(Accesses::Five, &bus, 6);
        assert_eq!(refused, (Err(Refusal::Contended), [7, 7]));
        assert_eq!(bus.accesses().len(), 7 * 2);

        let bus = Bus::new(|access| if access == SOURCE { -6 } else { 0 });
        let refused = run(Accesses::Five, &bus, 6);
        assert_eq!(refused, (Err(Refusal::NoRight), [0, 0]));
        assert_eq!(bus.accesses().len(), 2);
    }

    #[test]
    fn three_and_four_accesses_come_in_their_order() {
        let mut loads = 0;
        let bus = Bus::new(|access| {
            loads += i64::from(matches!(access, Access::Load(_)));
            if loads == 1 {
                1
            } else {
                (9 << 12) | 3
            }
        });
        let begun = run(Accesses::Three, &bus, 0);
        assert_eq!(begun, (Ok(9), [0, 0]));
        assert_eq!(bus.accesses(), [SOURCE, STORE, SOURCE]);
        drop(bus);

        let mut loads = 0;
        let bus = Bus::new(|access| {
            loads += i64::from(matches!(access, Access::Load(_)));
            if loads == 1 {
                1
            } else {
                (9 << 12) | 3
            }
        });
        let begun = run(Accesses::Four, &bus, 0);
        assert_eq!(begun, (Ok(9), [0, 0]));
        assert_eq!(bus.accesses(), [STORE, SOURCE, STORE, SOURCE]);
    }

    #[test]
    fn only_the_code_that_is_due_counts() {
        assert_eq!(check(0x7003, 3), Ok(7));
        assert_eq!(check(0x7001, 3), Err(FailedAttempt::UnexpectedCode));
        assert_eq!(check(0, 1), Err(FailedAttempt::Fail));
        assert_eq!(check(0x1001, 1), Ok(1));
        assert_eq!(check(-8, 1), Err(FailedAttempt::Refused(-8)));
    }
}
