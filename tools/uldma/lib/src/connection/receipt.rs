// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receipts: each side of a connection tells the other how many bytes its program has taken.
//!
//! The kernel only counts what is in the peer's memory, where it is lost when the program there ends.
//! Sides that both say so in their offers write two words to the ring of the other: the bytes that their
//! program has taken, and the number of bytes that they wait for to be taken, after which the doorbell is
//! rung.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Connection, ConnectionInfo, ConnectionState};
use crate::device::event::Counts;
use crate::error::Result;
use crate::ring::{Inbound, Outbound, Violation};
use crate::wait::deadline::Deadline;
use crate::wait::wakeup::LONGEST_SLEEP;
use crate::window::{InboundSegment, OutboundSegment};

/// The word with the bytes that the writer's program has taken.
const TAKEN: usize = 0;
/// The word with the number of bytes that the writer waits for.
const AWAITED: usize = 8;
/// Bytes of the ring of a side that takes part.
pub(super) const BYTES: u64 = 16;

/// The receipts of one connection.
#[derive(Debug)]
pub(super) struct Receipts {
    // Ends before the other one, by which the peer is rung.
    peer: OutboundSegment,
    own: InboundSegment,
    /// What the other side has last told.
    told: AtomicU64,
}

impl Receipts {
    /// None unless both sides take part, and no other use is made of the rings.
    fn make(connection: &Connection) -> Result<Option<Self>> {
        let theirs = ConnectionInfo::query(connection.device())?.offer;
        let is_ring = |offer: &super::Offer| offer.capacity().is_some();
        let both = connection.offer.has_receipts() && theirs.has_receipts();
        if !both || (is_ring(&connection.offer) && is_ring(&theirs)) {
            return Ok(None);
        }
        let rings = connection.device().rings()?;
        Ok(rings.map(|(own, peer)| Self {
            peer,
            own,
            told: AtomicU64::new(0),
        }))
    }

    /// Lets `write` write to the ring of the other side.
    fn tell(&self, connection: &Connection, write: impl FnOnce(&OutboundSegment)) {
        // Streams that are matched have the device's registers in any case.
        if connection.agreement.is_matched() || is_there(connection) {
            write(&self.peer);
            self.own.fence();
        }
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
    /// Takes part in receipts, if both sides have offered to ([`Offer::with_receipts`]) and their windows
    /// had room: [`Connection::taken`] returns what the program at the other side has taken. A connection
    /// that becomes a stream of rings has none.
    ///
    /// [`Offer::with_receipts`]: crate::Offer::with_receipts
    ///
    /// # Errors
    ///
    /// [`crate::Error::System`]: ENOTCONN; EDQUOT when this user has as many objects as it may.
    pub fn make_receipts(&self) -> Result<()> {
        if let (None, Some(receipts)) = (self.receipts.get(), Receipts::make(self)?) {
            // Another thread may have been faster.
            let _ = self.receipts.set(receipts);
        }
        Ok(())
    }

    /// Tells the other side that this program has taken so many bytes since the beginning: done with
    /// them what they were sent for.
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
    /// after all `sent` bytes have reached the peer's memory.
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
            receipts.tell(self, |segment| segment.publish(AWAITED, sent));
            let taken = receipts.look(self);
            if taken > sent {
                return Err(Violation::Count.into());
            }
            if taken == sent || !waits {
                return Ok(Some(taken));
            }
            let until = Deadline::after(LONGEST_SLEEP);
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
