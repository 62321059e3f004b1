// SPDX-License-Identifier: GPL-2.0

//! The payload of a pinned memory area: pins, charge, page entries and rights.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*, //
};

use crate::{
    mem::tpt::{
        Entered,
        PageRun,
        Proof,
        Reachable,
        Tpt, //
    },
    user_abi::access::Access, //
};

use super::{
    map::{
        AreaRoom,
        Areas,
        Payload, //
    },
    subscription::Subscription, //
};

/// Pages that are pinned, charged and entered in the page table.
pub(super) struct PinnedArea {
    pub(super) memory: Reachable,
    pub(super) access: Access,
    pub(super) subscription: Subscription,
}

impl PinnedArea {
    /// Prepares the rights for one more pin. Everything that can fail is done here.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EREMOTEIO` if the device cannot access a page, `ENODEV` without tables.
    pub(super) fn prepare(&self, access: Access, tpt: &Tpt, dev: &Device<Bound>) -> Result {
        if access.write && !self.access.write {
            tpt.prepare_writing(dev, &self.memory)
        } else {
            Ok(())
        }
    }

    /// Undoes [`PinnedArea::prepare`] for a pin that fails.
    pub(super) fn forgo(&self, tpt: &Tpt, dev: &Device<Bound>) {
        if !self.access.write {
            tpt.forgo_writing(dev, self.memory.run());
        }
    }

    /// Gives the pages the rights of one more pin, which were prepared.
    pub(super) fn allow(&mut self, access: Access, tpt: &Tpt) -> Result {
        if !self.access.covers(access) {
            tpt.allow(self.memory.run(), access)?;
            self.access.read |= access.read;
            self.access.write |= access.write;
            if access.write {
                self.memory.set_writable();
            }
        }
        Ok(())
    }
}

/// What is left of areas whose pages were unpinned.
pub(super) struct Freed {
    /// The number of their pages.
    pub(super) pages: usize,
    /// The memory of one of them, for the next one.
    pub(super) spare: Option<AreaRoom<PinnedArea>>,
}

impl Entered for Areas<PinnedArea> {
    type Freed = Freed;

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        for (_, area) in self.iter() {
            each(area.payload.memory.run());
        }
    }

    fn free(mut self, proof: &Proof) -> Freed {
        self.for_each_mut(|area| area.memory.prove(proof));
        Freed {
            pages: self.pages(),
            spare: self.into_room(),
        }
    }
}

impl Payload for PinnedArea {
    fn split_off(&mut self, at: usize) -> Self {
        Self {
            memory: self.memory.split_off(at),
            access: self.access,
            subscription: self.subscription.clone(),
        }
    }

    fn can_join(&self, next: &Self) -> bool {
        self.access == next.access && self.memory.can_join(&next.memory)
    }

    fn join(&mut self, next: Self) {
        self.memory.join(next.memory);
    }
}
