// SPDX-License-Identifier: MIT OR Apache-2.0

//! Polls memory for a while before going to sleep.

use std::time::Duration;

use self::adaptive::Adaptive;
use crate::wait::ticks;

mod adaptive;
#[cfg(test)]
mod simulation;

/// Time for which calls poll memory before they sleep. Polling makes no system call, not even for
/// the time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spin {
    /// They sleep at once.
    Never,
    /// About as long as sleeping and waking takes: on this machine, as the library measures it, and for
    /// a [`Channel`](crate::Channel) over its link, as the driver does.
    ///
    /// The processor's time is at most twice that of the best choice, and where a peer answers
    /// faster than a wake-up, both sides find its messages by polling.
    #[default]
    Adaptive,
    /// This long.
    For(Duration),
}

impl Spin {
    /// For measurements: so long that no wake-up is part of the result.
    pub const MEASURE: Self = Self::For(Duration::from_millis(50));
}

/// One waiter, and its polling time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poller {
    policy: Policy,
    /// Ticks for which it has polled without success.
    polled: u64,
    /// Attempts between two readings of the time, see [`Poller::calibrate`].
    burst: u32,
}

#[derive(Clone, Copy, Debug)]
enum Policy {
    /// Ticks.
    Fixed(u64),
    Adaptive(Adaptive),
}

impl Poller {
    /// The fraction of the time in which attempts follow each other without a pause, and without a
    /// reading of the time. A pause leaves the processor to its other thread, and an emulated one
    /// to other programs, but may take longer than a message.
    const WITHOUT_PAUSE: u64 = 16;
    /// First and largest number of attempts in a row.
    const FIRST_BURST: u32 = 64;
    const LONGEST_BURST: u32 = 1 << 16;

    /// Creates a poller, where sleeping and waking takes `wakeup` ticks.
    pub(crate) fn new(spin: Spin, wakeup: u64) -> Self {
        let policy = match spin {
            Spin::Never => Policy::Fixed(0),
            Spin::Adaptive => Policy::Adaptive(Adaptive::new(wakeup)),
            Spin::For(time) => Policy::Fixed(ticks::of(time)),
        };
        Self {
            policy,
            polled: 0,
            burst: Self::FIRST_BURST,
        }
    }

    /// Returns the ticks for which it polls now.
    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        match &self.policy {
            Policy::Fixed(limit) => *limit,
            Policy::Adaptive(policy) => policy.limit(),
        }
    }

    /// Returns the number of attempts to make at once, before [`Poller::until`]; their success is
    /// noted by [`Poller::found_at_once`].
    #[inline(always)]
    pub(crate) fn burst(&self) -> u32 {
        match self.policy {
            Policy::Fixed(0) => 0,
            _ => self.burst,
        }
    }

    /// Adjusts the burst: the last one took `ticks`, where one may take `limit`. A message that
    /// arrives while the time is read waits for that, so the time should be read rarely. A burst
    /// that took long because another task had the processor is corrected by the next ones.
    #[inline]
    fn calibrate(&mut self, ticks: u64, limit: u64) {
        let (longest, burst) = (u64::from(Self::LONGEST_BURST), u64::from(self.burst));
        let fitting = burst.saturating_mul(limit) / ticks.max(1);
        let next = fitting.clamp(1, (2 * burst).min(longest));
        self.burst = u32::try_from(next).unwrap_or(Self::LONGEST_BURST);
    }

    /// Notes that an attempt succeeded before [`Poller::until`] was called.
    #[inline(always)]
    pub(crate) fn found_at_once(&mut self) {
        if let Policy::Adaptive(policy) = &mut self.policy {
            policy.found_at_once();
        }
    }

    /// Makes attempts until one succeeds; none when none did in time. `attempts` makes as many in a
    /// row as it is asked for, since some polls are faster that way. [`Poller::slept`] has to be
    /// called if the waiter sleeps afterwards.
    #[inline]
    pub(crate) fn until<T>(&mut self, mut attempts: impl FnMut(u32) -> Option<T>) -> Option<T> {
        let limit = self.limit();
        let eager = limit / Self::WITHOUT_PAUSE;
        let start = ticks::now();
        self.polled = 0;
        while self.polled < limit {
            let pauses = self.polled > eager;
            if let Some(found) = attempts(if pauses { 1 } else { self.burst }) {
                self.found(ticks::since(start));
                return Some(found);
            }
            let polled = ticks::since(start);
            if pauses {
                std::hint::spin_loop();
            } else {
                self.calibrate(polled - self.polled, eager);
            }
            self.polled = polled;
        }
        None
    }

    fn found(&mut self, polled: u64) {
        if let Policy::Adaptive(policy) = &mut self.policy {
            policy.found(polled);
        }
    }

    /// Begins a wait. `rang` is true if it is for an answer of a peer whose doorbell was just rung.
    pub(crate) fn begin(&mut self, rang: bool) {
        if let Policy::Adaptive(policy) = &mut self.policy {
            policy.begin(rang);
        }
    }

    /// Notes that the waiter has slept after polling without success.
    pub(crate) fn slept(&mut self) {
        if let Policy::Adaptive(policy) = &mut self.policy {
            policy.slept(self.polled);
        }
    }
}

