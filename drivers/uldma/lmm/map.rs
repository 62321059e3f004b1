// SPDX-License-Identifier: GPL-2.0

//! The map of locked memory areas: which pages are locked, and by how many locks.
//!
//! An area is a range of pages that have the same lock count. Those that were pinned in one go are
//! of one *lineage*: splitting keeps the lineage, so a lock that names lineage and range still
//! finds its areas after others split them, and finds none that was pinned later for the same
//! addresses.
//!
//! Areas that new locks may use are *live*, and disjoint. An area whose addresses mean other memory
//! now is stale: it stays for the locks that it has.
//!
//! An area is split where a lock begins or ends inside of it, and merged again when the last lock
//! that begins or ends there is gone. So ending a lock never splits, which could fail.
//!
//! Two [`RBTree`]s rather than a maple tree: keys are pairs for one of them, and what is reserved
//! before a change has to be nodes, so that the change itself cannot fail.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    }, //
};

use super::range::PageRange;

/// What an area consists of, beside its range and its count.
pub(super) trait Payload {
    /// Splits off what belongs to page number `at` and later ones.
    fn split_off(&mut self, at: usize) -> Self;

    /// Whether `next`, which was split off from the same payload and follows, can be joined.
    fn can_join(&self, next: &Self) -> bool;

    /// Takes `next` back.
    fn join(&mut self, next: Self);
}

/// A locked memory area.
pub(super) struct Area<P> {
    pub(super) range: PageRange,
    pub(super) payload: P,
    /// Locks that hold the area.
    pub(super) users: usize,
    /// Locks of the lineage that begin or end at the area's first page.
    edges: usize,
}

/// Names an area: lineage and first page.
type Key = (u64, usize);

/// All areas of an address space.
pub(super) struct AreaMap<P> {
    all: RBTree<Key, Area<P>>,
    /// Lineages of the live areas, by first page.
    live: RBTree<usize, u64>,
    lineages: u64,
    count: usize,
    merge: bool,
}

/// An area that is ready to be inserted.
pub(super) struct NewArea<P> {
    pub(super) lineage: u64,
    pub(super) range: PageRange,
    pub(super) payload: P,
    all: RBTreeNodeReservation<Key, Area<P>>,
    live: RBTreeNode<usize, u64>,
}

impl<P> NewArea<P> {
    /// Prepares an area.
    pub(super) fn new(
        lineage: u64,
        range: PageRange,
        payload: impl FnOnce() -> Result<P>,
    ) -> Result<Self> {
        let live = RBTreeNode::new(range.start, lineage, GFP_KERNEL_ACCOUNT)?;
        let all = RBTreeNodeReservation::new(GFP_KERNEL_ACCOUNT)?;
        Ok(Self {
            lineage,
            range,
            payload: payload()?,
            all,
            live,
        })
    }
}

impl<P: Payload> AreaMap<P> {
    /// Creates an empty map, which merges areas or leaves what was split.
    pub(super) fn new(merge: bool) -> Self {
        Self {
            all: RBTree::new(),
            live: RBTree::new(),
            lineages: 0,
            count: 0,
            merge,
        }
    }

    /// A name for areas that are pinned in one go.
    pub(super) fn new_lineage(&mut self) -> u64 {
        self.lineages += 1;
        self.lineages
    }

    /// Number of areas.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Live areas that intersect `range`, in order, with their lineages.
    pub(super) fn live(&self, range: PageRange) -> impl Iterator<Item = (u64, &Area<P>)> {
        let mut next = self.live_before(range.start).unwrap_or(range.start);
        core::iter::from_fn(move || {
            let cursor = self.live.cursor_lower_bound(&next)?;
            let (&start, &lineage) = cursor.current();
            let area = self.all.get(&(lineage, start))?;
            next = area.range.end;
            (start < range.end).then_some((lineage, area))
        })
    }

