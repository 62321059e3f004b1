// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of an initiation: turn arguments into the two sides of a transfer, or refuse it.
//!
//! A process reaches its own memory and what its peers exported to it, and nothing else. The checks
//! here are repeated for every chunk (`walk`), because the driver changes tables meanwhile.

use crate::abi::Status;
use crate::atomic::Atomic;
use crate::layout::{KernelAddress, PageEntry, PageWord, RegionEntry, RegionFlags};
use crate::location::{CheckedSide, CheckedTransfer, Location, PeerLocation};
use crate::memory::{Bus, Right};
use crate::method::{Arguments, PutWord, ShadowRef};
use crate::tpt::{export_right, page_right, region_right, View};

mod message;
mod peer;

pub use message::{listed, message, posted, posted_list};
pub use peer::{pull, push};

/// The tables of all nodes as seen from one of them, for checking accesses.
pub struct AccessCheck<'a, B: ?Sized> {
    /// Tables of the node that initiates.
    pub own: View<'a, B>,
    /// Tables of the other nodes, by their numbers, and generations of the links to them; `None`
    /// for a node that cannot be reached.
    pub peers: Vec<Option<(View<'a, B>, u32)>>,
}

impl<'a, B: Bus + ?Sized> AccessCheck<'a, B> {
    /// Returns the tables of a node, if the link to it still has the generation.
    pub fn peer(&self, node: u32, link_generation: u32) -> Result<&View<'a, B>, Status> {
        match self.peers.get(node as usize) {
            Some(Some((view, current))) if *current == link_generation => Ok(view),
            _ => Err(Status::LinkDown),
        }
    }
}

/// Returns true if the `bytes` bytes from `position` on lie within `length`.
fn within(position: u64, bytes: u64, length: u64) -> bool {
    position.checked_add(bytes).is_some_and(|end| end <= length)
}

const READ: &[Right] = &[Right::Read];
const WRITE: &[Right] = &[Right::Write];
const BOTH: &[Right] = &[Right::Read, Right::Write];

/// Rights that the initiating context needs.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The space that must own both sides. With `None`, each side may belong to any space: the MMU
    /// let the process map the page through which it passed the address.
    pub space: Option<u32>,
    /// The source is passed by a store, so it must be writable, too.
    pub source_is_stored: bool,
    /// The destination is passed by a load as well, so it must be readable, too.
    pub destination_is_loaded: bool,
}

/// Returns a page entry that `space` may use with these rights; with `None`, its owner may use it.
fn usable_page<B: Bus + ?Sized>(
    view: &View<'_, B>,
    entry: u32,
    space: Option<u32>,
    rights: &[Right],
) -> Result<PageEntry, Status> {
    let page = view.page(entry)?;
    if space.is_some_and(|space| u32::from(page.space) != space) {
        return Err(Status::NotOwner);
    }
    if rights
        .iter()
        .any(|right| !page.word.contains(page_right(*right)))
    {
        return Err(Status::NoRight);
    }
    Ok(page)
}

/// Returns a region entry that `space` may use with these rights; with `None`, the kernel may use
/// it.
fn usable_region<B: Bus + ?Sized>(
    view: &View<'_, B>,
    index: u32,
    space: Option<u32>,
    rights: &[Right],
) -> Result<RegionEntry, Status> {
    let region = view.region(index)?;
    if space.is_some_and(|space| region.space != space) {
        return Err(Status::NotOwner);
    }
    if rights
        .iter()
        .any(|right| !region.flags.contains(region_right(*right)))
    {
        return Err(Status::NoRight);
    }
    Ok(region)
}