/// Calls `attempt` up to `attempts` times, until it succeeds.
#[inline]
pub(crate) fn repeat<T>(attempts: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    (0..attempts).find_map(|_| attempt())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_ends_with_the_first_success() {
        let mut poller = Poller::new(Spin::MEASURE, 1);
        let mut made = 0;
        let found = poller.until(|attempts| {
            made += attempts;
            (made >= 500).then_some(made)
        });
        assert!(found.is_some_and(|made| (500..500 + Poller::LONGEST_BURST).contains(&made)));
    }

    #[test]
    fn a_burst_is_a_part_of_the_time() {
        let mut poller = Poller::new(Spin::MEASURE, 1);
        let mut last = poller.burst;
        // One attempt takes ten ticks; then something else has the processor for a while.
        for (each, disturbed) in [(10, 0), (10, 1_000_000), (10, 0), (1_000_000, 0)] {
            for _ in 0..40 {
                poller.calibrate(u64::from(poller.burst) * each + disturbed, 100_000);
                assert!(poller.burst <= 2 * last);
                last = poller.burst;
            }
            let fitting = if each == 10 { 10_000 } else { 1 };
            assert!(disturbed > 0 || poller.burst == fitting, "{}", poller.burst);
        }
        // However quick an attempt is, and however coarse the counter.
        (0..40).for_each(|_| poller.calibrate(0, 100_000));
        assert_eq!(poller.burst, Poller::LONGEST_BURST);
    }

    #[test]
    fn polling_lasts_as_long_as_asked_for() {
        let time = Duration::from_millis(20);
        let mut poller = Poller::new(Spin::For(time), 1);
        let start = std::time::Instant::now();
        assert_eq!(poller.until(|_| None::<()>), None);
        // The rate of ticks is measured in a millisecond.
        assert!(start.elapsed() > time / 2);
    }

    #[test]
    fn a_waiter_that_never_polls_makes_no_attempt() {
        let mut poller = Poller::new(Spin::Never, 1);
        assert_eq!(poller.until(|_| Some(())), None);
        assert_eq!(poller.burst(), 0);
        poller.slept();
        assert_eq!(poller.until(|_| Some(())), None);
    }

    #[test]
    fn sleeping_shortens_and_finding_lengthens_what_adapts() {
        let mut poller = Poller::new(Spin::Adaptive, crate::wait::wakeup::cost());
        let full = poller.limit();
        assert_eq!(full, crate::wait::wakeup::cost());
        assert_eq!(poller.until(|_| None::<()>), None);
        poller.slept();
        assert!(poller.limit() < full);
        poller.found_at_once();
        assert_eq!(poller.limit(), full);
    }
}
