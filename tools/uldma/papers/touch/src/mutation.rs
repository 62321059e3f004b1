// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ways in which the protocol is made wrong, to see that the search finds each.

use crate::state::Harm;

/// A change of the protocol. Steps of the design (D: device, N: notifier, F: fill) are in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// The device makes no fence between `begun` and the look-up [D2].
    NoDeviceFence,
    /// The driver makes no fence between the retraction and the load of `begun` [N3].
    NoDriverFence,
    /// The device looks up, and then stores `begun` [D3 before D1].
    LookUpFirst,
    /// The device takes a number below its lock, and stores it to `begun` after that [D1].
    BegunUnlocked,
    /// The device finds the oldest number below its lock, and stores `oldest` after that [D6].
    OldestUnlocked,
    /// One word that is odd from the beginning of a bracket to its end, instead of two.
    OneWord,
    /// The device stores the number after the last bracket that has ended to `oldest`.
    LastEnded,
    /// The device stores `oldest` before it accesses the page [D6 before D5].
    OldestFirst,
    /// Brackets of the other node's transfers store only the words of that node.
    OwnNodeOnly,
    /// The driver loads `begun` before it retracts the entry [N4 before N2].
    BegunFirst,
    /// The driver waits for the bracket before the last one [N5 with `>=`].
    TooOld,
    /// A fill publishes what it found without a check of the sequence [F5].
    NoReadRetry,
    /// A fill checks the sequence before it takes the lock [F5].
    ReadRetryOutside,
    /// A fill publishes the word before the rest of the entry [F6].
    WordFirst,
    /// A fill reuses an entry that waits for its fence [F6].
    PublishRetracted,
    /// A notifier that may not block returns false, and frees the entry.
    FalseEmpties,
    /// The driver ends the DMA mapping before the fence [N6 before N3].
    UnmapFirst,
    /// The driver loads the dirty byte before the fence [N6 before N3].
    DirtyReadFirst,
    /// The device stores the dirty byte after `oldest` [D4 after D6].
    DirtyStoredLast,
    /// A reset forgets the address of the touch page before it stores `oldest`.
    ForgetFirst,
    /// A device that is enabled after a reset, with areas that are watched still, begins with 1 again.
    NumbersAnew,
    /// The device marks a page by a read-modify-write of the entry's word.
    WordModified,
    /// The device ends the bracket of a batch before its last access.
    EndsEarly,
    /// Quiescing clears bus mastering, and does not wait for accesses under way.
    NoDrain,
    /// The driver stores `off` before it quiesces.
    OffFirst,
    /// A notifier that has lost its patience returns, and does not quiesce.
    ReturnsOnSick,
    /// A notifier waits for a device that has stopped until it goes on.
    NoPatience,
    /// The device stores `oldest` without release [D6].
    OldestRelaxed,
    /// The driver loads `oldest` without acquire [N5].
    WaitRelaxed,
    /// The device loads the entry's word without acquire [D3].
    LookUpRelaxed,
    /// The driver stores `off` without release.
    OffRelaxed,
    /// Eviction ends every entry that is retracted after its fence, also one that was filled and
    /// retracted again since.
    EvictsAnew,
}

impl Mutation {
    /// All of them, each with a mix that shows it, and the first harm there.
    pub const ALL: [(Self, &'static str, Harm); 32] = [
        (Self::NoDeviceFence, "batch", Harm::Stray),
        (Self::NoDriverFence, "batch", Harm::Stray),
        (Self::LookUpFirst, "batch", Harm::Stray),
        (Self::BegunUnlocked, "batch", Harm::Stray),
        (Self::OldestUnlocked, "batch", Harm::Stuck),
        (Self::OneWord, "batch", Harm::Stray),
        (Self::LastEnded, "batch", Harm::Stray),
        (Self::OldestFirst, "refill", Harm::Unordered),
        (Self::OwnNodeOnly, "batch", Harm::Stray),
        (Self::BegunFirst, "batch", Harm::Stray),
        (Self::TooOld, "batch", Harm::Stray),
        (Self::NoReadRetry, "refill", Harm::Stray),
        (Self::ReadRetryOutside, "refill", Harm::Stray),
        (Self::WordFirst, "first fill", Harm::Torn),
        (Self::PublishRetracted, "reaper", Harm::Leaked),
        (Self::FalseEmpties, "reaper", Harm::Lost),
        (Self::UnmapFirst, "mapped", Harm::Unmapped),
        (Self::DirtyReadFirst, "batch", Harm::Lost),
        (Self::DirtyStoredLast, "batch", Harm::Lost),
        (Self::ForgetFirst, "reset", Harm::Numbers),
        (Self::NumbersAnew, "reset", Harm::Stuck),
        (Self::WordModified, "batch", Harm::Stray),
        (Self::EndsEarly, "batch", Harm::Unordered),
        (Self::NoDrain, "unbind", Harm::Lost),
        (Self::OffFirst, "unbind", Harm::Stray),
        (Self::ReturnsOnSick, "sick", Harm::Lost),
        (Self::NoPatience, "sick", Harm::Stuck),
        (Self::OldestRelaxed, "batch", Harm::Lost),
        (Self::WaitRelaxed, "batch", Harm::Lost),
        (Self::LookUpRelaxed, "first fill", Harm::Torn),
        (Self::OffRelaxed, "unbind", Harm::Lost),
        (Self::EvictsAnew, "eviction and reaper", Harm::Unmapped),
    ];
}
