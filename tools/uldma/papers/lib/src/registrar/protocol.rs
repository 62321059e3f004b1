// SPDX-License-Identifier: MIT OR Apache-2.0

//! The library's side of the modes: the order in which to lock, register and act.

use uldma::Result;

use super::agent::{Action, Agent, Answer};
use super::segment::{Segment, Span};
use super::shm_counter::AreaCounter;

/// Locks memory: by system calls here, in a model in tests.
pub(super) trait LockCalls {
    /// Locks the memory.
    fn lock(&self, span: Span) -> Result<()>;

    /// Unlocks memory, which need not be locked.
    fn unlock(&self, span: Span) -> Result<()>;
}

/// Registers by user-level mlock (§4.1.2, Fig. 6): locks the range *first*, then calls the driver,
/// then acts on its answer. In any other order the pages may be swapped out between the two.
///
/// The area that `driver` returns ends when it is dropped.
pub(super) fn register<A>(
    calls: &impl LockCalls,
    agent: &mut Agent,
    segment: &Segment,
    given: Span,
    driver: impl FnOnce() -> Result<A>,
) -> Result<(A, Answer)> {
    let area = match calls.lock(given).and_then(|()| driver()) {
        Ok(area) => area,
        Err(error) => {
            // Also after a mlock() that failed: it may have locked a part.
            let _ = act(calls, agent.failed(segment, given));
            return Err(error);
        }
    };
    let answer = agent.registered(segment, given);
    match act(calls, answer) {
        Ok(()) => Ok((area, answer)),
        Err(error) => {
            drop(area);
            let _ = act(calls, agent.deregistered(segment));
            Err(error)
        }
    }
}

/// Ends an area: calls the driver first, then acts on its answer. The area has ended even if the
/// driver fails.
pub(super) fn deregister(
    calls: &impl LockCalls,
    agent: &mut Agent,
    segment: &Segment,
    driver: impl FnOnce() -> Result<()>,
) -> Result<Answer> {
    let ended = driver();
    let answer = agent.deregistered(segment);
    let acted = act(calls, answer);
    ended.and(acted).map(|()| answer)
}

fn act(calls: &impl LockCalls, answer: Answer) -> Result<()> {
    match answer.action {
        Action::Nop => Ok(()),
        Action::Lock => calls.lock(answer.span),
        Action::Unlock => calls.unlock(answer.span),
    }
}

/// Registers by a counter for the segment as a whole (§4.1.2, shm_ctl): the first area of any
/// process locks it, before the driver receives the addresses.
pub(super) fn shm_register<A>(
    calls: &impl LockCalls,
    counter: &mut impl AreaCounter,
    segment: &Segment,
    driver: impl FnOnce() -> Result<A>,
) -> Result<A> {
    let first = counter.areas() == 0;
    if first {
        calls.lock(segment.span())?;
    }
    let area = driver().and_then(|area| counter.add().map(|()| area));
    if area.is_err() && first {
        let _ = calls.unlock(segment.span());
    }
    area
}

