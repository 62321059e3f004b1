// SPDX-License-Identifier: MIT OR Apache-2.0

//! Looking again for a moment before going to sleep.

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

#[cfg(test)]
mod tests {
    use super::*;

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
