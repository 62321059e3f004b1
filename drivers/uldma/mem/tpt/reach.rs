// SPDX-License-Identifier: GPL-2.0

//! Memory that the device can access by page entries, and the proof that it cannot any more.
//!
//! The device reads a page entry and uses the address later, so clearing the entry proves nothing:
//! an invalidation has to be issued afterwards, and has to complete. Page entries are shared by all
//! pinned ranges of a space, and a transfer that names a page without its region does not end with
//! the region, so an invalidation that was issued before proves nothing either.
//!
//! Types enforce this. Everything with page entries implements [`Entered`]. [`Tpt::retract`] clears
//! them and returns [`Retracted`]. Only [`Retracted::invalidate`], or a device that is
//! [quiet](Quiet), returns a [`Proof`], which is needed to reuse page entries and to unpin pages.
//! Entries that stay are retracted [for a while](super::retraction).
//! [`Reachable`] pages that are dropped without it stay pinned, and are counted.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Completion, //
    },
    time::Delta, //
};

use crate::{
    hw::{
        touch::Fenced,
        Hw, //
    },
    kernel_ext::{
        gup::PinnedPages,
        shared_pins::SharedPins, //
    },
    mem::charged_pages::ChargedPages, //
};

use super::Tpt;

/// Number of pages without a proof, of all devices since the module was loaded.
static LEAKED: Atomic<usize> = Atomic::new(0);

/// Returns the number of pages that stay pinned without an owner, since there was no proof.
pub(crate) fn leaked() -> usize {
    LEAKED.load(Relaxed)
}

/// The scope of an invalidation before pages are unpinned.
#[derive(Clone, Copy)]
pub(crate) enum InvalidateScope {
    /// A region, which was retracted and may be in use.
    Region(u32),
    /// All regions of a space, which were retracted and may be in use.
    Space(u32),
    /// Page entries only, if any were retracted.
    Pages,
}

/// Commands to the device about memory, without accesses to registers as far as possible.
///
/// The implementation vouches for the same as [`Hw::invalidate_region`]: an invalidation is issued
/// after all writes of the caller to the tables, and has completed on return.
pub(crate) trait Invalidator: Send + Sync {
    /// Invalidates `region`, and waits for that; bounded.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer.
    fn invalidate_region(&self, hw: Hw<'_>, region: u32) -> Result;

    /// Returns the time that waiting for an invalidation costs at least.
    fn cost(&self) -> Delta;

    /// Has the device read the answers to its requests for pages, some time later. Only a caller that
    /// `may_wait` waits for room in the queue; bounded.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is no room, `ETIMEDOUT` if the device does not answer, `ENODEV` if it is unbound.
    fn read_answers(&self, hw: Hw<'_>, may_wait: bool) -> Result;
}

/// Proof that the device cannot access certain memory any more.
pub(crate) struct Proof(());

impl Proof {
    /// Returns the proof if the device does not use page entries that were retracted before. Does not
    /// wait.
    pub(crate) fn if_idle(tpt: &Tpt) -> Option<Self> {
        tpt.fence.passes(Delta::ZERO).then_some(Self(()))
    }

    /// Waits until the device does not use page entries that were retracted before. The space keeps the
    /// entries, so arguments that name them may stay in the device.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer.
    pub(crate) fn of_retracted_pages(tpt: &Tpt, hw: Hw<'_>) -> Result<Self> {
        // Up to the cost of what comes then: so it is never more than twice what is best.
        if tpt.fence.passes(tpt.invalidation_cost()) {
            return Ok(Self(()));
        }
        tpt.fence.count_invalidation();
        // Any invalidation will do, and this one aborts nothing.
        tpt.invalidate_region(hw, 0)?;
        Ok(Self(()))
    }

    /// The same, but a device that does not answer is made to do no DMA any more.
    pub(crate) fn at_any_cost(tpt: &Tpt, hw: Hw<'_>) -> Self {
        Self::of_retracted_pages(tpt, hw).unwrap_or_else(|_| {
            // Once, since nothing waits for the device afterwards.
            dev_err!(
                hw.dev(),
                "adapter may use memory that has to go; its bus mastering is disabled until unbind\n"
            );
            Self::of_end(tpt, hw)
        })
    }

    /// Has the device do no DMA any more.
    pub(super) fn of_end(tpt: &Tpt, hw: Hw<'_>) -> Self {
        tpt.fence.end_dma(hw);
        Self(())
    }
}

impl Fenced for Proof {}

/// Consecutive page entries, which no other run has. Entries of a dropped run stay in use.
#[derive(Debug)]
pub(crate) struct PageRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// First entry of the run from which this one was split off, or of itself. The entries of a run
    /// are reused when all runs that were split off from it are freed.
    pub(super) first_of_run: u32,
}

impl PageRun {
    /// Returns the indices of the entries.
    pub(crate) fn entries(&self) -> Range<u32> {
        self.first..self.first + self.count
    }