/// Ends an area; the last one of all processes unlocks the segment.
pub(super) fn shm_deregister(
    calls: &impl LockCalls,
    counter: &mut impl AreaCounter,
    segment: &Segment,
    driver: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let ended = driver();
    let unlocked = if counter.remove() {
        calls.unlock(segment.span())
    } else {
        Ok(())
    };
    ended.and(unlocked)
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::collections::BTreeSet;

    use nix::errno::Errno;

    use super::super::segment::tests::{private, shared};
    use super::super::shm_counter::ShmCounter;
    use super::*;
    use crate::failure::system;

    const PAGE: u64 = 4096;
    const SEGMENT: u64 = 0x4000;

    /// A call that the protocol made.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Call {
        Lock(Span),
        Unlock(Span),
        Register(Span),
        Unregister,
    }
    use Call::{Lock, Register, Unlock, Unregister};

    /// Sixteen pages of memory, a driver that uses physical addresses only (§4.1.1: an *unlocked*
    /// area), and a swapper that moves every page that is not locked whenever it runs.
    #[derive(Default)]
    struct Machine {
        calls: RefCell<Vec<Call>>,
        locked: RefCell<BTreeSet<u64>>,
        /// How often the swapper has moved each page, which gives its present frame.
        frames: RefCell<[u64; 16]>,
        fails: Cell<Option<Call>>,
    }

    /// The physical addresses that the device got.
    struct Area<'a> {
        machine: &'a Machine,
        pages: Vec<(u64, u64)>,
    }

    impl Drop for Area<'_> {
        fn drop(&mut self) {
            self.machine.calls.borrow_mut().push(Unregister);
        }
    }

    fn pages(span: Span) -> impl Iterator<Item = u64> {
        span.start / PAGE..(span.start + span.length).div_ceil(PAGE)
    }

    impl Machine {
        fn call(&self, call: Call) -> Result<()> {
            self.calls.borrow_mut().push(call);
            match self.fails.take() {
                Some(fails) if fails == call => Err(system("fail", Errno::ENOMEM)),
                fails => {
                    self.fails.set(fails);
                    Ok(())
                }
            }
        }

        /// Between any two system calls the process may lose the processor to the swapper.
        fn swap(&self) {
            let locked = self.locked.borrow();
            for (page, frame) in self.frames.borrow_mut().iter_mut().enumerate() {
                if !locked.contains(&(page as u64)) {
                    *frame += 1;
                }
            }
        }

        /// The driver's call.
        fn register(&self, span: Span) -> Result<Area<'_>> {
            self.call(Register(span))?;
            let frames = *self.frames.borrow();
            let pages = pages(span).map(|page| (page, frames[page as usize]));
            let area = Area {
                machine: self,
                pages: pages.collect(),
            };
            self.swap();
            Ok(area)
        }

        /// Registers in the right order, an area of one page.
        fn by_mlock(&self, agent: &mut Agent, segment: &Segment, page: u64) -> Result<Area<'_>> {
            let span = given(page);
            let driver = || self.register(span);
            register(self, agent, segment, span, driver).map(|(area, _)| area)
        }

        fn by_shm_ctl(
            &self,
            counter: &mut ShmCounter,
            segment: &Segment,
            page: u64,
        ) -> Result<Area<'_>> {
            shm_register(self, counter, segment, || self.register(given(page)))
        }

        fn locked(&self) -> usize {
            self.locked.borrow().len()
        }
    }

    impl Area<'_> {
        fn reaches_the_memory(&self) -> bool {
            let frames = self.machine.frames.borrow();
            self.pages
                .iter()
                .all(|&(page, frame)| frames[page as usize] == frame)
        }

        fn end(self) -> Result<()> {
            self.machine.swap();
            Ok(())
        }
    }

    impl LockCalls for Machine {
        fn lock(&self, span: Span) -> Result<()> {
            self.call(Lock(span))?;
            self.locked.borrow_mut().extend(pages(span));
            self.swap();
            Ok(())
        }

        fn unlock(&self, span: Span) -> Result<()> {
            self.call(Unlock(span))?;
            self.locked
                .borrow_mut()
                .retain(|page| !pages(span).any(|other| other == *page));
            self.swap();
            Ok(())
        }
    }

    fn given(page: u64) -> Span {
        Span {
            start: SEGMENT + page * PAGE + 8,
            length: 16,
        }
    }

    #[test]
    fn the_swapper_finds_no_gap() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let area = machine
            .by_mlock(&mut Agent::default(), &segment, 1)
            .unwrap();
        assert!(area.reaches_the_memory());
        let order = [Lock(given(1)), Register(given(1)), Lock(segment.span())];
        assert_eq!(machine.calls.borrow()[..], order);
    }

    /// The order that the paper warns of: call the driver, then lock what it says.
    #[test]
    fn in_the_wrong_order_it_does() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        let area = machine.register(given(1)).unwrap();
        act(&machine, agent.registered(&segment, given(1))).unwrap();
        assert_eq!(machine.locked(), 3);
        assert!(!area.reaches_the_memory());
    }

    #[test]
    fn all_areas_stay_reachable_until_the_last_one_goes() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        let first = machine.by_mlock(&mut agent, &segment, 0).unwrap();
        let second = machine.by_mlock(&mut agent, &segment, 2).unwrap();
        assert_eq!(machine.locked(), 3);
        let answer = deregister(&machine, &mut agent, &segment, || first.end()).unwrap();
        assert_eq!(answer.action, Action::Nop);
        assert!(second.reaches_the_memory());

        machine.calls.borrow_mut().clear();
        let answer = deregister(&machine, &mut agent, &segment, || second.end()).unwrap();
        assert_eq!(answer.action, Action::Unlock);
        assert_eq!(machine.locked(), 0);
        // Nothing comes before the driver.
        let order = [Unregister, Unlock(segment.span())];
        assert_eq!(machine.calls.borrow()[..], order);
    }

    #[test]
    fn a_first_registration_that_fails_leaves_nothing_locked() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        machine.fails.set(Some(Register(given(1))));
        assert!(machine.by_mlock(&mut agent, &segment, 1).is_err());
        let order = [Lock(given(1)), Register(given(1)), Unlock(given(1))];
        assert_eq!(machine.calls.borrow()[..], order);
        assert_eq!(agent.areas(&segment), 0);
    }

    #[test]
    fn a_later_one_that_fails_leaves_the_others_locked() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        let first = machine.by_mlock(&mut agent, &segment, 1).unwrap();
        for fails in [Register(given(1)), Lock(given(1))] {
            machine.fails.set(Some(fails));
            assert!(machine.by_mlock(&mut agent, &segment, 1).is_err());
            assert_eq!(machine.locked(), 3);
        }
        assert!(first.reaches_the_memory());
    }

    #[test]
    fn a_segment_that_cannot_be_locked_whole_is_not_registered_in() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        machine.fails.set(Some(Lock(segment.span())));
        assert!(machine.by_mlock(&mut agent, &segment, 1).is_err());
        let order = [
            Lock(given(1)),
            Register(given(1)),
            Lock(segment.span()),
            Unregister,
            Unlock(segment.span()),
        ];
        assert_eq!(machine.calls.borrow()[..], order);
        assert_eq!((machine.locked(), agent.areas(&segment)), (0, 0));
    }

    #[test]
    fn a_driver_that_fails_to_end_an_area_does_not_keep_the_lock() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut agent = Agent::default();
        let _area = machine.by_mlock(&mut agent, &segment, 1).unwrap();
        let fail = || Err(system("fail", Errno::ETIMEDOUT));
        assert!(deregister(&machine, &mut agent, &segment, fail).is_err());
        assert_eq!((machine.locked(), agent.areas(&segment)), (0, 0));
    }

    #[test]
    fn private_memory_goes_the_same_way_and_is_unlocked_at_once() {
        let (machine, heap) = (Machine::default(), private(SEGMENT));
        let mut agent = Agent::default();
        let area = machine.by_mlock(&mut agent, &heap, 0).unwrap();
        deregister(&machine, &mut agent, &heap, || area.end()).unwrap();
        let order = [
            Lock(given(0)),
            Register(given(0)),
            Unlock(given(0)),
            Unregister,
        ];
        assert_eq!(machine.calls.borrow()[..], order);
    }

    #[test]
    fn the_counter_of_a_segment_locks_first_and_unlocks_last() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut counter = ShmCounter::default();
        let first = machine.by_shm_ctl(&mut counter, &segment, 0).unwrap();
        let second = machine.by_shm_ctl(&mut counter, &segment, 1).unwrap();
        shm_deregister(&machine, &mut counter, &segment, || first.end()).unwrap();
        assert!(second.reaches_the_memory());
        shm_deregister(&machine, &mut counter, &segment, || second.end()).unwrap();
        let order = [
            Lock(segment.span()),
            Register(given(0)),
            Register(given(1)),
            Unregister,
            Unregister,
            Unlock(segment.span()),
        ];
        assert_eq!(machine.calls.borrow()[..], order);
    }

    #[test]
    fn a_segment_of_others_stays_locked() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut counter = ShmCounter::default();
        // An area of another process.
        counter.add().unwrap();
        let area = machine.by_shm_ctl(&mut counter, &segment, 0).unwrap();
        shm_deregister(&machine, &mut counter, &segment, || area.end()).unwrap();
        assert_eq!(machine.calls.borrow()[..], [Register(given(0)), Unregister]);
    }

    #[test]
    fn the_counter_of_a_segment_knows_of_failures() {
        let (machine, segment) = (Machine::default(), shared(SEGMENT, 3));
        let mut counter = ShmCounter::default();
        machine.fails.set(Some(Register(given(0))));
        assert!(machine.by_shm_ctl(&mut counter, &segment, 0).is_err());
        assert_eq!((machine.locked(), counter.areas()), (0, 0));
    }
}
