// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of both sides of a message.

use super::{local_side, usable_region, within, AccessCheck, READ, WRITE};
use crate::abi::Status;
use crate::layout::RegionFlags;
use crate::location::{CheckedSide, List, Location, PeerList, PeerLocation};
use crate::memory::Bus;
use crate::tpt::View;

/// Checks the memory of a message to send, in a region of `space` (of any space, for `None`).
pub fn message<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    space: Option<u32>,
    from: (u32, u64),
    bytes: u64,
) -> Result<CheckedSide, Status> {
    local_side(access_check, space, from, bytes, READ)
}

/// Checks a buffer that a node has posted for messages: all of it, whatever the message needs.
/// `node` and `link_generation` are those by which the sender knows the node.
pub fn posted<B: Bus + ?Sized>(
    view: &View<'_, B>,
    (node, link_generation): (u32, u32),
    space: u32,
    (region, position): (u32, u64),
    bytes: u64,
) -> Result<CheckedSide, Status> {
    let entry = usable_region(view, region, Some(space), WRITE)?;
    if entry.flags.contains(RegionFlags::REMOTE) {
        return Err(Status::NoRight);
    }
    if !within(position, bytes, entry.length) {
        return Err(Status::Bounds);
    }
    Ok(CheckedSide {
        space,
        place: Location::Posted(PeerLocation {
            node,
            link_generation,
            region,
            space,
            generation: entry.generation,
            position,
        }),
    })
}

/// Checks the memory of a message to send that a privileged context has listed.
pub fn listed<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    list: List,
    bytes: u64,
) -> Result<CheckedSide, Status> {
    holds(&access_check.own, list, bytes)?;
    Ok(CheckedSide {
        space: 0,
        place: Location::Listed(list),
    })
}

/// Checks a buffer that a privileged endpoint of a node has posted as a list: all of it, whatever the
/// message needs. `node` and `link_generation` are those by which the sender knows the node.
pub fn posted_list<B: Bus + ?Sized>(
    view: &View<'_, B>,
    (node, link_generation): (u32, u32),
    list: List,
    bytes: u64,
) -> Result<CheckedSide, Status> {
    holds(view, list, bytes)?;
    Ok(CheckedSide {
        space: 0,
        place: Location::PostedList(PeerList {
            node,
            link_generation,
            list,
        }),
    })
}

/// Checks that the segments of a list hold so many bytes.
fn holds<B: Bus + ?Sized>(view: &View<'_, B>, list: List, bytes: u64) -> Result<(), Status> {
    view.listed(list, 0, bytes, |_, _| ())
}
