// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods, as a victim uses them.

use uldma_device::abi::{REPEATED_OK1, REPEATED_OK2};

use crate::whole;
use crate::world::{Access, Page, Process, Word};

/// A method whose accesses others can interleave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The kernel, which passes arguments under a lock.
    Kernel,
    /// Extended shadow addressing.
    ExtendedShadow,
    /// Extended shadow addressing with one set of registers.
    ExtendedShadowShared,
    /// Keys.
    Key,
    /// One store.
    SingleStore,
    /// Descriptors in memory.
    Queue,
    /// Five accesses.
    Repeated5,
    /// One load.
    Shrimp1,
    /// SHRIMP-2 with its changed context switch.
    Shrimp2Abort,
    /// FLASH.
    Flash,
    /// Atomic operations by one load.
    FetchAdd,
    /// PAL code, as a section that restarts.
    Pal,
    /// SHRIMP-2 alone.
    Shrimp2,
    /// FLASH with one register for all CPUs.
    FlashSingle,
    /// Three accesses.
    Repeated3,
    /// Four accesses.
    Repeated4,
}

/// Value that the victim must read to continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is read.
    Nothing,
    /// This number.
    Code(u64),
    /// The answer that a transfer was started.
    Start,
}

/// One step of the victim.
pub type Step = (Access, Expect);

impl Method {
    /// All methods, the secure ones first.
    pub const ALL: [Method; 16] = [
        Self::Kernel,
        Self::ExtendedShadow,
        Self::ExtendedShadowShared,
        Self::Key,
        Self::SingleStore,
        Self::Queue,
        Self::Repeated5,
        Self::Shrimp1,
        Self::Shrimp2Abort,
        Self::Flash,
        Self::FetchAdd,
        Self::Pal,
        Self::Shrimp2,
        Self::FlashSingle,
        Self::Repeated3,
        Self::Repeated4,
    ];

    /// Returns the name under which programs know it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::ExtendedShadow => "extended-shadow",
            Self::ExtendedShadowShared => "extended-shadow-shared",
            Self::Key => "key",
            Self::SingleStore => "single-store",
            Self::Queue => "queue",
            Self::Repeated5 => "repeated-5",
            Self::Shrimp1 => "shrimp-1",
            Self::Shrimp2Abort => "shrimp-2-abort",
            Self::Flash => "flash",
            Self::FetchAdd => "fetch-add",
            Self::Pal => "pal",
            Self::Shrimp2 => "shrimp-2",
            Self::FlashSingle => "flash-single",
            Self::Repeated3 => "repeated-3",
            Self::Repeated4 => "repeated-4",
        }
    }

    /// Returns true if a context can have it without the administrator's permission.
    pub fn is_secure(self) -> bool {
        !matches!(
            self,
            Self::Pal | Self::Shrimp2 | Self::FlashSingle | Self::Repeated3 | Self::Repeated4
        )
    }

    /// Returns true if the driver reports the running context to the device.
    pub fn needs_sched_notify(self) -> bool {
        matches!(self, Self::Shrimp2Abort | Self::Flash | Self::FlashSingle)
    }

    /// Returns true if a disturbed victim restarts, on one CPU.
    pub fn restarts(self) -> bool {
        self == Self::Pal
    }

    /// Returns true if a lock keeps others out while a process passes arguments.
    pub fn has_lock(self) -> bool {
        self == Self::Kernel
    }

    /// Returns true if both sides of a transfer have to be memory of the process that starts it;
    /// otherwise each side may be any memory of the process that named it.
    pub fn is_of_one_process(self) -> bool {
        matches!(
            self,
            Self::ExtendedShadow
                | Self::ExtendedShadowShared
                | Self::Key
                | Self::SingleStore
                | Self::Queue
                | Self::FetchAdd
                | Self::Shrimp1
                | Self::Flash
                | Self::Shrimp2Abort
        )
    }

    /// Returns the source and the destination of the victim: A and B. An atomic operation changes
    /// a word of A in place.
    pub fn wanted(self) -> (Page, Page) {
        match self {
            Self::FetchAdd => (Page::A, Page::A),
            _ => (Page::A, Page::B),
        }
    }

    /// Returns the victim's accesses, which copy A to B.
    pub fn program(self) -> Vec<Step> {
        use Access::{Load, PageLoad, PageStore, Store};
        let store = (Store(Page::B, Word::Size), Expect::Nothing);
        let start = (Load(Page::A), Expect::Start);
        match self {
            Self::Key => {
                let key = Word::Key(Process::Victim);
                vec![
                    (Store(Page::B, key), Expect::Nothing),
                    (Store(Page::A, key), Expect::Nothing),
                    (PageStore(Word::Size), Expect::Nothing),
                    (PageLoad, Expect::Start),
                ]
            }
            Self::Kernel | Self::Queue => vec![
                (Store(Page::A, Word::Source), Expect::Nothing),
                (Store(Page::B, Word::Destination), Expect::Nothing),
                (PageStore(Word::Size), Expect::Nothing),
                (PageLoad, Expect::Code(whole::STARTED)),
            ],
            Self::SingleStore => vec![(Store(Page::B, Word::From(Page::A)), Expect::Start)],
            Self::Shrimp1 | Self::FetchAdd => vec![start],
            Self::Repeated3 => vec![(Load(Page::A), Expect::Code(REPEATED_OK1)), store, start],
            Self::Repeated4 => vec![
                store,
                (Load(Page::A), Expect::Code(REPEATED_OK1)),
                store,
                start,
            ],
            Self::Repeated5 => vec![
                store,
                (Load(Page::A), Expect::Code(REPEATED_OK1)),
                store,
                (Load(Page::A), Expect::Code(REPEATED_OK2)),
                (Load(Page::B), Expect::Start),
            ],
            _ => vec![store, start],
        }
    }

    /// Returns the words that an attacker can store, and whether the context page is of use to it.
    pub fn alphabet(self, attacker: Process) -> (Vec<Word>, bool) {
        match self {
            Self::Kernel | Self::Queue => (vec![Word::Source, Word::Destination], true),
            Self::Key => (vec![Word::Key(attacker), Word::Guess], true),
            Self::SingleStore => (vec![Word::From(Page::A), Word::From(Page::C)], false),
            _ => (vec![Word::Size], false),
        }
    }

    /// Returns true if words pass all arguments ([`whole`]).
    pub fn is_whole(self) -> bool {
        matches!(self, Self::Kernel | Self::Queue)
    }

    /// Returns pages of the victim that an attacker can name without any right, since the MMU does
    /// not check the names of regions in a descriptor.
    pub fn names(self) -> &'static [Page] {
        match self {
            Self::Queue => &[Page::A, Page::B],
            _ => &[],
        }
    }

    /// The number that a word is.
    pub fn encode(self, word: Word) -> u64 {
        let key = |process: Process| (0x1111 * u64::from(process.context())) << 4;
        match word {
            Word::Size => 8,
            Word::Source => whole::SOURCE,
            Word::Destination => whole::DESTINATION,
            Word::Key(process) => key(process) | u64::from(process.context()),
            Word::Guess => (0xfeed << 4) | u64::from(Process::Victim.context()),
            Word::From(page) => uldma_device::method::PutWord {
                length: 1,
                src_region: page as u32 + 1,
                ..Default::default()
            }
            .pack(),
        }
    }
}
