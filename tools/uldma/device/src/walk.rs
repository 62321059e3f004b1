// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moves one chunk of a transfer: walks the tables for both sides, checks everything again, copies.

use std::ops::RangeFrom;
use std::time::Duration;

use crate::abi::Status;
use crate::check::{exported_region, AccessCheck};
use crate::layout::{PageEntry, PageRequest, PageWord, RegionEntry, RegionFlags};
use crate::location::{CheckedSide, Location, PeerLocation};
use crate::memory::{Bus, BusError, GuestMemory, Right};
use crate::tpt::{page_right, region_right, EntryRange, View, PAGES_PER_BLOCK};

/// Limit of bytes that are moved before the tables and aborts are checked again.
pub const CHUNK: u64 = 256 * 1024;

/// Bytes that are consecutive on a node's bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// First bus address.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// The node whose bus addresses the segments of a side are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The node that initiated.
    Own,
    /// This one.
    Peer(u32),
}

/// The memory of a node whose addresses the segments of a side are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// What answers on its bus.
    #[default]
    Bus,
    /// Its section of the window.
    Section,
}

/// The part of a side that a chunk moves.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Bytes before it.
    pub done: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes from its first to the last of the side.
    pub left: u64,
}

/// Consecutive pages that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Page entry of the first.
    pub first: u32,
    /// Their number.
    pub count: u16,
    /// How long a transfer waits for them, if their region has it wait.
    pub limit: Option<Duration>,
}

/// What the segments of a side are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The node whose bus addresses they are.
    pub owner: Owner,
    /// The memory whose addresses they are.
    pub memory: Memory,
    /// The pages before which they end, since they are not there now.
    pub missing: Option<Missing>,
}

/// An entry of an optimistic page, in which the device notes that it accesses the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    /// Bus address of the entry.
    pub place: u64,
    /// The entry, as it was looked up.
    pub entry: PageEntry,
    /// Bytes of the side before the page.
    pub before: u64,
}

/// Bus addresses of one side.
#[derive(Clone, Debug, Default)]
pub struct Addresses {
    /// The bytes, in order.
    pub segments: Vec<Segment>,
    /// Their number.
    pub bytes: u64,
    /// The entries of optimistic pages among them.
    pub noted: Vec<Noted>,
}

impl Addresses {
    fn clear(&mut self) {
        self.segments.clear();
        self.noted.clear();
        self.bytes = 0;
    }

    /// Appends bytes, or lengthens the last segment.
    fn append(&mut self, address: u64, length: u64) {
        self.bytes += length;
        if let Some(last) = self.segments.last_mut() {
            if last.address.checked_add(last.length) == Some(address) {
                last.length += length;
                return;
            }
        }
        self.segments.push(Segment { address, length });
    }

    /// Appends bytes of a page, whose entry is at `place`.
    fn append_page(&mut self, (entry, place): (PageEntry, u64), address: u64, length: u64) {
        if entry.word.contains(PageWord::OPTIMISTIC) {
            self.noted.push(Noted {
                place,
                entry,
                before: self.bytes,
            });
        }
        self.append(address, length);
    }
}

fn check_page(page: &PageEntry, space: u32, right: Right) -> Result<u64, Status> {
    if page.word.contains(PageWord::REMOTE) {
        return Err(Status::NotValid);
    }
    if u32::from(page.space) != space {
        return Err(Status::NotOwner);
    }
    if !page.word.contains(page_right(right)) {
        return Err(Status::NoRight);
    }
    let is_there = page.word.contains(PageWord::VALID)
        && (right == Right::Read || !page.word.contains(PageWord::READ_ONLY));
    if !is_there {
        return Err(Status::NotResident);
    }
    Ok(page.word.address())
}

/// Returns the address of the page of the next of the entries, if it may be used, and has the look-up counted.
fn checked_page<B: Bus + ?Sized>(
    view: &View<'_, B>,
    entries: &mut RangeFrom<u32>,
    page: &PageEntry,
    (space, right): (u32, Right),
) -> Result<u64, Status> {
    let checked = check_page(page, space, right);
    if let Some(entry) = entries.next() {
        match &checked {
            Ok(address) => view.looked_up(entry, Some(*address)),
            Err(status) if status.is_miss() => view.looked_up(entry, None),
            Err(_) => {}
        }
    }
    checked
}