    /// Splits off the pages from page number `at` on.
    fn split_off(&mut self, at: u32) -> Self {
        let at = at.min(self.count);
        let tail = Self {
            first: self.first + at,
            count: self.count - at,
            first_of_run: self.first_of_run,
        };
        self.count = at;
        tail
    }

    /// Returns true if `next` was split off from this run and follows.
    fn can_join(&self, next: &Self) -> bool {
        self.first_of_run == next.first_of_run && self.first + self.count == next.first
    }
}

/// An owner of page entries.
pub(crate) trait Entered {
    /// The remains once the entries are freed.
    type Freed;

    /// Passes its page entries to `each`.
    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun));

    /// Frees everything that was kept for the device only.
    fn free(self, proof: &Proof) -> Self::Freed;
}

impl Entered for () {
    type Freed = ();

    fn for_each_run(&self, _: &mut dyn FnMut(&PageRun)) {}

    fn free(self, _: &Proof) {}
}

impl<A: Entered, B: Entered> Entered for (A, B) {
    type Freed = (A::Freed, B::Freed);

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        self.0.for_each_run(each);
        self.1.for_each_run(each);
    }

    fn free(self, proof: &Proof) -> Self::Freed {
        (self.0.free(proof), self.1.free(proof))
    }
}

/// An owner of page entries that are invalid, but that the device may still use.
#[must_use]
pub(crate) struct Retracted<'a, E> {
    tpt: &'a Tpt,
    entered: E,
}

impl Tpt {
    /// Makes the page entries of `entered` invalid.
    pub(crate) fn retract<E: Entered>(&self, entered: E) -> Retracted<'_, E> {
        entered.for_each_run(&mut |run| {
            // Without tables there is nothing to retract.
            let _ = self.with(|tables| {
                tables.pages.retract_all(run.first, run.count);
                Ok(())
            });
        });
        Retracted { tpt: self, entered }
    }
}

impl<E: Entered> Retracted<'_, E> {
    /// Invalidates `scope` in the device, and then frees DMA mappings and page entries.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, with the owner of the entries, which the device
    /// may use until it is quiet.
    pub(crate) fn invalidate(
        self,
        hw: Hw<'_>,
        scope: InvalidateScope,
    ) -> Result<E::Freed, (Error, E)> {
        let mut any = false;
        self.entered.for_each_run(&mut |run| any |= run.count > 0);
        let result = match scope {
            InvalidateScope::Region(region) => self.tpt.invalidate_region(hw, region),
            InvalidateScope::Space(space) => hw.invalidate_space(space),
            // Any invalidation will do, and this one aborts nothing.
            InvalidateScope::Pages if any => self.tpt.invalidate_region(hw, 0),
            InvalidateScope::Pages => Ok(()),
        };
        match result {
            Ok(()) => {
                let remove = &mut |run: &PageRun| self.tpt.remove_pages(hw.dev(), run);
                self.entered.for_each_run(remove);
                Ok(self.entered.free(&Proof(())))
            }
            Err(err) => Err((err, self.entered)),
        }
    }
}

/// The state of a device that may be made to do no DMA any more, for good.
#[pin_data]
pub(crate) struct Quiet {
    done: Atomic<bool>,
    #[pin]
    completion: Completion,
}