/// Returns the peer's region behind an import, if the peer allows this access.
///
/// [`Status::Revoked`] if the region or its export has ended, [`Status::Remote`] for another access.
pub fn exported_region<B: Bus + ?Sized>(
    peer: &View<'_, B>,
    index: u32,
    generation: u64,
    rights: &[Right],
) -> Result<RegionEntry, Status> {
    let region = peer.region(index).map_err(|_| Status::Revoked)?;
    let gives = |right: Right| region.flags.contains(export_right(right));
    if region.generation != generation || ![Right::Read, Right::Write].into_iter().any(gives) {
        return Err(Status::Revoked);
    }
    let allowed = rights.iter().copied().all(gives)
        && !region.flags.contains(RegionFlags::REMOTE)
        && !region.flags.contains(RegionFlags::WINDOW);
    if allowed {
        Ok(region)
    } else {
        Err(Status::Remote)
    }
}

/// Builds a side in a region entry for which the rights of the requester were already checked.
fn region_side<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    index: u32,
    entry: &RegionEntry,
    position: u64,
    bytes: u64,
    rights: &[Right],
) -> Result<CheckedSide, Status> {
    if !entry.flags.contains(RegionFlags::REMOTE) {
        if !within(position, bytes, entry.length) {
            return Err(Status::Bounds);
        }
        return Ok(CheckedSide {
            space: entry.space,
            place: Location::Region {
                region: index,
                generation: entry.generation,
                position,
            },
        });
    }
    let peer = PeerRegion {
        node: entry.flags.get(RegionFlags::NODE),
        link_generation: entry.link_generation,
        region: entry.peer_region,
        generation: entry.peer_generation,
    };
    let view = peer.view(access_check)?;
    if !within(position, bytes, entry.length) {
        return Err(Status::Bounds);
    }
    Ok(CheckedSide {
        space: entry.space,
        place: Location::Import {
            region: index,
            generation: entry.generation,
            remote: peer.place(view, position, bytes, rights)?,
        },
    })
}

/// A region of another node, as an import or a privileged descriptor names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerRegion {
    /// The node.
    pub node: u32,
    /// Generation of the link to it.
    pub link_generation: u32,
    /// Index in its region table.
    pub region: u32,
    /// The entry's generation.
    pub generation: u64,
}

impl PeerRegion {
    /// Returns the tables of its node, if the node can be reached.
    fn view<'a, 's, B: Bus + ?Sized>(
        &self,
        access_check: &'s AccessCheck<'a, B>,
    ) -> Result<&'s View<'a, B>, Status> {
        access_check.peer(self.node, self.link_generation)
    }

    /// Returns a location in it, if the peer allows this access.
    fn place<B: Bus + ?Sized>(
        &self,
        view: &View<'_, B>,
        position: u64,
        bytes: u64,
        rights: &[Right],
    ) -> Result<PeerLocation, Status> {
        let exported = exported_region(view, self.region, self.generation, rights)?;
        if !within(position, bytes, exported.length) {
            return Err(Status::Remote);
        }
        Ok(PeerLocation {
            node: self.node,
            link_generation: self.link_generation,
            region: self.region,
            generation: self.generation,
            space: exported.space,
            position,
        })
    }

    /// A side in it.
    fn side<B: Bus + ?Sized>(
        &self,
        access_check: &AccessCheck<'_, B>,
        position: u64,
        bytes: u64,
        rights: &[Right],
    ) -> Result<CheckedSide, Status> {
        let remote = self.place(self.view(access_check)?, position, bytes, rights)?;
        Ok(CheckedSide {
            space: remote.space,
            place: Location::Peer(remote),
        })
    }
}

/// One side as named by a program: a page, the byte in it, and a region or 0.
struct UserSide<'a> {
    page: PageEntry,
    target: ShadowRef,
    low: u32,
    region: u32,
    /// The accesses that the transfer makes to the memory.
    does: &'a [Right],
    /// These rights, and those that its way of naming requires.
    needs: &'a [Right],
}