/// Separates the miss that ends a walk from what refuses it. Returns true for a miss.
fn is_cut(walked: Result<(), Status>) -> Result<bool, Status> {
    match walked {
        Ok(()) => Ok(false),
        Err(status) if status.is_miss() => Ok(true),
        Err(status) => Err(status),
    }
}

/// Returns the first of a range of entries, whose page is missing, with those after it whose pages are
/// missing, too, as far as one request names them.
fn missing<B: Bus + ?Sized>(
    view: &View<'_, B>,
    range: EntryRange,
    region: &RegionEntry,
    right: Right,
) -> Missing {
    let in_block = PAGES_PER_BLOCK - range.entry % PAGES_PER_BLOCK;
    let pages = range.pages.min(in_block);
    let range = EntryRange {
        pages: pages.min(PageRequest::MOST_PAGES.into()),
        ..range
    };
    let mut count = 0;
    // What ends the count is met again by the transfer that is there by then.
    let _ = view.pages(range, |page, _| {
        let checked = check_page(&page, region.space, right).map(|_| ());
        let is_missing = is_cut(checked)?;
        count += u16::from(is_missing);
        is_missing.then_some(()).ok_or(Status::Ok)
    });
    Missing {
        first: range.entry,
        count: count.max(1),
        limit: limit_of(region.flags),
    }
}

/// Returns how long a transfer waits for missing pages of a region, if it does.
fn limit_of(flags: RegionFlags) -> Option<Duration> {
    let limit = flags.get(RegionFlags::LIMIT);
    let waits = flags.contains(RegionFlags::WAIT) && limit != 0;
    waits.then(|| Duration::from_micros(1u64.checked_shl(limit).unwrap_or(u64::MAX)))
}

/// Segments of a part of a region that was checked, from byte `position` of the region on, or of its
/// bytes before a page that is missing.
fn walk_region<B: Bus + ?Sized>(
    view: &View<'_, B>,
    region: &RegionEntry,
    position: u64,
    part: Part,
    right: Right,
    found: &mut Addresses,
) -> Result<(Memory, Option<Missing>), Status> {
    let shift = view.page_shift();
    let length = part.bytes;
    let fits = position
        .checked_add(length)
        .is_some_and(|end| end <= region.length);
    let start = region.offset.checked_add(position).filter(|_| fits);
    let mut at = start.ok_or(Status::Bounds)?;
    if region.flags.contains(RegionFlags::WINDOW) {
        found.append(at, length);
        return Ok((Memory::Section, None));
    }
    let mut left = length;
    while left > 0 {
        let mut range = view.entries_of_page(region, at >> shift)?;
        let mut skip = at & ((1 << shift) - 1);
        let wanted = (skip + left).div_ceil(1 << shift);
        range.pages = u64::from(range.pages).min(wanted) as u32;
        let mut entries = range.entry..;
        let walked = view.pages(range, |page, place| {
            let address = checked_page(view, &mut entries, &page, (region.space, right))?;
            let bytes = left.min((1 << shift) - skip);
            let address = address.checked_add(skip).ok_or(Status::BusError)?;
            found.append_page((page, place), address, bytes);
            left -= bytes;
            at = at.checked_add(bytes).ok_or(Status::Bounds)?;
            skip = 0;
            Ok(())
        });
        if is_cut(walked)? {
            let mut range = view.entries_of_page(region, at >> shift)?;
            let needed = part.left.saturating_sub(length - left);
            let needed = skip.saturating_add(needed).div_ceil(1 << shift);
            range.pages = u64::from(range.pages).min(needed) as u32;
            let missing = missing(view, range, region, right);
            return Ok((Memory::Bus, Some(missing)));
        }
    }
    Ok((Memory::Bus, None))
}

/// Returns the region of a buffer that a peer posted, if it is still the same.
fn posted_region<B: Bus + ?Sized>(
    peer: &View<'_, B>,
    remote: &PeerLocation,
    right: Right,
) -> Result<RegionEntry, Status> {
    let region = peer.region(remote.region).map_err(|_| Status::Remote)?;
    let same = region.generation == remote.generation
        && region.space == remote.space
        && region.flags.contains(region_right(right))
        && !region.flags.contains(RegionFlags::REMOTE);
    same.then_some(region).ok_or(Status::Remote)
}

