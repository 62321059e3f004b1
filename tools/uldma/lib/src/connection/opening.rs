// SPDX-License-Identifier: MIT OR Apache-2.0

//! Opens rings in segments under the name of a connection, for a channel or to carry a stream.
//!
//! Of a stream each side has said in its offer whether it wants rings, and of which capacity. A side
//! whose window has no room for one makes a segment of a page instead, which is too short for a ring: a
//! side that finds it goes by calls, as the side that has made it does.

use std::time::Duration;

use nix::errno::Errno;

use super::{Connection, ConnectionState};
use crate::link::WindowLink;
use crate::ring::Violation;
use crate::window::InboundSegment;
use crate::{handshake, Error, Name, Peer, Result};

/// Bytes of a segment that is no ring.
const NO_RING: u64 = 8;

/// Opens rings for a stream together with the other side. Returns the link, and true if this side is the
/// first one of the two; none if the other side wants no rings, a window has no room, or the connection
/// has ended.
///
/// # Errors
///
/// [`Error::Timeout`] when the other side has not become a stream in time, [`Error::Violation`] when it
/// wants rings of another capacity; [`Error::System`]: ENOSPC or EDQUOT where the window has no room for
/// a page.
pub(super) fn open_rings(
    connection: &Connection,
    capacity: u64,
    limit: Duration,
) -> Result<Option<(WindowLink, bool)>> {
    let info = connection.query()?;
    let (Some(name), Some(theirs)) = (info.name, info.offer.capacity()) else {
        return Ok(None);
    };
    if theirs != capacity {
        return Err(Violation::Handshake.into());
    }
    let (device, names) = (connection.device(), (Peer::node(info.node), name));
    let inbound = match handshake::create(device, names, capacity) {
        Err(error) if matches!(error.errno(), Some(Errno::ENOSPC | Errno::EDQUOT)) => {
            let page = device.create_segment_for(names.0, name, NO_RING)?;
            if (page.length() as u64) < handshake::length_of(capacity) {
                connection.no_room.get_or_init(|| page);
                return Ok(None);
            }
            // There is room again for such a short ring.
            page
        }
        other => other?,
    };
    match meet(connection, inbound, names, capacity, limit, "stream") {
        // The calls report it, after what came before.
        Err(error) if is_end(&error) => Ok(None),
        met => met,
    }
}

/// Meets the other side, which is to be a `what`, in the segments of the connection; see
/// [`handshake::meet`]. [`Error::Closed`] when the connection ends.
pub(crate) fn meet(
    connection: &Connection,
    inbound: InboundSegment,
    names: (Peer, Name),
    capacity: u64,
    limit: Duration,
    what: &str,
) -> Result<Option<(WindowLink, bool)>> {
    /// Longer than any program waits, so that a deadline can be computed.
    const LONGEST: Duration = Duration::from_secs(1 << 30);
    let (device, limit) = (connection.device(), limit.min(LONGEST));
    let may_come = || match connection.query()?.state {
        ConnectionState::Connected => Ok(()),
        _ => Err(Error::Closed),
    };
    match handshake::meet(device, inbound, names, capacity, limit, may_come) {
        // The user knows the port, and not this name.
        Err(Error::Timeout { after, .. }) => {
            let port = connection.query()?.port;
            let what = format!("{what} at {} on the connection by port {port}", names.0);
            Err(Error::Timeout { what, after })
        }
        met => met,
    }
}

/// Returns true for the errors of a connection, or of a segment, whose peer has ended.
pub(super) fn is_end(error: &Error) -> bool {
    let ends = [
        Errno::EPIPE,
        Errno::ENOTCONN,
        Errno::ECONNRESET,
        Errno::ESTALE,
    ];
    matches!(error, Error::Closed) || error.errno().is_some_and(|errno| ends.contains(&errno))
}
