// SPDX-License-Identifier: GPL-2.0

//! What backs a region: how kinds of regions differ.
//!
//! A region ends in three steps: it is *retracted*, so that nothing new begins to use its memory;
//! the device drops what it knows of it; and its memory is *freed*. With all other regions of a
//! space, one invalidation is the second step for all of them.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    device::Shared,
    hw::layout::Run,
    mem::{
        lmm::{
            pinned_range::PinnedRange,
            space::Space, //
        },
        tpt::{
            Entered,
            InvalidateScope,
            PageRun,
            Proof, //
        }, //
    },
    user::message::MessageSlots,
};

/// A use of a region that not each kind permits.
#[derive(Clone, Copy)]
pub(super) enum Use {
    /// Peers import it.
    Export,
    /// Stores to its pages go to pages of another region.
    MapOutSource,
    /// A process learns its bus addresses.
    Blocks,
}

/// What backs a region of one kind.
pub(super) trait Backing: Send {
    /// Fails unless regions of this kind permit a use.
    ///
    /// # Errors
    ///
    /// The errno of this kind, `EINVAL`.
    fn permits(&self, _: Use) -> Result {
        Ok(())
    }

    /// The flags by which a query reports this kind.
    fn flags(&self) -> u32 {
        0
    }

    /// The page entries that only this region has.
    fn own_run(&self) -> Option<&OwnRun> {
        None
    }

    /// The page entries of the region, in order.
    fn runs(&self) -> &[Run] {
        self.own_run().map_or(&[], |own| &own.runs)
    }

    /// The pinned range that has the page entries.
    fn pinned(&self) -> Option<&PinnedRange> {
        None
    }

    /// The number of the exchangeable memory.
    ///
    /// # Errors
    ///
    /// `ENOENT` for memory of another kind.
    fn memory(&self) -> Result<u32> {
        Err(ENOENT)
    }

    /// The message slots.
    ///
    /// # Errors
    ///
    /// `ENOENT` for memory of another kind.
    fn slots(&self) -> Result<&Arc<MessageSlots>> {
        Err(ENOENT)
    }

    /// Ends what gives access to the memory without the region.
    fn retract(&self, _: &Shared) {}

    /// Ends the use of what was retracted by an invalidation of `scope`, and frees it. With `keep` pins
    /// may stay in the pin cache. The caller is outside of the gate.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer. The memory is not used again until the device is
    /// unbound.
    fn release(
        self: KBox<Self>,
        shared: &Shared,
        (space, scope): (&Arc<Space>, InvalidateScope),
        _keep: bool,
    ) -> Result {
        let left = Left(shared, self);
        match shared.gate.enter() {
            Some(guard) => {
                let hw = guard.hw();
                let result = shared.tpt.retract(left).invalidate(hw, scope);
                result.map_err(|(err, _)| {
                    // Entries that the device may still use have the number of the space.
                    space.keep_until_unbound();
                    err
                })
            }
            None => {
                left.free(&shared.tpt.quiet().wait());
                Ok(())
            }
        }
    }

    /// Frees what was kept for the device only.
    fn free(self: KBox<Self>, _: &Shared, _: &Proof) {}
}

/// What a retracted region leaves.
struct Left<'a, B: ?Sized>(&'a Shared, KBox<B>);

impl<B: Backing + ?Sized> Entered for Left<'_, B> {
    type Freed = ();

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        if let Some(own) = self.1.own_run() {
            each(&own.run);
        }
    }

    fn free(self, proof: &Proof) {
        self.1.free(self.0, proof);
    }
}

/// Page entries of one region.
pub(super) struct OwnRun {
    pub(super) run: PageRun,
    /// The same, as the only run of the region.
    runs: [Run; 1],
}

impl From<PageRun> for OwnRun {
    fn from(run: PageRun) -> Self {
        let whole = Run {
            page: 0,
            first: run.first,
            count: run.count,
            reserved: 0,
        };
        Self { run, runs: [whole] }
    }
}
