// SPDX-License-Identifier: MIT OR Apache-2.0

//! The participants, their memory, and their accesses.

use std::fmt;

use uldma_device::method::ShadowRef;

/// A process, which is as much as its context: the MMU lets it use no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Process {
    /// Wants A to be copied to B.
    Victim,
    /// Has the pages C and D.
    Mallory,
    /// Works for Mallory, and has the pages E and F.
    Trudy,
}

impl Process {
    /// The number of its context.
    pub fn context(self) -> u32 {
        match self {
            Self::Victim => 1,
            Self::Mallory => 2,
            Self::Trudy => 3,
        }
    }

    /// Returns true for an attacker.
    pub fn is_attacker(self) -> bool {
        self != Self::Victim
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Victim => "V",
            Self::Mallory => "M",
            Self::Trudy => "T",
        })
    }
}

/// A page as one process has it mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Page {
    /// The victim's source.
    A,
    /// The victim's destination.
    B,
    /// Mallory's.
    C,
    /// Mallory's other.
    D,
    /// Trudy's.
    E,
    /// Trudy's other.
    F,
    /// A, as Mallory has it registered as well.
    SharedA,
    /// B, as Mallory has it registered as well.
    SharedB,
}

impl Page {
    /// All pages.
    pub const ALL: [Page; 8] = [
        Self::A,
        Self::B,
        Self::C,
        Self::D,
        Self::E,
        Self::F,
        Self::SharedA,
        Self::SharedB,
    ];

    /// Returns the page as seen by the device: each registration has its own entries, even for the
    /// same memory.
    pub fn named(self) -> ShadowRef {
        ShadowRef::of_page(self as u32, 0, (self.memory() as u64 + 1) << 12)
    }

    /// The page that a machine named.
    pub fn of(named: ShadowRef) -> Option<Self> {
        Self::ALL.into_iter().find(|page| page.named() == named)
    }

    /// The memory behind it.
    pub fn memory(self) -> Self {
        match self {
            Self::SharedA => Self::A,
            Self::SharedB => Self::B,
            page => page,
        }
    }

    /// Returns the process that has registered it.
    pub fn owner(self) -> Process {
        match self {
            Self::A | Self::B => Process::Victim,
            Self::C | Self::D | Self::SharedA | Self::SharedB => Process::Mallory,
            Self::E | Self::F => Process::Trudy,
        }
    }

    /// Returns the page that SHRIMP-1 has it mapped out to.
    pub fn mapped_out(self) -> Self {
        match self.owner() {
            Process::Victim => Self::B,
            Process::Mallory => Self::D,
            Process::Trudy => Self::F,
        }
    }

    /// Returns true if the memory is the victim's.
    pub fn is_victims(self) -> bool {
        matches!(self.memory(), Self::A | Self::B)
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.memory())
    }
}

/// One access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// A store to a page's shadow address.
    Store(Page, Word),
    /// A load from it.
    Load(Page),
    /// A store to the context page.
    PageStore(Word),
    /// A load from the context page.
    PageLoad,
}

/// The word of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    /// The size: all processes move as many bytes as the victim, so that sizes reveal nothing.
    Size,
    /// The key of a process.
    Key(Process),
    /// A key of the victim's context that was guessed, wrong as all guesses but one in 2^60.
    Guess,
    /// The page is the source, in a register or a descriptor.
    Source,
    /// The page is the destination.
    Destination,
    /// A page as the source of a single store; a region of one page here.
    From(Page),
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(page, Word::Key(process)) => write!(f, "st {page} key {process}"),
            Self::Store(page, Word::Guess) => write!(f, "st {page} guess"),
            Self::Store(page, Word::From(source)) => write!(f, "st {page} from {source}"),
            Self::Store(page, Word::Source) => write!(f, "st source {page}"),
            Self::Store(page, Word::Destination) => write!(f, "st destination {page}"),
            Self::Store(page, Word::Size) => write!(f, "st {page}"),
            Self::Load(page) => write!(f, "ld {page}"),
            Self::PageStore(_) => f.write_str("st size"),
            Self::PageLoad => f.write_str("ld status"),
        }
    }
}

/// The attackers' rights on the victim's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// Nothing.
    Nothing,
    /// Read the source.
    ReadSource,
    /// Read and write the source.
    WriteSource,
    /// Read the destination.
    ReadDestination,
    /// Read and write the destination.
    WriteDestination,
}

impl Sharing {
    /// Returns the pages that Mallory may load from, in addition to its own.
    pub fn loads(self) -> &'static [Page] {
        match self {
            Self::Nothing => &[],
            Self::ReadSource | Self::WriteSource => &[Page::SharedA],
            Self::ReadDestination | Self::WriteDestination => &[Page::SharedB],
        }
    }

    /// Returns the pages that Mallory may store to, in addition to its own.
    pub fn stores(self) -> &'static [Page] {
        match self {
            Self::WriteSource => &[Page::SharedA],
            Self::WriteDestination => &[Page::SharedB],
            _ => &[],
        }
    }

    /// Returns true if Mallory may read this memory of the victim.
    pub fn may_read(self, page: Page) -> bool {
        self.loads().iter().any(|shared| shared.memory() == page)
    }

    /// Returns true if Mallory may write this memory of the victim.
    pub fn may_write(self, page: Page) -> bool {
        self.stores().iter().any(|shared| shared.memory() == page)
    }
}

/// The circumstances of a search.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The attackers.
    pub attackers: &'a [Process],
    /// Their rights on the victim's pages.
    pub sharing: Sharing,
    /// CPUs.
    pub cpus: Cpus,
    /// All processes take a lock before they pass arguments, and release it afterwards.
    pub locked: bool,
    /// The number of accesses and switches of attackers together.
    pub limit: usize,
}

/// The number of processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cpus {
    /// One for all: a process is switched to before its accesses.
    One,
    /// One for each: all make accesses at the same time.
    Many,
}
