// SPDX-License-Identifier: GPL-2.0

//! A model of a masked vector: all ways in which a peer, the handler and a consumer can interleave.

use kernel::prelude::*;

/// Rings of the peer.
const RINGS: u8 = 3;

/// The order in which handler and consumer do what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// That of the driver.
    Right,
    /// The handler says that the vector is masked, and masks it then.
    FlagFirst,
    /// The consumer looks for work once more, and has the peer ring then.
    LookFirst,
    /// The consumer does not unmask the vector.
    Masked,
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Work of which no pass comes.
    Lost,
    /// The vector was enabled more often than disabled.
    Unbalanced,
    /// There were two interrupts without the end of a pass between.
    Unbounded,
}

#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// Rings that the peer has left, and whether it has stored the work of the next one.
    rings: u8,
    stored: bool,
    /// Pieces of work that the consumer has not taken.
    work: u8,
    asleep: bool,
    pending: bool,
    disabled: bool,
    flag: bool,
    /// Next steps; 0 if the handler does not run, or the consumer.
    handler: u8,
    consumer: u8,
    scheduled: bool,
    /// Interrupts since a pass came to its end last.
    interrupts: u8,
}

impl State {
    /// A number that no other state has.
    fn number(self) -> usize {
        let bits = [
            self.stored,
            self.asleep,
            self.pending,
            self.disabled,
            self.flag,
            self.scheduled,
        ];
        let bits = bits
            .into_iter()
            .fold(0, |sum, bit| sum << 1 | usize::from(bit));
        [
            self.rings,
            self.work,
            self.handler,
            self.consumer,
            self.interrupts,
        ]
        .into_iter()
        .fold(bits, |sum, field| sum << 3 | usize::from(field))
    }

    /// The peer stores work, and rings if the consumer says that it sleeps.
    fn peer(mut self) -> Option<Self> {
        if self.rings == 0 {
            return None;
        }
        if !self.stored {
            self.stored = true;
            self.work += 1;
        } else {
            self.stored = false;
            self.rings -= 1;
            self.pending |= self.asleep;
        }
        Some(self)
    }

    /// The handler runs when the vector interrupts, and does its next step.
    fn handler(mut self, order: Order) -> Result<Option<Self>, Fault> {
        let flag_first = order == Order::FlagFirst;
        match self.handler {
            0 if !self.pending || self.disabled => return Ok(None),
            0 => {
                self.pending = false;
                self.interrupts += 1;
                if self.interrupts > 1 {
                    return Err(Fault::Unbounded);
                }
            }
            1 if flag_first => self.flag = true,
            1 => self.disabled = true,
            2 if flag_first => self.disabled = true,
            2 => self.flag = true,
            _ => self.scheduled = true,
        }
        self.handler = (self.handler + 1) % 4;
        Ok(Some(self))
    }

    /// The consumer begins a pass when it is scheduled, and does its next step.
    fn consumer(mut self, order: Order) -> Result<Option<Self>, Fault> {
        let mut next = self.consumer + 1;
        match self.consumer {
            0 if !self.scheduled => return Ok(None),
            0 => {
                self.scheduled = false;
                self.asleep = false;
            }
            1 => self.work = 0,
            // It unmasks the vector, if it is masked.
            2 => {
                self.interrupts = 0;
                if self.flag && order != Order::Masked {
                    self.flag = false;
                } else {
                    next = 4;
                }
            }
            3 if !self.disabled => return Err(Fault::Unbalanced),
            3 => self.disabled = false,
            4 if order == Order::LookFirst => self.scheduled |= self.work > 0,
            4 => self.asleep = true,
            5 if order == Order::LookFirst => self.asleep = true,
            _ => self.scheduled |= self.work > 0,
        }
        self.consumer = next % 6;
        Ok(Some(self))
    }
}

/// Returns what goes wrong in this order, if anything.
fn explore(order: Order) -> Result<Option<Fault>> {
    let first = State {
        rings: RINGS,
        asleep: true,
        ..State::default()
    };
    let mut seen: KVVec<bool> = KVVec::from_elem(false, 1 << 21, GFP_KERNEL)?;
    let mut left = KVec::new();
    left.push(first, GFP_KERNEL)?;
    while let Some(state) = left.pop() {
        let is_seen = seen.get_mut(state.number()).ok_or(EINVAL)?;
        if core::mem::replace(is_seen, true) {
            continue;
        }
        let steps = [
            Ok(state.peer()),
            state.handler(order),
            state.consumer(order),
        ];
        let mut is_end = true;
        for step in steps {
            match step {
                Ok(Some(next)) => {
                    is_end = false;
                    left.push(next, GFP_KERNEL)?;
                }
                Ok(None) => (),
                Err(fault) => return Ok(Some(fault)),
            }
        }
        if is_end && (state.work > 0 || state.pending) {
            return Ok(Some(Fault::Lost));
        }
    }
    Ok(None)
}

#[kunit_tests(uldma_irq_mask)]
mod tests {
    use super::*;

    #[test]
    fn no_ring_is_lost_and_a_pass_follows_each() -> Result {
        assert_eq!(explore(Order::Right)?, None);
        Ok(())
    }

    #[test]
    fn any_other_order_fails() -> Result {
        assert_eq!(explore(Order::FlagFirst)?, Some(Fault::Unbalanced));
        assert_eq!(explore(Order::LookFirst)?, Some(Fault::Lost));
        assert_eq!(explore(Order::Masked)?, Some(Fault::Lost));
        Ok(())
    }
}
