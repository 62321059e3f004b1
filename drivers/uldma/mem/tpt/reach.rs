// SPDX-License-Identifier: GPL-2.0

//! What the device can reach by page entries, and the proof that it cannot any more.
//!
//! The device finds a page entry and uses the address that it found later, so clearing the entry proves
//! nothing: an invalidation has to be issued after that, and to return. Page entries are shared by
//! all locks of a space, and a transfer that names a page without its region is not ended with the
//! region, so an invalidation that was issued before proves nothing either.
//!
//! Types say so. What has page entries is [`Entered`]; [`Tpt::retract`] clears them, which gives
//! [`Retracted`], and only [`Retracted::invalidate`], or a device that is [quiet](Quiet), makes a
//! [`Proof`], for which page entries are used anew and pages are unpinned. [`Reachable`] pages that are
//! dropped in any other way stay pinned, and are counted.

use core::mem::ManuallyDrop;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Completion, //
    }, //
};

use crate::{
    hw::Hardware,
    kernel_ext::gup::PinnedPages,
    mem::charge::Charge, //
};

use super::Tpt;

/// Pages that no proof came for, of all devices since the module was loaded.
static LEAKED: Atomic<usize> = Atomic::new(0);

/// Pages that stay pinned although no lock has them, since no proof came.
pub(crate) fn leaked() -> usize {
    LEAKED.load(Relaxed)
}

/// What the device is told before pages go.
#[derive(Clone, Copy)]
pub(crate) enum InvalidateScope {
    /// This region was retracted, and may be in use.
    Region(u32),
    /// All regions of this space were retracted, and may be in use.
    Space(u32),
    /// Page entries were retracted, if any were.
    Pages,
}

/// The device cannot reach what this was made for.
pub(crate) struct Proof(());

/// Consecutive page entries, which no other run has. Those of a run that is dropped stay taken.
#[derive(Debug)]
pub(crate) struct PageRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// First entry of the run that this one was split off from, or of itself. The places of a run
    /// are used anew once all that was split off from it is gone.
    pub(super) first_of_run: u32,
}

impl PageRun {
    /// Splits off what begins with page number `at`.
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

    /// Whether `next` was split off from this run and follows.
    fn can_join(&self, next: &Self) -> bool {
        self.first_of_run == next.first_of_run && self.first + self.count == next.first
    }
}

/// What has page entries.
pub(crate) trait Entered {
    /// What is left once they are gone.
    type Freed;

    /// Gives `each` its page entries.
    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun));

    /// Lets go of what only the device kept.
    fn free(self, proof: &Proof) -> Self::Freed;
}

impl Entered for PageRun {
    type Freed = ();

    fn for_each_run(&self, each: &mut dyn FnMut(&PageRun)) {
        each(self);
    }

    fn free(self, _: &Proof) {}
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

/// What had page entries that are not valid any more, but that the device may still use.
#[must_use]
pub(crate) struct Retracted<'a, E> {
    tpt: &'a Tpt,
    entered: E,
}

impl Tpt {
    /// Makes the page entries of `entered` invalid.
    pub(crate) fn retract<E: Entered>(&self, entered: E) -> Retracted<'_, E> {
        entered.for_each_run(&mut |run| self.retract_pages(run));
        Retracted { tpt: self, entered }
    }
}

impl<E: Entered> Retracted<'_, E> {
    /// Tells the device, and ends DMA mappings and page entries once it has answered.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` when it does not answer: with what has the page entries, which it may use as long as it
    /// is not quiet.
    pub(crate) fn invalidate(
        self,
        dev: &Device<Bound>,
        hw: &dyn Hardware,
        scope: InvalidateScope,
    ) -> Result<E::Freed, (Error, E)> {
        let mut any = false;
        self.entered.for_each_run(&mut |run| any |= run.count > 0);
        let result = match scope {
            InvalidateScope::Region(region) => hw.invalidate_region(dev, region),
            InvalidateScope::Space(space) => hw.invalidate_space(dev, space),
            // Any will do, and this one ends nothing.
            InvalidateScope::Pages if any => hw.invalidate_region(dev, 0),
            InvalidateScope::Pages => Ok(()),
        };
        match result {
            Ok(()) => {
                let remove = &mut |run: &PageRun| self.tpt.remove_pages(dev, run);
                self.entered.for_each_run(remove);
                Ok(self.entered.free(&Proof(())))
            }
            Err(err) => Err((err, self.entered)),
        }
    }
}

/// Whether the device has been made to do no DMA any more, for good.
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

    /// Says that it has, and that nothing is mapped for it.
    pub(super) fn complete(&self) {
        self.done.store(true, Release);
        self.completion.complete_all();
    }

    /// Waits for that; it comes, once the gate is closed.
    pub(crate) fn wait(&self) -> Proof {
        self.completion.wait_for_completion();
        Proof(())
    }

    /// The proof, if there is one now.
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

/// Pages that are pinned and charged, and that the device can reach by page entries, in the same
/// order. Dropped without a [`Proof`] they stay pinned and charged for ever.
pub(crate) struct Reachable {
    pages: ManuallyDrop<PinnedPages>,
    charge: ManuallyDrop<Charge>,
    run: PageRun,
    unproven: Unproven,
}

impl Reachable {
    /// `pages`, charged to `charge`, to which `run` was given.
    pub(super) fn new(pages: PinnedPages, charge: Charge, run: PageRun) -> Self {
        Self {
            unproven: Unproven(pages.len()),
            pages: ManuallyDrop::new(pages),
            charge: ManuallyDrop::new(charge),
            run,
        }
    }

    /// The pages.
    pub(crate) fn pages(&self) -> &PinnedPages {
        &self.pages
    }

    /// The page entries.
    pub(crate) fn run(&self) -> &PageRun {
        &self.run
    }

    /// Remembers that the device may write to the pages from now on.
    pub(crate) fn set_writable(&mut self) {
        self.pages.set_writable();
    }

    /// Splits off what begins with page number `at`.
    pub(crate) fn split_off(&mut self, at: usize) -> Self {
        // A run has no more than `u32::MAX` pages.
        let run = self.run.split_off(u32::try_from(at).unwrap_or(u32::MAX));
        let pages = self.pages.split_off(at);
        let charge = self.charge.split(pages.len());
        self.unproven.0 -= pages.len();
        Self::new(pages, charge, run)
    }

    /// Whether `next` was split off from this, and follows.
    pub(crate) fn can_join(&self, next: &Self) -> bool {
        self.run.can_join(&next.run) && self.pages.can_join(&next.pages)
    }

    /// Takes `next` back, which [can be joined](Self::can_join).
    pub(crate) fn join(&mut self, next: Self) {
        let Self {
            pages,
            charge,
            run,
            mut unproven,
        } = next;
        self.run.count += run.count;
        self.pages.join(ManuallyDrop::into_inner(pages));
        self.charge.join(ManuallyDrop::into_inner(charge));
        self.unproven.0 += core::mem::take(&mut unproven.0);
    }

    /// Unpins the pages, then gives them back to the limit.
    pub(crate) fn free(self, _: &Proof) {
        let Self {
            pages,
            charge,
            mut unproven,
            ..
        } = self;
        unproven.0 = 0;
        drop(ManuallyDrop::into_inner(pages));
        drop(ManuallyDrop::into_inner(charge));
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
