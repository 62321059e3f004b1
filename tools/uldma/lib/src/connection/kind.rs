// SPDX-License-Identifier: MIT OR Apache-2.0

//! Detects that one side of a connection is a stream and the other a ring, and makes the rings that
//! carry a stream.
//!
//! The kernel connects any two sides, and does not know their kinds. A stream therefore creates a
//! small segment, the *mark*, under a name that only the two sides know. A side that wants a ring
//! tries to attach the mark while the peer has no ring. If there is a mark, it writes WANTS_RING to
//! it and fails; the stream finds that word when the connection ends.
//!
//! A stream that is to go through rings creates its segment of them under another such name, and
//! then the mark. So a peer that has a mark, and no such segment, goes by calls.

use std::cell::OnceCell;
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Connection, ConnectionState};
use crate::link::WindowLink;
use crate::ring::{Inbound, Outbound};
use crate::window::InboundSegment;
use crate::{handshake, Device, Error, Name, Peer, Result};

/// Derives the mark's name from a connection's: "uldmmark".
const OTHER_NAME: u64 = 0x756c_646d_6d61_726b;
/// Derives the name of a stream's rings from a connection's: "uldmstrm".
const RINGS_NAME: u64 = 0x756c_646d_7374_726d;
/// Value of a mark when the other side wants a ring: "wantring".
const WANTS_RING: u64 = 0x7761_6e74_7269_6e67;
const BYTES: u64 = 8;
/// Limit of the time in which the peer reports whether there is a mark.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The mark of a stream.
#[derive(Debug)]
pub(super) struct StreamMark(InboundSegment);

impl StreamMark {
    /// Marks a connection as a stream; none if the connection has ended.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOSPC or EDQUOT where the window has no room for a page.
    pub(super) fn make(connection: &Connection) -> Result<Option<Self>> {
        let info = connection.query()?;
        let Some(name) = info.name.and_then(name_of) else {
            return Ok(None);
        };
        let segment = connection
            .device()
            .create_segment_for(Peer::node(info.node), name, BYTES)?;
        Ok(Some(Self(segment)))
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

/// A link, and true if this side is the first one of the two.
type Met = (WindowLink, bool);

/// Makes rings for a stream together with the other side; none if that goes by calls, the window has
/// no room here, or the connection has ended. Without rings there is a mark, unless the connection has
/// ended.
///
/// # Errors
///
/// [`Error::Timeout`] when the other side has not become a stream in time, [`Error::Violation`] when
/// it asks for rings of another capacity, [`Error::OtherKind`] when it wants a ring itself;
/// [`Error::System`]: ENOSPC or EDQUOT where the window has no room for the mark.
pub(super) fn make_rings(
    connection: &Connection,
    capacity: u64,
    limit: Duration,
) -> Result<(Option<Met>, Option<StreamMark>)> {
    let mark = OnceCell::new();
    let link = match Agreement::of(connection)? {
        Some(agreement) => agreement.make(capacity, limit, &mark)?,
        None => None,
    };
    let mark = mark.into_inner();
    match link {
        Some(link) => Ok((Some(link), mark.and_then(Result::ok).flatten())),
        // The other side waits until it finds one.
        None => Ok((None, mark.unwrap_or_else(|| StreamMark::make(connection))?)),
    }
}

/// The agreement of two streams on rings.
struct Agreement<'a> {
    connection: &'a Connection,
    peer: Peer,
    port: u32,
    mark: Name,
    rings: Name,
}

impl<'a> Agreement<'a> {
    /// None if the connection has ended, or its name leaves none for the rings.
    fn of(connection: &'a Connection) -> Result<Option<Self>> {
        let info = connection.query()?;
        let name = |derive: u64| Name::new(info.name?.get() ^ derive);
        let (Some(mark), Some(rings)) = (name(OTHER_NAME), name(RINGS_NAME)) else {
            return Ok(None);
        };
        Ok(Some(Self {
            connection,
            peer: Peer::node(info.node),
            port: info.port,
            mark,
            rings,
        }))
    }

    /// Makes the rings, and the mark when the other side is looked for.
    fn make(
        &self,
        capacity: u64,
        limit: Duration,
        mark: &OnceCell<Result<Option<StreamMark>>>,
    ) -> Result<Option<Met>> {
        /// Longer than any program waits, so that a deadline can be computed.
        const LONGEST: Duration = Duration::from_secs(1 << 30);
        let start = Instant::now();
        // Errors are found again below.
        if matches!(self.goes_by_calls(), Ok(true)) {
            return Ok(None);
        }
        let device = self.connection.device();
        let inbound = match handshake::create(device, (self.peer, self.rings), capacity) {
            Err(error) if matches!(error.errno(), Some(Errno::ENOSPC | Errno::EDQUOT)) => {
                return Ok(None);
            }
            other => other?,
        };
        let may_come = || {
            let mark = mark.get_or_init(|| StreamMark::make(self.connection));
            let mark = mark.as_ref().ok().and_then(Option::as_ref);
            if let Some(fault) = mark.and_then(StreamMark::fault) {
                return Err(fault);
            }
            match self.is_connected()? && !self.goes_by_calls()? {
                true => Ok(()),
                false => Err(Error::Closed),
            }
        };
        let names = (self.peer, self.rings);
        let met = handshake::meet(
            device,
            inbound,
            names,
            capacity,
            limit.min(LONGEST),
            may_come,
        );
        match met {
            Ok(made) => Ok(Some(made)),
            // The calls report it, after what came before.
            Err(error) if is_end(&error) => Ok(None),
            // The user knows the port, and not this name.
            Err(Error::Timeout { .. }) => Err(Error::Timeout {
                what: format!(
                    "stream at {} on the connection by port {}",
                    self.peer, self.port
                ),
                after: start.elapsed(),
            }),
            Err(error) => Err(error),
        }
    }

    fn is_connected(&self) -> Result<bool> {
        Ok(self.connection.query()?.state == ConnectionState::Connected)
    }

    /// Returns true if the other side goes by calls; false if it has not decided, or goes by rings.
    fn goes_by_calls(&self) -> Result<bool> {
        let device = self.connection.device();
        let found = |name| match device
            .attach_segment_now(self.peer, name, TIMEOUT)
            .map(drop)
        {
            Ok(()) => Ok(Some(true)),
            Err(error) => match error.errno() {
                Some(Errno::ENOENT) => Ok(Some(false)),
                // It may answer the next time.
                Some(Errno::ETIMEDOUT | Errno::EINTR | Errno::EBUSY) => Ok(None),
                _ => Err(error),
            },
        };
        // In the order in which the other side makes them.
        Ok(found(self.mark)? == Some(true) && found(self.rings)? == Some(false))
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
