// SPDX-License-Identifier: MIT OR Apache-2.0

//! The methods, as a victim uses them.

use uldma_device::abi::{REPEATED_OK1, REPEATED_OK2};

use crate::world::{Access, Page, Process, Word};

/// A method whose accesses others can come between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Extended shadow addressing.
    ExtendedShadow,
    /// The same with one set of registers.
    ExtendedShadowShared,
    /// Keys.
    Key,
    /// One store.
    SingleStore,
    /// Five accesses.
    Repeated5,
    /// One load.
    Shrimp1,
    /// SHRIMP-2 with its changed context switch.
    Shrimp2Abort,
    /// FLASH.
    Flash,
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

/// What the victim must be told to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Nothing is told.
    Nothing,
    /// This number.
    Code(u64),
    /// That a transfer was started.
    Start,
}

/// One step of the victim.
pub type Step = (Access, Expect);

impl Method {
    /// All of them, those that are secure first.
    pub const ALL: [Method; 13] = [
        Self::ExtendedShadow,
        Self::ExtendedShadowShared,
        Self::Key,
        Self::SingleStore,
        Self::Repeated5,
        Self::Shrimp1,
        Self::Shrimp2Abort,
        Self::Flash,
        Self::Pal,
        Self::Shrimp2,
        Self::FlashSingle,
        Self::Repeated3,
        Self::Repeated4,
    ];

    /// The name that programs know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::ExtendedShadow => "extended-shadow",
            Self::ExtendedShadowShared => "extended-shadow-shared",
            Self::Key => "key",
            Self::SingleStore => "single-store",
            Self::Repeated5 => "repeated-5",
            Self::Shrimp1 => "shrimp-1",
            Self::Shrimp2Abort => "shrimp-2-abort",
            Self::Flash => "flash",
            Self::Pal => "pal",
            Self::Shrimp2 => "shrimp-2",
            Self::FlashSingle => "flash-single",
            Self::Repeated3 => "repeated-3",
            Self::Repeated4 => "repeated-4",
        }
    }

    /// Whether a context can have it without the administrator's permission.
    pub fn is_secure(self) -> bool {
        !matches!(
            self,
            Self::Pal | Self::Shrimp2 | Self::FlashSingle | Self::Repeated3 | Self::Repeated4
        )
    }

    /// Whether the device is told who runs.
    pub fn needs_sched_notify(self) -> bool {
        matches!(self, Self::Shrimp2Abort | Self::Flash | Self::FlashSingle)
    }

    /// Whether a victim that somebody came between begins anew, on one CPU.
    pub fn restarts(self) -> bool {
        self == Self::Pal
    }

    /// Whether both sides of a transfer have to be the memory of the process that starts it; else
    /// each side is what the process that named it may use.
    pub fn is_of_one_process(self) -> bool {
        matches!(
            self,
            Self::ExtendedShadow
                | Self::ExtendedShadowShared
                | Self::Key
                | Self::SingleStore
                | Self::Shrimp1
                | Self::Flash
                | Self::Shrimp2Abort
        )
    }

    /// What the victim does to have A copied to B.
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
            Self::SingleStore => vec![(Store(Page::B, Word::From(Page::A)), Expect::Start)],
            Self::Shrimp1 => vec![start],
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

    /// What an attacker can store, and whether it has any use for the context page.
    pub fn alphabet(self, attacker: Process) -> (Vec<Word>, bool) {
        match self {
            Self::Key => (vec![Word::Key(attacker), Word::Guess], true),
            Self::SingleStore => (vec![Word::From(Page::A), Word::From(Page::C)], false),
            _ => (vec![Word::Size], false),
        }
    }

    /// The number that a word is.
    pub fn encode(self, word: Word) -> u64 {
        let key = |process: Process| (0x1111 * u64::from(process.context())) << 4;
        match word {
            Word::Size => 8,
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
