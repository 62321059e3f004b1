// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of both sides of a message.

use super::{
    local_side, usable_region, within, AccessCheck, CheckedSide, Location, PeerLocation, READ,
    WRITE,
};
use crate::abi::Status;
use crate::layout::RegionFlags;
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
