// SPDX-License-Identifier: MIT OR Apache-2.0

//! The checks of transfers of the driver between a region of this node and one of a peer.

use super::{local_side, AccessCheck, PeerRegion, READ, WRITE};
use crate::abi::Status;
use crate::location::{CheckedSide, CheckedTransfer};
use crate::memory::{Bus, Right};

/// Checks a transfer from a place in a region of any space to one in a peer's region.
pub fn push<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    (from, from_position): (u32, u64),
    (to, to_position): (PeerRegion, u64),
    bytes: u64,
) -> Result<CheckedTransfer, Status> {
    Ok(CheckedTransfer {
        source: near_side(access_check, (from, from_position), bytes, READ)?,
        destination: to.side(access_check, to_position, bytes, WRITE)?,
        bytes,
    })
}

/// Checks a transfer from a place in a peer's region to one in a region of any space.
pub fn pull<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    (from, from_position): (PeerRegion, u64),
    (to, to_position): (u32, u64),
    bytes: u64,
) -> Result<CheckedTransfer, Status> {
    let destination = near_side(access_check, (to, to_position), bytes, WRITE)?;
    Ok(CheckedTransfer {
        source: from.side(access_check, from_position, bytes, READ)?,
        destination,
        bytes,
    })
}

/// Builds the local side of a transfer to or from a peer.
fn near_side<B: Bus + ?Sized>(
    access_check: &AccessCheck<'_, B>,
    from: (u32, u64),
    bytes: u64,
    rights: &[Right],
) -> Result<CheckedSide, Status> {
    if bytes == 0 {
        return Err(Status::BadSize);
    }
    local_side(access_check, None, from, bytes, rights)
}