    /// Areas of `lineage` in `part`, which begins and ends where areas do.
    pub(super) fn areas(&self, lineage: u64, part: PageRange) -> impl Iterator<Item = &Area<P>> {
        let mut start = part.start;
        core::iter::from_fn(move || {
            let inside = start < part.end;
            let area = self.all.get(&(lineage, start)).filter(|_| inside)?;
            start = area.range.end;
            Some(area)
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

    fn is_live(&self, lineage: u64, start: usize) -> bool {
        self.live.get(&start) == Some(&lineage)
    }

    /// Splits the live area that page `at` is inside of, if any, so that one starts there.
    ///
    /// What is not needed in the end is taken back by [`AreaMap::unsplit`].
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
        let tail = Area {
            range: PageRange {
                start: at,
                end: area.range.end,
            },
            payload: area.payload.split_off(at - area.range.start),
            users: area.users,
            edges: 0,
        };
        area.range.end = at;
        self.all.insert(all.into_node((lineage, at), tail));
        self.live.insert(live);
        self.count += 1;
        Ok(())
    }

    /// Takes back what [`AreaMap::split`] did in `range` and at its ends.
    pub(super) fn unsplit(&mut self, range: PageRange) {
        let mut from = range.start;
        while let Some(cursor) = self.live.cursor_lower_bound(&from) {
            let (&start, &lineage) = cursor.current();
            if start > range.end {
                return;
            }
            self.merge_at(lineage, start);
            from = start + 1;
        }
    }

    /// Merges the area of `lineage` that starts at page `at` with the one before it, if no lock
    /// begins or ends between them and nothing else tells them apart.
    fn merge_at(&mut self, lineage: u64, at: usize) {
        let key = (lineage, at);
        let Some(next) = self.all.get(&key).filter(|_| self.merge) else {
            return;
        };
        let before = self.all.cursor_lower_bound(&key).and_then(|cursor| {
            let (key, area) = cursor.peek_prev()?;
            let same = key.0 == lineage && area.range.end == at && area.users == next.users;
            (same && next.edges == 0 && area.payload.can_join(&next.payload)).then_some(*key)
        });
        let Some(before) = before else {
            return;
        };
        if self.is_live(lineage, before.1) != self.is_live(lineage, at) {
            return;
        }
        self.retire(lineage, at);
        if let Some(next) = self.all.remove(&key) {
            self.count -= 1;
            if let Some(area) = self.all.get_mut(&before) {
                area.range.end = next.range.end;
                area.payload.join(next.payload);
            }
        }
    }

    /// Applies `change` to the payloads of the areas of `lineage` in `part`.
    pub(super) fn change(
        &mut self,
        lineage: u64,
        part: PageRange,
        mut change: impl FnMut(&mut P) -> Result,
    ) -> Result {
        let mut start = part.start;
        while start < part.end {
            let area = self.all.get_mut(&(lineage, start)).ok_or(EINVAL)?;
            change(&mut area.payload)?;
            start = area.range.end;
        }
        Ok(())
    }

    /// Lets no new lock use the area of `lineage` that starts at page `start`.
    pub(super) fn retire(&mut self, lineage: u64, start: usize) {
        if self.is_live(lineage, start) {
            self.live.remove(&start);
        }
    }

    /// Inserts an area without users.
    pub(super) fn insert(&mut self, new: NewArea<P>) {
        let area = Area {
            range: new.range,
            payload: new.payload,
            users: 0,
            edges: 0,
        };
        let key = (new.lineage, new.range.start);
        self.all.insert(new.all.into_node(key, area));
        self.live.insert(new.live);
        self.count += 1;
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
        for at in [part.start, part.end] {
            if let Some(area) = self.all.get_mut(&(lineage, at)) {
                area.edges += 1;
            }
        }
    }

    /// Counts one lock less on the areas of `lineage` in `part`, which were held; takes those that
    /// have none left out, into `ended`.
    pub(super) fn release(&mut self, lineage: u64, part: PageRange, ended: &mut Ended<P>) {
        for at in [part.start, part.end] {
            // Where the lineage ended when the lock was made, it still does.
            if let Some(area) = self.all.get_mut(&(lineage, at)) {
                area.edges -= 1;
            }
        }
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
            self.retire(lineage, key.1);
            if let Some(node) = self.all.remove_node(&key) {
                self.count -= 1;
                ended.nodes.insert(node);
            }
        }
        self.merge_at(lineage, part.start);
        self.merge_at(lineage, part.end);
    }
}

/// Areas that no lock holds any more.
pub(super) struct Ended<P> {
    nodes: RBTree<Key, Area<P>>,
}

impl<P> Default for Ended<P> {
    fn default() -> Self {
        Self {
            nodes: RBTree::new(),
        }
    }
}

impl<P> Ended<P> {
    /// The areas.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Area<P>> {
        self.nodes.values()
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Pages of all areas.
    pub(super) fn pages(&self) -> usize {
        self.iter().map(|area| area.range.len()).sum()
    }

    /// Takes what the areas consist of.
    pub(super) fn into_payloads(mut self) -> impl Iterator<Item = P> {
        core::iter::from_fn(move || {
            let key = *self.nodes.keys().next()?;
            self.nodes.remove(&key).map(|area| area.payload)
        })
    }
}
