// SPDX-License-Identifier: GPL-2.0

//! The map of pinned memory areas: which pages are pinned, and for how many ranges.
//!
//! An area is a range of pages with the same number of users. Pages that were pinned together have
//! one *pin id*, which splitting keeps. So a pinned range, which names pin ids and pages, still
//! finds its areas after others split them, and finds none that was pinned later for the same
//! addresses.
//!
//! Areas that new pins may use are *live*, and disjoint. An area whose addresses mean other memory
//! now is *stale*: it stays for the ranges that have it.
//!
//! A live area is split where a range begins or ends inside of it, and merged again when the last
//! range that begins or ends there has ended. So unpinning never splits, which could fail.
//!
//! There are two [`RBTree`]s rather than a maple tree: an area that goes stale moves from one to
//! the other with its node, and nodes can be reserved before a change, so that the change cannot
//! fail.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode,
        RBTreeNodeReservation, //
    }, //
};

use super::range::PageRange;

/// The payload of an area.
pub(super) trait Payload {
    /// Splits off the pages from page number `at` on.
    fn split_off(&mut self, at: usize) -> Self;

    /// Returns true if `next`, which was split off from the same payload and follows, can be
    /// joined.
    fn can_join(&self, next: &Self) -> bool;

    /// Takes `next` back.
    fn join(&mut self, next: Self);
}

/// A pinned memory area.
pub(super) struct Area<P> {
    pub(super) range: PageRange,
    pub(super) payload: P,
    /// Number of ranges that have the area.
    pub(super) users: usize,
    /// Number of ranges that begin or end at the first page of the area.
    edges: usize,
}

/// The key of an area: first page and pin id.
pub(super) type AreaKey = (usize, u64);

/// Memory for an area.
pub(super) type AreaRoom<P> = RBTreeNodeReservation<AreaKey, Area<P>>;

/// All areas of an address space.
pub(super) struct AreaMap<P> {
    live: RBTree<AreaKey, Area<P>>,
    stale: RBTree<AreaKey, Area<P>>,
    pin_ids: u64,
    count: usize,
    merge: bool,
}

impl<P: Payload> AreaMap<P> {
    /// Creates an empty map, which merges areas or leaves what was split.
    pub(super) fn new(merge: bool) -> Self {
        Self {
            live: RBTree::new(),
            stale: RBTree::new(),
            pin_ids: 0,
            count: 0,
            merge,
        }
    }

    /// Returns a pin id for areas that are pinned together.
    pub(super) fn new_pin_id(&mut self) -> u64 {
        self.pin_ids += 1;
        self.pin_ids
    }

    /// Number of areas.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Live areas that intersect `range`, in order, with their lineages.
    pub(super) fn live(&self, range: PageRange) -> impl Iterator<Item = (u64, &Area<P>)> {
        let before = self.live_before(range.start);
        let inside = before.filter(|(_, area)| area.range.end > range.start);
        let mut next = inside.map_or(range.start, |((start, _), _)| start);
        core::iter::from_fn(move || {
            let key = *self.live.cursor_lower_bound(&(next, 0))?.current().0;
            let area = self.live.get(&key).filter(|_| key.0 < range.end)?;
            next = area.range.end;
            Some((key.1, area))
        })
    }

    /// Returns true if no live area has a page of `range`.
    pub(super) fn is_vacant(&self, range: PageRange) -> bool {
        self.live(range).next().is_none()
    }

    /// Areas of `pin_id` in `part`, which begins and ends where areas do.
    pub(super) fn areas(&self, pin_id: u64, part: PageRange) -> impl Iterator<Item = &Area<P>> {
        let mut start = part.start;
        core::iter::from_fn(move || {
            let inside = start < part.end;
            let area = self.get(pin_id, start).filter(|_| inside)?;
            start = area.range.end;
            Some(area)
        })
    }

    /// The area of `pin_id` that starts at page `start`.
    fn get(&self, pin_id: u64, start: usize) -> Option<&Area<P>> {
        let key = (start, pin_id);
        self.live.get(&key).or_else(|| self.stale.get(&key))
    }

    fn get_mut(&mut self, pin_id: u64, start: usize) -> Option<&mut Area<P>> {
        let key = (start, pin_id);
        match self.live.get_mut(&key) {
            Some(area) => Some(area),
            None => self.stale.get_mut(&key),
        }
    }

