// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looking again for a moment before going to sleep.

use std::time::Duration;

/// How long to look before sleeping. Looking makes no system call, not even for the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spin {
    /// Looks without a pause in between, for answers that come within microseconds.
    pub tight: u32,
    /// Looks after these, each with a pause that leaves the core to its other thread (or, in an
    /// emulator, to somebody else).
    pub paused: u32,
}

impl Spin {
    /// Not at all: sleep at once.
    pub const NONE: Self = Self {
        tight: 0,
        paused: 0,
    };

    /// For ring messages: answers come within microseconds, or not for long.
    pub const RING: Self = Self {
        tight: 4096,
        paused: 2048,
    };

    /// For the end of a transfer: as long as a wake-up would take. Where the device is emulated on
    /// the same cores, to look longer takes from it what it needs to get there.
    pub const TRANSFER: Self = Self {
        tight: 64,
        paused: 512,
    };

    /// For measuring: some tens of milliseconds, so that no wake-up is part of the figure.
    pub const MEASURE: Self = Self {
        tight: 64,
        paused: 1 << 16,
    };

    /// All looks.
    fn looks(self) -> u32 {
        self.tight.saturating_add(self.paused)
    }

    /// Looks until `look` finds something; none when it does not in time.
    #[inline]
    pub fn until<T>(self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..self.tight {
            let found = look();
            if found.is_some() {
                return found;
            }
        }
        for _ in 0..self.paused {
            let found = look();
            if found.is_some() {
                return found;
            }
            std::hint::spin_loop();
        }
        None
    }
}

/// How long to look, as it was worth it so far.
///
/// What is found while looking says how long the next one may take; what is found by sleeping only
/// says whether looking longer would have been the better choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Patience {
    most: Spin,
    /// Looks, of both kinds.
    looks: u32,
    adapts: bool,
}

impl Patience {
    /// Fewer looks tell nothing.
    const LEAST: u32 = 64;
    /// What came before this was worth waiting for: to sleep and wake takes as long.
    const SHORT: Duration = Duration::from_micros(200);

    /// Always the same.
    pub(crate) fn fixed(spin: Spin) -> Self {
        Self {
            most: spin,
            looks: spin.looks(),
            adapts: false,
        }
    }

    /// At most `most`.
    pub(crate) fn adaptive(most: Spin) -> Self {
        Self {
            most,
            looks: most.looks(),
            adapts: true,
        }
    }

    /// Looks without a pause.
    #[inline(always)]
    pub(crate) fn tight(&self) -> u32 {
        self.most.tight.min(self.looks)
    }

    /// Looks until `look` finds something; none when it does not in time.
    #[inline]
    pub(crate) fn until<T>(&mut self, mut look: impl FnMut() -> Option<T>) -> Option<T> {
        let tight = self.tight();
        let spin = Spin {
            tight,
            paused: self.most.paused.min(self.looks - tight),
        };
        let mut looks = 0u32;
        let found = spin.until(|| {
            looks = looks.saturating_add(1);
            look()
        });
        if found.is_some() {
            self.aim(looks.saturating_mul(4));
        }
        found
    }

    /// Notes what became of sleeping, after looking in vain.
    pub(crate) fn slept(&mut self, time: Duration) {
        if time < Self::SHORT {
            self.aim(self.looks.saturating_mul(4));
        } else {
            self.aim(self.looks / 4);
        }
    }

    /// Goes a part of the way to another number of looks.
    fn aim(&mut self, looks: u32) {
        if self.adapts {
            let aim = looks.max(Self::LEAST);
            let way = (i64::from(aim) - i64::from(self.looks)) / 4;
            let looks = i64::from(self.looks) + way;
            let most = i64::from(self.most.looks());
            self.looks = u32::try_from(looks.min(most)).unwrap_or(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLOW: Duration = Duration::from_millis(5);
    const QUICK: Duration = Duration::from_micros(20);

    #[test]
    fn in_vain_nobody_looks_for_long() {
        let mut patience = Patience::adaptive(Spin::RING);
        for _ in 0..40 {
            patience.slept(SLOW);
        }
        assert!(patience.looks < 2 * Patience::LEAST, "{patience:?}");
        // Where sleeping turns out to be what takes the time, it looks longer again.
        for _ in 0..40 {
            patience.slept(QUICK);
        }
        assert_eq!(patience.looks, Spin::RING.looks());
    }

    #[test]
    fn what_is_found_says_how_long_to_look() {
        let mut patience = Patience::adaptive(Spin::RING);
        for _ in 0..100 {
            let mut looks = 0;
            patience.until(|| {
                looks += 1;
                (looks == 500).then_some(())
            });
        }
        assert!((1900..2100).contains(&patience.looks), "{patience:?}");
        assert_eq!(patience.until(|| None::<()>), None);
    }

    #[test]
    fn what_was_asked_for_stays() {
        for spin in [Spin::NONE, Spin::MEASURE] {
            let mut patience = Patience::fixed(spin);
            patience.slept(SLOW);
            patience.slept(QUICK);
            assert_eq!(patience, Patience::fixed(spin));
        }
        let mut patience = Patience::adaptive(Spin::NONE);
        patience.slept(QUICK);
        assert_eq!(patience.until(|| Some(())), None);
    }

    #[test]
    fn spinning_is_bounded_and_ends_early() {
        let spin = Spin {
            tight: 3,
            paused: 4,
        };
        let mut looks = 0;
        assert_eq!(
            spin.until(|| -> Option<()> {
                looks += 1;
                None
            }),
            None
        );
        assert_eq!(looks, 7);
        let mut looks = 0;
        assert_eq!(
            spin.until(|| {
                looks += 1;
                (looks == 5).then_some(looks)
            }),
            Some(5)
        );
    }
}
