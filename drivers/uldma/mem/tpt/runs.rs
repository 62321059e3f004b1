// SPDX-License-Identifier: GPL-2.0

//! Allocation of page entries, as runs of consecutive ones.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    prelude::*,
    rbtree::RBTreeNode, //
};

use super::{
    own::OwnPages,
    PageRun,
    Tables, //
};
use crate::user_abi::ledger::Share;

/// Page entries that were allocated together.
pub(super) struct TakenRun {
    count: u32,
    /// Entries that were not freed yet.
    users: u32,
    /// The share for them, if they are not entries of pinned pages.
    share: Option<Share>,
    /// The pages, if they are the driver's.
    pub(super) own: Option<OwnPages>,
}

impl Tables {
    /// Allocates `count` consecutive page entries.
    pub(super) fn take_run(&mut self, dev: &Device<Bound>, count: u32) -> Result<PageRun> {
        let first = match self.take_spare_run(count) {
            Some(first) => first,
            None => self.take_new_run(dev, count)?,
        };
        self.usage.pages += count;
        Ok(PageRun {
            first,
            count,
            first_of_run: first,
        })
    }

    fn take_new_run(&mut self, dev: &Device<Bound>, count: u32) -> Result<u32> {
        let size = usize::try_from(count)?;
        let range = 0..usize::try_from(self.page_capacity)?;
        let first = match self.page_runs.take(size, range.clone()) {
            Err(ENOSPC) if self.free_spare_run() => self.page_runs.take(size, range),
            result => result,
        }?;
        let result = self.reserve_run(dev, first, count);
        if result.is_err() {
            self.page_runs.give_back(first);
        }
        result
    }

    fn reserve_run(&mut self, dev: &Device<Bound>, first: usize, count: u32) -> Result<u32> {
        let first = u32::try_from(first)?;
        let taken = TakenRun {
            count,
            users: count,
            share: None,
            own: None,
        };
        let node = RBTreeNode::new(first, taken, GFP_KERNEL)?;
        self.pages.reserve(dev, first, count)?;
        self.taken_runs.insert(node);
        Ok(first)
    }

    /// Takes the spare run if it has `count` entries.
    fn take_spare_run(&mut self, count: u32) -> Option<u32> {
        let taken = self.taken_runs.get_mut(&self.spare_run?)?;
        if taken.count != count {
            return None;
        }
        taken.users = count;
        self.spare_run.take()
    }

    /// Frees the spare run. Returns true if there was one.
    pub(super) fn free_spare_run(&mut self) -> bool {
        let Some(first) = self.spare_run.take() else {
            return false;
        };
        self.taken_runs.remove(&first);
        // Entries are numbered by `u32`, which fits.
        self.page_runs.give_back(first as usize)
    }

    /// Keeps `share` until `run`, which was just allocated, is freed.
    pub(super) fn pay_for_run(&mut self, run: &PageRun, share: Share) {
        if let Some(taken) = self.taken_runs.get_mut(&run.first_of_run) {
            taken.share = Some(share);
        }
    }

    /// Keeps `pages` until `run`, which was just allocated, is freed.
    pub(super) fn own_pages(&mut self, run: &PageRun, pages: OwnPages) {
        if let Some(taken) = self.taken_runs.get_mut(&run.first_of_run) {
            taken.own = Some(pages);
        }
    }

    /// Frees a run, and unmaps its pages.
    pub(super) fn drop_run(&mut self, dev: &Device<Bound>, run: &PageRun) {
        self.drop_entries(dev, run.entries());
        self.usage.pages -= run.count;
        let Some(taken) = self.taken_runs.get_mut(&run.first_of_run) else {
            return;
        };
        taken.users -= run.count;
        if taken.users == 0 {
            taken.share = None;
            taken.own = None;
            self.free_spare_run();
            self.spare_run = Some(run.first_of_run);
        }
    }
}