/// Finds the segments of a part of a side, or of its bytes before a page that is missing.
///
/// [`Status::Aborted`] for a region that has ended or was replaced since it was named; other
/// statuses as the checks return them.
pub fn segments<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    side: &CheckedSide,
    part: Part,
    right: Right,
    found: &mut Addresses,
) -> Result<Walked, Status> {
    let (done, length) = (part.done, part.bytes);
    found.clear();
    let walked = |owner, (memory, missing)| Walked {
        owner,
        memory,
        missing,
    };
    let own_region = |index, generation| {
        let region = access_check
            .own
            .region(index)
            .map_err(|miss| match miss.into() {
                Status::NotValid => Status::Aborted,
                status => status,
            })?;
        if region.generation != generation || region.space != side.space {
            return Err(Status::Aborted);
        }
        if !region.flags.contains(region_right(right)) {
            return Err(Status::NoRight);
        }
        Ok(region)
    };
    let remote = match side.place {
        Location::Page { entry, offset } => {
            let one = EntryRange { entry, pages: 1 };
            let start = offset.checked_add(done).ok_or(Status::Bounds)?;
            let one_page = access_check.own.pages(one, |page, place| {
                let own = &access_check.own;
                let address = checked_page(own, &mut (entry..), &page, (side.space, right))?;
                let address = address.checked_add(start).ok_or(Status::BusError)?;
                found.append_page((page, place), address, length);
                Ok(())
            });
            let missing = is_cut(one_page)?.then_some(Missing {
                first: entry,
                count: 1,
                limit: None,
            });
            return Ok(walked(Owner::Own, (Memory::Bus, missing)));
        }
        Location::Region {
            region,
            generation,
            position,
        } => {
            let entry = own_region(region, generation)?;
            if entry.flags.contains(RegionFlags::REMOTE) {
                return Err(Status::Aborted);
            }
            let position = position.checked_add(done).ok_or(Status::Bounds)?;
            let memory = walk_region(&access_check.own, &entry, position, part, right, found)?;
            return Ok(walked(Owner::Own, memory));
        }
        Location::Import {
            region,
            generation,
            remote,
        } => {
            own_region(region, generation)?;
            remote
        }
        Location::Peer(remote) | Location::Posted(remote) => remote,
        Location::Listed(list) => {
            let each = |address, bytes| found.append(address, bytes);
            access_check.own.listed(list, done, length, each)?;
            return Ok(walked(Owner::Own, (Memory::Bus, None)));
        }
        Location::PostedList(peer) => {
            let view = access_check.peer(peer.node, peer.link_generation)?;
            let each = |address, bytes| found.append(address, bytes);
            view.listed(peer.list, done, length, each)
                .map_err(|_| Status::Remote)?;
            return Ok(walked(Owner::Peer(peer.node), (Memory::Bus, None)));
        }
    };
    let peer = access_check.peer(remote.node, remote.link_generation)?;
    let exported = match side.place {
        Location::Posted(_) => posted_region(peer, &remote, right)?,
        _ => exported_region(peer, remote.region, remote.generation, &[right])?,
    };
    let position = remote.position.checked_add(done).ok_or(Status::Bounds)?;
    let memory =
        walk_region(peer, &exported, position, part, right, found).map_err(|_| Status::Remote)?;
    Ok(walked(Owner::Peer(remote.node), memory))
}

/// Copies the bytes of one list of segments to those of another; both hold `length` bytes.
pub fn copy(
    (from, sources): (&GuestMemory, &[Segment]),
    (to, destinations): (&GuestMemory, &[Segment]),
) -> Result<u64, (u64, BusError)> {
    let (mut sources, mut destinations) = (sources.iter(), destinations.iter());
    let empty = Segment {
        address: 0,
        length: 0,
    };
    let (mut source, mut destination) = (empty, empty);
    let mut moved = 0;
    loop {
        if source.length == 0 {
            match sources.next() {
                Some(next) => source = *next,
                None => return Ok(moved),
            }
        }
        if destination.length == 0 {
            match destinations.next() {
                Some(next) => destination = *next,
                None => return Ok(moved),
            }
        }
        let length = source.length.min(destination.length);
        let count = from
            .copy(source.address, to, destination.address, length)
            .map_err(|error| (moved, error))?;
        for segment in [&mut source, &mut destination] {
            segment.address = segment.address.wrapping_add(count);
            segment.length -= count;
        }
        moved += count;
    }
}
