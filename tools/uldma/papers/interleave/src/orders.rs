// SPDX-License-Identifier: MIT OR Apache-2.0

//! Passes each method's machine to the search.

use uldma_device::layout::Key;
use uldma_device::method::{
    Compare, ExtendedShadow, ExtendedShadowShared, FetchAdd, Flash, FlashSingle, KeyBased,
    Repeated, Shrimp1, Shrimp2, Shrimp2Abort, SingleStore,
};

use crate::methods::Method;
use crate::search::{search, Findings};
use crate::whole::Whole;
use crate::world::{Process, Setting, Word};

impl Method {
    /// Tries every order of the accesses of the victim and the attackers.
    pub fn search(self, setting: Setting<'_>) -> Findings {
        let full = Compare::Full;
        match self {
            Self::Kernel => search(self, Whole::registers(), setting),
            Self::Queue => search(self, Whole::queues(), setting),
            Self::FetchAdd => search(self, FetchAdd, setting),
            Self::ExtendedShadow => search(self, ExtendedShadow::default(), setting),
            Self::ExtendedShadowShared => search(self, ExtendedShadowShared::default(), setting),
            Self::Key => {
                let mut machine = KeyBased::default();
                for process in [Process::Victim, Process::Mallory, Process::Trudy] {
                    let key = Key::from_bits(self.encode(Word::Key(process)));
                    machine.assign(process.context(), key);
                }
                search(self, machine, setting)
            }
            Self::SingleStore => search(self, SingleStore, setting),
            Self::Repeated5 => search(self, Repeated::five(full), setting),
            Self::Shrimp1 => search(self, Shrimp1, setting),
            Self::Shrimp2Abort => search(self, Shrimp2Abort::default(), setting),
            Self::Flash => search(self, Flash::default(), setting),
            Self::Pal | Self::Shrimp2 => search(self, Shrimp2::default(), setting),
            Self::FlashSingle => search(self, FlashSingle::default(), setting),
            Self::Repeated3 => search(self, Repeated::three(full), setting),
            Self::Repeated4 => search(self, Repeated::four(full), setting),
        }
    }
}
