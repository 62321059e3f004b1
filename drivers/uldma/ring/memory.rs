// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! The memory of a ring, as its two ends see it.

/// This side's segment, to which the peer may write any bytes at any time.
///
/// It may be write-combining memory, where loads pass each other even if they would be ordered for
/// cached memory: only [`Inbound::acquire`] keeps them in order.
///
/// Words are little-endian in memory, and loads convert them.
pub trait Inbound {
    /// Loads the word at `offset` (a multiple of eight) once. Later stores come after it.
    fn load(&self, offset: usize) -> u64;

    /// Loads the word at `offset` (a multiple of eight) once. All later accesses come after it:
    /// they see all that the peer wrote before it published the word.
    fn acquire(&self, offset: usize) -> u64;

    /// Loads the word at `offset` (a multiple of eight) until its upper half is that of `wanted`, at most
    /// `looks` times and at least once. Returns the last value. If that is such a word, it is acquired.
    #[inline(always)]
    fn await_upper(&self, offset: usize, wanted: u64, looks: u32) -> u64 {
        let mut word = self.acquire(offset);
        for _ in 1..looks {
            if (word ^ wanted) >> 32 == 0 {
                break;
            }
            word = self.acquire(offset);
        }
        word
    }

    /// Copies bytes at `offset`, each of them once.
    fn read(&self, offset: usize, target: &mut [u8]);

    /// Orders all earlier accesses, stores among them, before all later ones.
    fn fence(&self);
}

/// The peer's segment, which this side only writes.
///
/// It may be write-combining memory, which stores reach in any order, and late: only
/// [`Outbound::publish`] keeps them in order, and a side that waits afterwards needs an
/// [`Inbound::fence`].
///
/// Words are little-endian in memory, and stores convert them.
pub trait Outbound {
    /// Stores the word at `offset` (a multiple of eight).
    fn store(&self, offset: usize, value: u64);

    /// Stores the word at `offset` (a multiple of eight) after all earlier stores: a reader that
    /// acquires the word sees all that was written before.
    fn publish(&self, offset: usize, value: u64);

    /// Stores the word at `offset` (a multiple of eight) after all earlier loads: a writer that loads
    /// the word may change what was loaded before.
    fn release(&self, offset: usize, value: u64);

    /// Copies bytes to `offset`.
    fn write(&self, offset: usize, source: &[u8]);
}
