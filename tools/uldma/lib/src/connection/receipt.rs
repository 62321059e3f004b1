// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receipts: each side of a connection tells the other how many bytes its program has taken.
//!
//! The kernel only counts what is in the peer's memory, where it is lost when the program there ends.
//! A side that takes part creates a small segment under a name that only the two sides know, before
//! it posts memory. The other side writes two words to it: the bytes that its program has taken, and
//! the number of bytes that it waits for to be taken, after which the doorbell is rung.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::{Connection, ConnectionInfo, ConnectionState};
use crate::event::Counts;
use crate::ring::{Inbound, Outbound, Violation};
use crate::wakeup::LONGEST_SLEEP;
use crate::window::{InboundSegment, OutboundSegment};
use crate::{Name, Peer, Result};

/// Derives the segment's name from a connection's: "uldmrcpt".
const NAME: u64 = 0x756c_646d_7263_7074;
/// The word with the bytes that the writer's program has taken.
const TAKEN: usize = 0;
/// The word with the number of bytes that the writer waits for.
const AWAITED: usize = 8;
const BYTES: u64 = 16;
/// Limit of the time in which the peer reports whether it takes part.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The receipts of one connection.
#[derive(Debug)]
pub(super) struct Receipts {
    own: InboundSegment,
    peer: Peer,
    name: Name,
    there: Mutex<There>,
    /// What the other side has last told.
    told: AtomicU64,
}

/// The segment of the other side.
#[derive(Debug)]
enum There {
    Unknown,
    Attached(OutboundSegment),
    /// The other side takes no part.
    Absent,
}

impl Receipts {
    /// None if the connection has ended.
    fn make(connection: &Connection) -> Result<Option<Self>> {
        let info = ConnectionInfo::query(connection.device())?;
        let Some(name) = info.name.and_then(|name| Name::new(name.get() ^ NAME)) else {
            return Ok(None);
        };
        let peer = Peer::node(info.node);
        Ok(Some(Self {
            own: connection.device().create_segment_for(peer, name, BYTES)?,
            peer,
            name,
            there: Mutex::new(There::Unknown),
            told: AtomicU64::new(0),
        }))
    }

    /// Lets `write` write to the segment of the other side, which has posted or sent something.
    /// Returns false if there is none.
    fn tell(&self, connection: &Connection, write: impl FnOnce(&OutboundSegment)) -> bool {
        let mut there = self.there.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*there, There::Unknown) {
            let device = connection.device();
            *there = match device.attach_segment_now(self.peer, self.name, TIMEOUT) {
                Ok(segment) => There::Attached(segment),
                Err(error) if error.errno() == Some(Errno::ENOENT) => There::Absent,
                Err(_) => There::Unknown,
            };
        }
        let There::Attached(segment) = &*there else {
            return false;
        };
        // Streams that are matched have the device's registers in any case.
        if connection.agreement.is_matched() || is_there(connection) {
            write(segment);
            self.own.fence();
        }
        true
    }

    /// Returns what the other side's program has taken.
    fn look(&self, connection: &Connection) -> u64 {
        if is_there(connection) {
            self.told.store(self.own.acquire(TAKEN), Ordering::Relaxed);
        }
        self.told.load(Ordering::Relaxed)
    }
}

/// Returns true if there is the device, without which accesses to the window raise SIGBUS.
fn is_there(connection: &Connection) -> bool {
    ConnectionInfo::query(connection.device()).is_ok()
}

impl Connection {
    /// Takes part in receipts: [`Connection::taken`] returns what the program at the other side has
    /// taken, if it takes part, too. To be called before any memory is posted.
    ///
    /// # Errors
    ///
    /// [`crate::Error::System`]: ENOSPC or EDQUOT where the window has no room for a page.
    pub fn make_receipts(&self) -> Result<()> {
        if let (None, Some(receipts)) = (self.receipts.get(), Receipts::make(self)?) {
            // Another thread may have been faster; its receipts are as good.
            let _ = self.receipts.set(receipts);
        }
        Ok(())
    }

    /// Tells the other side that this program has taken so many bytes since the beginning: done with
    /// them what they were sent for. To be called after receiving something.
    pub fn tell_taken(&self, bytes: u64) {
        let Some(receipts) = self.receipts.get() else {
            return;
        };
        receipts.tell(self, |segment| {
            segment.publish(TAKEN, bytes);
            receipts.own.fence();
            let awaited = receipts.own.load(AWAITED);
            if awaited > 0 && bytes >= awaited {
                // It fails where nothing waits any more.
                let _ = segment.ring_doorbell();
            }
        });
    }

    /// Returns how many bytes the program at the other side has taken, as far as it has told; zero if
    /// it takes no part.
    pub fn taken(&self) -> u64 {
        let receipts = self.receipts.get();
        receipts.map_or(0, |receipts| receipts.look(self))
    }

    /// Waits until the program at the other side has taken as many bytes as were sent, or the
    /// connection has ended. Returns how many bytes it has taken; none if it takes no part. To be called
    /// after all `sent` bytes have reached the peer's memory, and something was sent.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Violation`] when it says that it has taken more.
    pub fn wait_taken(&self, sent: u64) -> Result<Option<u64>> {
        let Some(receipts) = self.receipts.get() else {
            return Ok(None);
        };
        let mut waits = true;
        loop {
            // This order makes it safe: count doorbells, tell what is awaited, look, sleep.
            let events = self.device().events();
            let seen = events.snapshot().doorbells(receipts.own.handle());
            let is_told = receipts.tell(self, |segment| segment.publish(AWAITED, sent));
            let taken = receipts.look(self);
            if taken > sent {
                return Err(Violation::Index.into());
            }
            if taken == sent || !waits {
                return Ok(Some(taken));
            }
            let there = receipts
                .there
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if !is_told && matches!(*there, There::Absent) {
                return Ok(None);
            }
            drop(there);
            let until = Instant::now() + LONGEST_SLEEP;
            let rung = |now: &Counts| now.doorbells(receipts.own.handle()) != seen;
            let slept = events.wait(self.as_fd(), until, rung);
            // What was taken before the end is counted once more.
            waits = slept.is_ok() && !self.ended.load(Ordering::Acquire) && self.is_connected();
        }
    }

    fn is_connected(&self) -> bool {
        ConnectionInfo::query(self.device())
            .is_ok_and(|info| info.state == ConnectionState::Connected)
    }
}
