// SPDX-License-Identifier: MIT OR Apache-2.0

//! Detects that one side of a connection is a stream and the other a ring.
//!
//! The kernel connects any two sides, and does not know their kinds. A stream therefore creates a
//! small segment, the *mark*, under a name that only the two sides know. A side that wants a ring
//! tries to attach the mark while the peer has no ring. If there is a mark, it writes WANTS_RING to
//! it and fails; the stream finds that word when the connection ends.

use std::time::Duration;

use nix::errno::Errno;

use super::Connection;
use crate::ring::{Inbound, Outbound};
use crate::window::InboundSegment;
use crate::{Device, Error, Name, Peer, Result};

/// Derives the mark's name from a connection's: "uldmmark".
const OTHER_NAME: u64 = 0x756c_646d_6d61_726b;
/// Value of a mark when the other side wants a ring: "wantring".
const WANTS_RING: u64 = 0x7761_6e74_7269_6e67;
const BYTES: u64 = 8;
/// Limit of the time in which the peer reports whether there is a mark.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The mark of a stream.
#[derive(Debug)]
pub(super) struct StreamMark(InboundSegment);

impl StreamMark {
    /// Marks a connection as a stream; none where the window is full, or the connection has ended.
    pub(super) fn make(connection: &Connection) -> Option<Self> {
        let name = name_of(connection.query().ok()?.name?)?;
        let segment = connection.device().create_segment(name, BYTES);
        segment.ok().map(Self)
    }

    /// Returns the error that replaces the end of the stream if the other side wanted a ring.
    pub(super) fn fault(&self) -> Option<Error> {
        (self.0.load(0) == WANTS_RING).then_some(Error::OtherKind {
            here: "a stream",
            there: "a ring",
        })
    }
}

/// Fails if the other side of the connection is a stream, and notifies that side.
pub(crate) fn refuse_stream(device: &Device, peer: Peer, connection: Name) -> Result<()> {
    let Some(name) = name_of(connection) else {
        return Ok(());
    };
    match device.attach_segment_now(peer, name, TIMEOUT) {
        Ok(mark) => {
            mark.store(0, WANTS_RING);
            Err(Error::OtherKind {
                here: "a ring",
                there: "a stream",
            })
        }
        Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::ETIMEDOUT)) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Returns the mark's name; none for the one name that would give zero.
fn name_of(connection: Name) -> Option<Name> {
    Name::new(connection.get() ^ OTHER_NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_has_a_name_of_its_own() {
        let connection = Name::new(7).unwrap();
        assert_ne!(name_of(connection), Some(connection));
        assert_eq!(name_of(Name::new(OTHER_NAME).unwrap()), None);
    }
}