impl<'a> UserSide<'a> {
    /// Builds a side that `space` may name; with `None`, the owner of the page may name it.
    fn new<B: Bus + ?Sized>(
        access_check: &AccessCheck<'_, B>,
        target: ShadowRef,
        space: Option<u32>,
        does: &'a [Right],
        needs: &'a [Right],
    ) -> Result<Self, Status> {
        Ok(Self {
            page: usable_page(&access_check.own, target.entry, space, needs)?,
            target,
            low: 0,
            region: 0,
            does,
            needs,
        })
    }

    fn within(self, region: u32, low: u32) -> Self {
        Self {
            region,
            low,
            ..self
        }
    }

    fn is_remote(&self) -> bool {
        self.page.word.contains(PageWord::REMOTE)
    }

    fn check<B: Bus + ?Sized>(
        &self,
        access_check: &AccessCheck<'_, B>,
        bytes: u64,
    ) -> Result<CheckedSide, Status> {
        let space = self.page.space.into();
        let in_page = u64::from(self.target.offset) + u64::from(self.low);
        if self.region == 0 && !within(in_page, bytes, 1 << access_check.own.page_shift()) {
            return Err(Status::Bounds);
        }
        if self.is_remote() {
            if self.region != 0 && self.region != self.page.region {
                return Err(Status::NotValid);
            }
            let region = self.page.region;
            let entry = usable_region(&access_check.own, region, Some(space), self.needs)?;
            if !entry.flags.contains(RegionFlags::REMOTE) {
                return Err(Status::NotValid);
            }
            let position = self
                .page
                .word
                .address()
                .checked_add(in_page)
                .ok_or(Status::Bounds)?;
            return region_side(access_check, region, &entry, position, bytes, self.does);
        }
        if self.region == 0 {
            return Ok(CheckedSide {
                space,
                place: Location::Page {
                    entry: self.target.entry,
                    offset: in_page,
                },
            });
        }
        let entry = usable_region(&access_check.own, self.region, Some(space), self.needs)?;
        let kinds = [RegionFlags::REMOTE, RegionFlags::WINDOW];
        if kinds.iter().any(|kind| entry.flags.contains(*kind)) {
            return Err(Status::NotValid);
        }
        let page = access_check.own.page_of_entry(&entry, self.target.entry)?;
        let position = page
            .checked_mul(1 << access_check.own.page_shift())
            .and_then(|start| start.checked_add(in_page))
            .and_then(|from_first_page| from_first_page.checked_sub(entry.offset))
            .ok_or(Status::Bounds)?;
        region_side(
            access_check,
            self.region,
            &entry,
            position,
            bytes,
            self.does,
        )
    }
}

/// Checks an initiation from user level, of which both sides were named by shadow accesses.
pub fn user_initiation<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    needs: Needs,
    arguments: &Arguments,
) -> Result<CheckedTransfer, Status> {
    let word = arguments.word;
    if word.bytes == 0 {
        return Err(Status::BadSize);
    }
    let bytes = u64::from(word.bytes);
    let stored = if needs.source_is_stored { BOTH } else { READ };
    let loaded = if needs.destination_is_loaded {
        BOTH
    } else {
        WRITE
    };
    let source = UserSide::new(access_check, arguments.source, needs.space, READ, stored)?
        .within(word.src_region, word.src_low);
    let destination = UserSide::new(
        access_check,
        arguments.destination,
        needs.space,
        WRITE,
        loaded,
    )?
    .within(word.dst_region, word.dst_low);
    if source.is_remote() && destination.is_remote() {
        return Err(Status::NoRight);
    }
    Ok(CheckedTransfer {
        source: source.check(access_check, bytes)?,
        destination: destination.check(access_check, bytes)?,
        bytes,
    })
}

