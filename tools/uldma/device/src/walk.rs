// SPDX-License-Identifier: MIT OR Apache-2.0

//! Moves one chunk of a transfer: walks the tables for both sides, checks everything again, copies.

use crate::abi::Status;
use crate::check::{exported_region, AccessCheck};
use crate::layout::{PageEntry, PageWord, RegionEntry, RegionFlags};
use crate::location::{CheckedSide, Location, PeerLocation};
use crate::memory::{Bus, BusError, GuestMemory, Right};
use crate::tpt::{page_right, region_right, EntryRange, View};

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

/// What the segments of a side are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// The node whose bus addresses they are.
    pub owner: Owner,
    /// The memory whose addresses they are.
    pub memory: Memory,
    /// The reason for which they end before the first page that is not there now.
    pub miss: Option<Status>,
}

/// Appends a page's bytes to the segments, or lengthens the last one.
fn append(segments: &mut Vec<Segment>, address: u64, length: u64) {
    if let Some(last) = segments.last_mut() {
        if last.address.checked_add(last.length) == Some(address) {
            last.length += length;
            return;
        }
    }
    segments.push(Segment { address, length });
}

fn check_page(page: &PageEntry, space: u32, right: Right) -> Result<u64, Status> {
    if page.word.contains(PageWord::REMOTE) {
        return Err(Status::NotValid);
    }
    if page.space != space {
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

/// Separates the miss that ends a walk from what refuses it.
fn miss_of(walked: Result<(), Status>) -> Result<Option<Status>, Status> {
    match walked {
        Ok(()) => Ok(None),
        Err(status) if status.is_miss() => Ok(Some(status)),
        Err(status) => Err(status),
    }
}

/// Segments of `length` bytes from `position` of a region that was checked, or of those before a page
/// that is missing.
fn walk_region<B: Bus + ?Sized>(
    view: &View<'_, B>,
    region: &RegionEntry,
    position: u64,
    length: u64,
    right: Right,
    segments: &mut Vec<Segment>,
) -> Result<(Memory, Option<Status>), Status> {
    let shift = view.page_shift();
    let fits = position
        .checked_add(length)
        .is_some_and(|end| end <= region.length);
    let start = region.offset.checked_add(position).filter(|_| fits);
    let mut at = start.ok_or(Status::Bounds)?;
    if region.flags.contains(RegionFlags::WINDOW) {
        append(segments, at, length);
        return Ok((Memory::Section, None));
    }
    let mut left = length;
    while left > 0 {
        let mut range = view.entries_of_page(region, at >> shift)?;
        let mut skip = at & ((1 << shift) - 1);
        let wanted = (skip + left).div_ceil(1 << shift);
        range.pages = u64::from(range.pages).min(wanted) as u32;
        let walked = view.pages(range, |page| {
            let address = check_page(&page, region.space, right)?;
            let bytes = left.min((1 << shift) - skip);
            let address = address.checked_add(skip).ok_or(Status::BusError)?;
            append(segments, address, bytes);
            left -= bytes;
            at = at.checked_add(bytes).ok_or(Status::Bounds)?;
            skip = 0;
            Ok(())
        });
        let miss = miss_of(walked)?;
        if miss.is_some() {
            return Ok((Memory::Bus, miss));
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

/// Finds the segments of the `length` bytes that follow the first `done` bytes of a side, or of those
/// before a page that is missing.
///
/// [`Status::Aborted`] for a region that has ended or was replaced since it was named; other
/// statuses as the checks return them.
pub fn segments<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    side: &CheckedSide,
    done: u64,
    length: u64,
    right: Right,
    segments: &mut Vec<Segment>,
) -> Result<Walked, Status> {
    segments.clear();
    let walked = |owner, (memory, miss)| Walked {
        owner,
        memory,
        miss,
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
            let found = access_check.own.pages(one, |page| {
                let address = check_page(&page, side.space, right)?;
                let address = address.checked_add(start).ok_or(Status::BusError)?;
                append(segments, address, length);
                Ok(())
            });
            return Ok(walked(Owner::Own, (Memory::Bus, miss_of(found)?)));
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
            let found = walk_region(&access_check.own, &entry, position, length, right, segments)?;
            return Ok(walked(Owner::Own, found));
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
            let each = |address, bytes| append(segments, address, bytes);
            access_check.own.listed(list, done, length, each)?;
            return Ok(walked(Owner::Own, (Memory::Bus, None)));
        }
        Location::PostedList(peer) => {
            let view = access_check.peer(peer.node, peer.link_generation)?;
            let each = |address, bytes| append(segments, address, bytes);
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
    let found = walk_region(peer, &exported, position, length, right, segments)
        .map_err(|_| Status::Remote)?;
    Ok(walked(Owner::Peer(remote.node), found))
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
