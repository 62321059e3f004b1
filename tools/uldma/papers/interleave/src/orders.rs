// SPDX-License-Identifier: MIT OR Apache-2.0

//! Passes each method's machine to the search.

use uldma_device::layout::Key;
use uldma_device::method::{
    Compare, ExtendedShadow, ExtendedShadowShared, Flash, FlashSingle, KeyBased, Repeated, Shrimp1,
    Shrimp2, Shrimp2Abort, SingleStore,
};

use crate::methods::Method;
use crate::search::{search, Findings};
use crate::world::{Cpus, Process, Sharing, Word};

impl Method {
    /// Tries every order of the accesses of the victim and `attackers`, who make up to `limit`
    /// accesses together.
    pub fn search(
        self,
        attackers: &[Process],
        sharing: Sharing,
        cpus: Cpus,
        limit: usize,
    ) -> Findings {
        let full = Compare::Full;
        let everybody = (attackers, sharing, cpus, limit);
        match self {
            Self::ExtendedShadow => search(self, ExtendedShadow::default(), everybody),
            Self::ExtendedShadowShared => search(self, ExtendedShadowShared::default(), everybody),
            Self::Key => {
                let mut machine = KeyBased::default();
                for process in [Process::Victim, Process::Mallory, Process::Trudy] {
                    let key = Key::from_bits(self.encode(Word::Key(process)));
                    machine.assign(process.context(), key);
                }
                search(self, machine, everybody)
            }
            Self::SingleStore => search(self, SingleStore, everybody),
            Self::Repeated5 => search(self, Repeated::five(full), everybody),
            Self::Shrimp1 => search(self, Shrimp1, everybody),
            Self::Shrimp2Abort => search(self, Shrimp2Abort::default(), everybody),
            Self::Flash => search(self, Flash::default(), everybody),
            Self::Pal | Self::Shrimp2 => search(self, Shrimp2::default(), everybody),
            Self::FlashSingle => search(self, FlashSingle::default(), everybody),
            Self::Repeated3 => search(self, Repeated::three(full), everybody),
            Self::Repeated4 => search(self, Repeated::four(full), everybody),
        }
    }
}