impl Quiet {
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            done: Atomic::new(false),
            completion <- Completion::new(),
        })
    }

    /// Marks the device as quiet. Nothing is mapped for it any more.
    pub(super) fn complete(&self) {
        self.done.store(true, Release);
        self.completion.complete_all();
    }

    /// Waits until the device is quiet, which follows once the gate is closed.
    pub(crate) fn wait(&self) -> Proof {
        self.completion.wait_for_completion();
        Proof(())
    }

    /// Returns the proof if the device is quiet.
    pub(crate) fn proof(&self) -> Option<Proof> {
        self.done.load(Acquire).then_some(Proof(()))
    }
}

/// A number of pages that count as leaked when it is dropped.
struct Unproven(usize);

impl Drop for Unproven {
    fn drop(&mut self) {
        LEAKED.fetch_add(self.0, Relaxed);
    }
}

/// Pages that are pinned and charged, and that the device can access by page entries in the same
/// order. If dropped without a [`Proof`], they stay pinned and charged forever.
pub(crate) struct Reachable {
    pages: ChargedPages,
    run: PageRun,
    unproven: Unproven,
}

impl Reachable {
    /// Creates an object of `pages` with page entries `run`.
    pub(super) fn new(pages: ChargedPages, run: PageRun) -> Self {
        Self {
            unproven: Unproven(pages.pages().len()),
            pages,
            run,
        }
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &PinnedPages {
        self.pages.pages()
    }

    /// Shares the pins with other devices from now on.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; nothing has changed then.
    pub(crate) fn share(&mut self, shared: &Arc<SharedPins>) -> Result {
        self.pages.share(shared)
    }

    /// The page entries.
    pub(crate) fn run(&self) -> &PageRun {
        &self.run
    }

    /// Notes that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.pages.set_writable();
    }

    /// Notes that the pages are marked as dirty, and are so until they are unpinned.
    pub(crate) fn set_clean(&mut self) {
        self.pages.set_clean();
    }

    /// Splits off what begins with page number `at`.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        // A run has no more than `u32::MAX` pages.
        let run = self.run.split_off(u32::try_from(at).unwrap_or(u32::MAX));
        let pages = self.pages.split_off(at);
        self.unproven.0 -= pages.pages().len();
        Self::new(pages, run)
    }

    /// Returns true if `next` was split off from this, and follows.
    pub(crate) fn can_join(&self, next: &Self) -> bool {
        self.run.can_join(&next.run) && self.pages.can_join(&next.pages)
    }

    /// Joins `next`, which [can be joined](Self::can_join).
    pub(crate) fn join(&mut self, mut next: Self) {
        self.run.count += next.run.count;
        self.pages.join(next.pages.split_off(0));
        self.unproven.0 += core::mem::take(&mut next.unproven.0);
    }

    /// Lets the pages be unpinned, and then uncharged, when the object is dropped.
    pub(crate) fn prove(&mut self, _: &Proof) {
        self.unproven.0 = 0;
    }
}

impl Drop for Reachable {
    fn drop(&mut self) {
        if self.unproven.0 > 0 {
            // All of them: what is left has neither pages nor a charge.
            core::mem::forget(self.pages.split_off(0));
        }
    }
}

#[kunit_tests(uldma_tpt_reach)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_without_a_proof_is_counted() {
        let before = leaked();
        drop(Unproven(0));
        assert_eq!(leaked(), before);
        drop(Unproven(3));
        assert_eq!(leaked(), before + 3);
        LEAKED.store(before, Relaxed);
    }

    #[test]
    fn runs_are_divided_and_joined() {
        let mut run = PageRun {
            first: 8,
            count: 5,
            first_of_run: 8,
        };
        let tail = run.split_off(2);
        assert_eq!((run.first, run.count), (8, 2));
        assert_eq!((tail.first, tail.count), (10, 3));
        assert!(run.can_join(&tail));
        assert!(!tail.can_join(&run));
        let none = run.split_off(9);
        assert_eq!((run.count, none.count), (2, 0));
    }
}