/// Checks a transfer of the first bytes of a page of `space` to the page that it is mapped out to.
pub fn mapped_out<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: u32,
    source: ShadowRef,
    bytes: u32,
) -> Result<CheckedTransfer, Status> {
    let bytes = bytes.into();
    let source = UserSide::new(access_check, source, Some(space), READ, READ)?;
    let to = source
        .page
        .region
        .checked_sub(1)
        .filter(|_| !source.is_remote());
    let to = ShadowRef::of_entry(to.ok_or(Status::NotValid)?, 0);
    let destination = UserSide::new(access_check, to, Some(space), WRITE, WRITE)?;
    Ok(CheckedTransfer {
        source: source.check(access_check, bytes)?,
        destination: destination.check(access_check, bytes)?,
        bytes,
    })
}

/// Checks a transfer from a region to a named place, both of `space`.
pub fn put<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: u32,
    destination: ShadowRef,
    word: PutWord,
) -> Result<CheckedTransfer, Status> {
    if word.length == 0 {
        return Err(Status::BadSize);
    }
    let bytes = u64::from(word.length) * 8;
    let entry = usable_region(&access_check.own, word.src_region, Some(space), READ)?;
    let destination = UserSide::new(access_check, destination, Some(space), WRITE, WRITE)?
        .within(word.dst_region, 0);
    if entry.flags.contains(RegionFlags::REMOTE) && destination.is_remote() {
        return Err(Status::NoRight);
    }
    let position = u64::from(word.src_offset) * 8;
    Ok(CheckedTransfer {
        source: region_side(access_check, word.src_region, &entry, position, bytes, READ)?,
        destination: destination.check(access_check, bytes)?,
        bytes,
    })
}

/// Checks an atomic operation on a named word of `space`.
pub fn word<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: u32,
    target: ShadowRef,
) -> Result<CheckedSide, Status> {
    UserSide::new(access_check, target, Some(space), BOTH, BOTH)?.check(access_check, Atomic::BYTES)
}

/// Checks an atomic operation on a word of a region of `space` (of any, for `None`).
pub fn region_word<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: Option<u32>,
    (region, position): (u32, u64),
) -> Result<CheckedSide, Status> {
    let entry = usable_region(&access_check.own, region, space, BOTH)?;
    region_side(access_check, region, &entry, position, Atomic::BYTES, BOTH)
}

/// Checks a transfer between two regions of `space` (of any space, for `None`), each given by its
/// index and the position of the first byte.
pub fn regions<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: Option<u32>,
    (from, from_position): (u32, u64),
    (to, to_position): (u32, u64),
    bytes: u64,
) -> Result<CheckedTransfer, Status> {
    if bytes == 0 {
        return Err(Status::BadSize);
    }
    let from_entry = usable_region(&access_check.own, from, space, READ)?;
    let to_entry = usable_region(&access_check.own, to, space, WRITE)?;
    if (from_entry.flags & to_entry.flags).contains(RegionFlags::REMOTE) {
        return Err(Status::NoRight);
    }
    Ok(CheckedTransfer {
        source: region_side(access_check, from, &from_entry, from_position, bytes, READ)?,
        destination: region_side(access_check, to, &to_entry, to_position, bytes, WRITE)?,
        bytes,
    })
}

/// Builds a side in a region of this node that `space` may use; with `None`, the kernel may use it.
fn local_side<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: Option<u32>,
    (region, position): (u32, u64),
    bytes: u64,
    rights: &[Right],
) -> Result<CheckedSide, Status> {
    let entry = usable_region(&access_check.own, region, space, rights)?;
    if entry.flags.contains(RegionFlags::REMOTE) {
        return Err(Status::NoRight);
    }
    region_side(access_check, region, &entry, position, bytes, rights)
}

/// Checks an initiation by the kernel, which may name regions of any space.
pub fn kernel_initiation<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    source: KernelAddress,
    destination: KernelAddress,
    bytes: u64,
) -> Result<CheckedTransfer, Status> {
    let split = |address: KernelAddress| {
        (
            address.get(KernelAddress::REGION),
            address.get(KernelAddress::OFFSET),
        )
    };
    regions(access_check, None, split(source), split(destination), bytes)
}