    /// The last live area that begins before `page`.
    fn live_before(&self, page: usize) -> Option<(AreaKey, &Area<P>)> {
        let key = match self.live.cursor_lower_bound(&(page, 0)) {
            Some(cursor) => *cursor.peek_prev()?.0,
            None => *self.live.cursor_back()?.current().0,
        };
        Some((key, self.live.get(&key)?))
    }

    /// Splits the live area that page `at` is inside of, if any, so that one starts there.
    ///
    /// [`AreaMap::unsplit`] undoes splits that turn out to be unnecessary.
    pub(super) fn split(&mut self, at: usize) -> Result {
        let before = self.live_before(at);
        let inside = before.filter(|(_, area)| area.range.end > at);
        let Some((key, _)) = inside else {
            return Ok(());
        };
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let area = self.live.get_mut(&key).ok_or(EINVAL)?;
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
        self.live.insert(node.into_node((at, key.1), tail));
        self.count += 1;
        Ok(())
    }

    /// Takes back what [`AreaMap::split`] did in `range` and at its ends.
    pub(super) fn unsplit(&mut self, range: PageRange) {
        let mut from = range.start;
        while let Some(cursor) = self.live.cursor_lower_bound(&(from, 0)) {
            let (start, pin_id) = *cursor.current().0;
            if start > range.end {
                return;
            }
            self.merge_at(pin_id, start);
            from = start + 1;
        }
    }

    /// Merges the live area of `pin_id` that starts at page `at` with the one before it, if no
    /// range begins or ends between them and nothing else distinguishes them.
    fn merge_at(&mut self, pin_id: u64, at: usize) {
        let key = (at, pin_id);
        let Some(next) = self.live.get(&key).filter(|_| self.merge) else {
            return;
        };
        let before = self.live_before(at).filter(|((_, other), area)| {
            let same = *other == pin_id && area.range.end == at && area.users == next.users;
            same && next.edges == 0 && area.payload.can_join(&next.payload)
        });
        let Some((before, _)) = before else {
            return;
        };
        if let Some(next) = self.live.remove(&key) {
            self.count -= 1;
            if let Some(area) = self.live.get_mut(&before) {
                area.range.end = next.range.end;
                area.payload.join(next.payload);
            }
        }
    }

    /// Applies `change` to the payloads of the areas of `pin_id` in `part`.
    pub(super) fn change(
        &mut self,
        pin_id: u64,
        part: PageRange,
        mut change: impl FnMut(&mut P) -> Result,
    ) -> Result {
        let mut start = part.start;
        while start < part.end {
            let area = self.get_mut(pin_id, start).ok_or(EINVAL)?;
            change(&mut area.payload)?;
            start = area.range.end;
        }
        Ok(())
    }

    /// Retires the area of `pin_id` that starts at page `start`: no new pin uses it.
    pub(super) fn retire(&mut self, pin_id: u64, start: usize) {
        if let Some(node) = self.live.remove_node(&(start, pin_id)) {
            self.stale.insert(node);
        }
    }

    /// Applies `change` to the payload of the first live area from `from` on. Returns the key to go
    /// on from, if there was one.
    pub(super) fn change_next_live(
        &mut self,
        from: AreaKey,
        change: impl FnOnce(&mut P) -> Result,
    ) -> Result<Option<AreaKey>> {
        change_next(&mut self.live, from, change)
    }

    /// Does the same with a stale area.
    pub(super) fn change_next_stale(
        &mut self,
        from: AreaKey,
        change: impl FnOnce(&mut P) -> Result,
    ) -> Result<Option<AreaKey>> {
        change_next(&mut self.stale, from, change)
    }

    /// Takes all areas out.
    pub(super) fn take_all(&mut self) -> Areas<P> {
        self.count = 0;
        let mut all = Areas {
            nodes: core::mem::take(&mut self.live),
        };
        all.append(Areas {
            nodes: core::mem::take(&mut self.stale),
        });
        all
    }

    /// Inserts areas that are live.
    pub(super) fn insert(&mut self, mut new: Areas<P>) {
        while let Some(node) = new.pop() {
            self.live.insert(node);
            self.count += 1;
        }
    }

    /// Inserts a live area of new pages, which one range has and nothing else.
    pub(super) fn insert_held(
        &mut self,
        pin_id: u64,
        range: PageRange,
        payload: P,
        room: AreaRoom<P>,
    ) {
        let area = Area {
            range,
            payload,
            users: 1,
            // No area of the pin id begins where this one ends.
            edges: 1,
        };
        self.live
            .insert(room.into_node((range.start, pin_id), area));
        self.count += 1;
    }

