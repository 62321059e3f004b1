// SPDX-License-Identifier: GPL-2.0

//! Locked memory areas, and the map of them.
//!
//! An area is a range of pages that have the same lock count. Those that were pinned in one go are
//! of one *lineage*: splitting keeps the lineage, so a lock that names lineage and range still
//! finds its areas after others split them, and finds none that was pinned later for the same
//! addresses.
//!
//! Areas that new locks may use are *live*, and disjoint. An area whose addresses were mapped anew
//! since is stale: it stays for the locks that it has.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    }, //
};

use crate::{
    access::Access,
    kernel_ext::{
        accounting::Charge,
        gup::PinnedPages, //
    },
    tpt::{
        PageRun,
        Tpt, //
    }, //
};

use super::range::PageRange;

/// A locked memory area.
pub(super) struct Area {
    pub(super) range: PageRange,
    /// Dropped to unpin; marks pages dirty if the device could write.
    pages: PinnedPages,
    /// Dropped, after the pins, to give the pages back to the limit.
    charge: Charge,
    pub(super) access: Access,
    /// The page entries, in the same order.
    pub(super) run: PageRun,
    /// Locks that hold the area.
    users: usize,
}

impl Area {
    /// Whether `pages`, pinned just now from page `start` on, are the ones of this area in `part`.
    pub(super) fn is_same(&self, part: PageRange, pages: &PinnedPages, start: usize) -> bool {
        (part.start..part.end)
            .all(|page| self.pages.pfn(page - self.range.start) == pages.pfn(page - start))
    }

    /// Gives the area the rights of one more lock.
    fn allow(&mut self, access: Access, tpt: &Tpt) -> Result {
        if !self.access.covers(access) {
            tpt.allow(self.run, access)?;
            self.access.read |= access.read;
            self.access.write |= access.write;
            if access.write {
                self.pages.set_writable();
            }
        }
        Ok(())
    }
}

/// Names an area: lineage and first page.
type Key = (u64, usize);

/// All areas of an address space.
#[derive(Default)]
pub(super) struct Areas {
    all: RBTree<Key, Area>,
    /// Lineages of the live areas, by first page.
    live: RBTree<usize, u64>,
    lineages: u64,
}

/// An area that is ready to be inserted.
pub(super) struct NewArea {
    key: Key,
    area: Area,
    all: RBTreeNodeReservation<Key, Area>,
    live: RBTreeNode<usize, u64>,
}

impl NewArea {
    /// Prepares an area of `pages`, which are `range`, with the page entries that `enter` makes.
    pub(super) fn new(
        lineage: u64,
        range: PageRange,
        access: Access,
        pages: PinnedPages,
        charge: Charge,
        enter: impl FnOnce(&PinnedPages) -> Result<PageRun>,
    ) -> Result<Self> {
        let live = RBTreeNode::new(range.start, lineage, GFP_KERNEL_ACCOUNT)?;
        let all = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let run = enter(&pages)?;
        let area = Area {
            range,
            pages,
            charge,
            access,
            run,
            users: 0,
        };
        Ok(Self {
            key: (lineage, range.start),
            area,
            all,
            live,
        })
    }

    /// The pages.
    pub(super) fn range(&self) -> PageRange {
        self.area.range
    }

    /// The page entries.
    pub(super) fn run(&self) -> PageRun {
        self.area.run
    }
}

impl Areas {
    /// Pages of all areas.
    pub(super) fn pages(&self) -> usize {
        self.all.values().map(|area| area.range.len()).sum()
    }

    /// A name for the areas of one more lock.
    pub(super) fn new_lineage(&mut self) -> u64 {
        self.lineages += 1;
        self.lineages
    }

    /// Live areas that intersect `range`, in order, with their lineages.
    pub(super) fn live(&self, range: PageRange) -> impl Iterator<Item = (u64, &Area)> {
        self.live
            .iter()
            .filter_map(|(start, lineage)| Some((*lineage, self.all.get(&(*lineage, *start))?)))
            .skip_while(move |(_, area)| area.range.end <= range.start)
            .take_while(move |(_, area)| area.range.start < range.end)
    }

    /// Splits the live area that page `at` is inside of, if any, so that one starts there.
    ///
    /// Nobody can tell the difference, so this needs no undoing when something later fails.
    pub(super) fn split(&mut self, at: usize) -> Result {
        let point = PageRange {
            start: at,
            end: at + 1,
        };
        let inside = self.live(point).find(|(_, area)| area.range.start < at);
        let Some(key) = inside.map(|(lineage, area)| (lineage, area.range.start)) else {
            return Ok(());
        };
        let (lineage, _) = key;
        let live = RBTreeNode::new(at, lineage, GFP_KERNEL_ACCOUNT)?;
        let all = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        let area = self.all.get_mut(&key).ok_or(EINVAL)?;

        let head = at - area.range.start;
        let pages = area.pages.split_off(head)?;
        let (first, rest) = area.run.split(u32::try_from(head)?);
        let tail = Area {
            range: PageRange {
                start: at,
                end: area.range.end,
            },
            charge: area.charge.split(pages.len()),
            pages,
            access: area.access,
            run: rest,
            users: area.users,
        };
        area.range.end = at;
        area.run = first;
        self.all.insert(all.into_node((lineage, at), tail));
        self.live.insert(live);
        Ok(())
    }

    /// Gives the areas of `lineage` in `part` more rights.
    pub(super) fn allow(
        &mut self,
        lineage: u64,
        part: PageRange,
        access: Access,
        tpt: &Tpt,
    ) -> Result {
        let mut start = part.start;
        while start < part.end {
            let area = self.all.get_mut(&(lineage, start)).ok_or(EINVAL)?;
            area.allow(access, tpt)?;
            start = area.range.end;
        }
        Ok(())
    }

    /// Lets no new lock use the area that starts at page `start`.
    pub(super) fn retire(&mut self, start: usize) {
        self.live.remove(&start);
    }

    /// Inserts an area without users.
    pub(super) fn insert(&mut self, new: NewArea) {
        self.all.insert(new.all.into_node(new.key, new.area));
        self.live.insert(new.live);
    }

    /// Counts one lock more on the areas of `lineage` in `part`.
    pub(super) fn hold(&mut self, lineage: u64, part: PageRange) {
        let mut start = part.start;
        while start < part.end {
            let Some(area) = self.all.get_mut(&(lineage, start)) else {
                return;
            };
            area.users += 1;
            start = area.range.end;
        }
    }

    /// Counts one lock less on the areas of `lineage` in `part`, and hands those that have none
    /// left to `end`, just before they are unpinned.
    pub(super) fn release(&mut self, lineage: u64, part: PageRange, mut end: impl FnMut(PageRun)) {
        let mut start = part.start;
        while start < part.end {
            let key = (lineage, start);
            let Some(area) = self.all.get_mut(&key) else {
                return;
            };
            area.users -= 1;
            start = area.range.end;
            if area.users > 0 {
                continue;
            }
            if let Some(area) = self.all.remove(&key) {
                if self.live.get(&area.range.start) == Some(&lineage) {
                    self.live.remove(&area.range.start);
                }
                end(area.run);
            }
        }
    }
}
