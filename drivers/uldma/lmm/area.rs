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
    /// Whether page number `page` of `pages`, pinned just now from page `start` on, is the one that
    /// this area has.
    fn is_same(&self, page: usize, pages: &PinnedPages, start: usize) -> bool {
        self.pages.pfn(page - self.range.start) == pages.pfn(page - start)
    }

    /// Whether the area, whose pages [`Areas::split_stale`] made equal in this, is what `pages`,
    /// pinned just now from page `start` on, say.
    pub(super) fn is_fresh(&self, pages: &PinnedPages, start: usize) -> bool {
        self.is_same(self.range.start, pages, start)
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
    /// Areas that the device did not let go of: pinned until the address space's last opener and
    /// the device's binding are gone.
    stuck: KVec<Area>,
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
    /// A name for the areas of one more lock.
    pub(super) fn new_lineage(&mut self) -> u64 {
        self.lineages += 1;
        self.lineages
    }

    /// Live areas that intersect `range`, in order, with their lineages.
    pub(super) fn live(&self, range: PageRange) -> impl Iterator<Item = (u64, &Area)> {
        let mut next = self.live_before(range.start).unwrap_or(range.start);
        core::iter::from_fn(move || {
            let cursor = self.live.cursor_lower_bound(&next)?;
            let (&start, &lineage) = cursor.current();
            let area = self.all.get(&(lineage, start))?;
            next = area.range.end;
            (start < range.end).then_some((lineage, area))
        })
    }

    /// Start of the live area that begins before `page` and contains it.
    fn live_before(&self, page: usize) -> Option<usize> {
        let before = match self.live.cursor_lower_bound(&page) {
            Some(cursor) => cursor
                .peek_prev()
                .map(|(start, lineage)| (*lineage, *start)),
            None => self.live.cursor_back().map(|cursor| {
                let (start, lineage) = cursor.current();
                (*lineage, *start)
            }),
        }?;
        let area = self.all.get(&before)?;
        (area.range.end > page).then_some(area.range.start)
    }

    /// Splits the live areas in `range`, which are split at its ends, so that each is stale as a
    /// whole or not at all, as `fresh` pins of the whole range tell.
    pub(super) fn split_stale(&mut self, range: PageRange, fresh: &PinnedPages) -> Result {
        let mut from = range;
        while let Some(at) = self.first_change(from, range.start, fresh) {
            self.split(at)?;
            from.start = at;
        }
        Ok(())
    }

    /// The first page in a live area of `range` that differs from the one before it in whether it
    /// is stale.
    fn first_change(&self, range: PageRange, start: usize, fresh: &PinnedPages) -> Option<usize> {
        self.live(range).find_map(|(_, area)| {
            let first = area.is_fresh(fresh, start);
            (area.range.start..area.range.end)
                .find(|&page| area.is_same(page, fresh, start) != first)
        })
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

    /// Counts one lock less on the areas of `lineage` in `part`; takes those that have none left
    /// out, into `ended`, which has room for them.
    pub(super) fn release(&mut self, lineage: u64, part: PageRange, ended: &mut Ended) {
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
            if self.live.get(&key.1) == Some(&lineage) {
                self.live.remove(&key.1);
            }
            if let Some(node) = self.all.remove_node(&key) {
                ended.nodes.insert(node);
            }
        }
    }

    /// Keeps areas that the device did not let go of.
    pub(super) fn keep(&mut self, ended: Ended) {
        for area in ended.into_areas() {
            if self.stuck.reserve(1, GFP_KERNEL).is_err() {
                // Pinned for ever is bad; freed under the device would be worse.
                core::mem::forget(area);
                continue;
            }
            // There is room for one more.
            let _ = self.stuck.push(area, GFP_KERNEL);
        }
    }
}

/// Areas that no lock holds any more; dropping it unpins them.
#[derive(Default)]
pub(super) struct Ended {
    nodes: RBTree<Key, Area>,
}

impl Ended {
    /// The areas' page entries.
    pub(super) fn runs(&self) -> impl Iterator<Item = PageRun> + '_ {
        self.nodes.values().map(|area| area.run)
    }

    /// Pages of all areas.
    pub(super) fn pages(&self) -> usize {
        self.nodes.values().map(|area| area.range.len()).sum()
    }

    fn into_areas(mut self) -> impl Iterator<Item = Area> {
        core::iter::from_fn(move || {
            let key = *self.nodes.keys().next()?;
            self.nodes.remove(&key)
        })
    }
}