    /// Adds a user to the areas of `pin_id` in `part`.
    pub(super) fn hold(&mut self, pin_id: u64, part: PageRange) {
        let mut start = part.start;
        while start < part.end {
            let Some(area) = self.get_mut(pin_id, start) else {
                return;
            };
            area.users += 1;
            start = area.range.end;
        }
        for at in [part.start, part.end] {
            if let Some(area) = self.get_mut(pin_id, at) {
                area.edges += 1;
            }
        }
    }

    /// Counts one lock less on the areas of `pin_id` in `part`, which were held; takes those that
    /// have none left out, into `ended`.
    pub(super) fn release(&mut self, pin_id: u64, part: PageRange, ended: &mut Areas<P>) {
        for at in [part.start, part.end] {
            // The end of the pin id has not moved since the range was made.
            if let Some(area) = self.get_mut(pin_id, at) {
                area.edges -= 1;
            }
        }
        let mut start = part.start;
        while start < part.end {
            let key = (start, pin_id);
            let Some(area) = self.get_mut(pin_id, start) else {
                return;
            };
            area.users -= 1;
            start = area.range.end;
            if area.users > 0 {
                continue;
            }
            let node = self.live.remove_node(&key);
            if let Some(node) = node.or_else(|| self.stale.remove_node(&key)) {
                self.count -= 1;
                ended.nodes.insert(node);
            }
        }
        self.merge_at(pin_id, part.start);
        self.merge_at(pin_id, part.end);
    }
}

fn change_next<P>(
    areas: &mut RBTree<AreaKey, Area<P>>,
    from: AreaKey,
    change: impl FnOnce(&mut P) -> Result,
) -> Result<Option<AreaKey>> {
    let Some(mut cursor) = areas.cursor_lower_bound_mut(&from) else {
        return Ok(None);
    };
    let (&(start, pin_id), area) = cursor.current_mut();
    change(&mut area.payload)?;
    Ok(Some((start, pin_id + 1)))
}

/// Areas outside of the map: to be inserted, or without users.
pub(super) struct Areas<P> {
    nodes: RBTree<AreaKey, Area<P>>,
}

impl<P> Default for Areas<P> {
    fn default() -> Self {
        Self {
            nodes: RBTree::new(),
        }
    }
}

impl<P> Areas<P> {
    /// Adds an area without users, of which `payload` is made once there is room.
    pub(super) fn add(
        &mut self,
        pin_id: u64,
        range: PageRange,
        payload: impl FnOnce() -> Result<P>,
    ) -> Result {
        let node = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let area = Area {
            range,
            payload: payload()?,
            users: 0,
            edges: 0,
        };
        self.nodes
            .insert(node.into_node((range.start, pin_id), area));
        Ok(())
    }

    /// The areas in order, with their lineages.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Area<P>)> {
        self.nodes.iter().map(|((_, pin_id), area)| (*pin_id, area))
    }

    /// Applies `change` to the payload of the first area from `from` on. Returns the key to go on
    /// from, if there was one.
    pub(super) fn change_next(
        &mut self,
        from: AreaKey,
        change: impl FnOnce(&mut P) -> Result,
    ) -> Result<Option<AreaKey>> {
        change_next(&mut self.nodes, from, change)
    }

    /// Pages of all areas.
    pub(super) fn pages(&self) -> usize {
        self.iter().map(|(_, area)| area.range.len()).sum()
    }

    /// Takes over areas of the same map.
    pub(super) fn append(&mut self, mut others: Self) {
        while let Some(node) = others.pop() {
            self.nodes.insert(node);
        }
    }

    fn pop(&mut self) -> Option<RBTreeNode<AreaKey, Area<P>>> {
        let (_, node) = self.nodes.cursor_front_mut()?.remove_current();
        Some(node)
    }

    /// Applies `change` to all payloads.
    pub(super) fn for_each_mut(&mut self, mut change: impl FnMut(&mut P)) {
        for area in self.nodes.values_mut() {
            change(&mut area.payload);
        }
    }

    /// Drops the areas. Returns the memory of one, if there was any.
    pub(super) fn into_room(mut self) -> Option<AreaRoom<P>> {
        let mut room = None;
        while let Some(node) = self.pop() {
            room = Some(node.into_reservation());
        }
        room
    }
}
