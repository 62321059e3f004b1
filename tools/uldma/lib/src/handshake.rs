// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handshake of two processes that meet under a name: each creates a segment under the same name, attaches to the
//! peer's, and writes a handshake record to it.
//!
//! A record has four words, written by the side that attached into the other side's segment:
//! protocol, the ring's capacity, a random number (the *nonce*) that identifies this attempt, and
//! the *echo*: the nonce that it found in its own segment. A side that finds its own nonce echoed
//! knows that the peer reads the very segment that it writes, and not one of an earlier process
//! under the same name.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::link::WindowLink;
use crate::ring::{layout, Inbound, Outbound, Violation, VERSION};
use crate::wakeup::LONGEST_SLEEP;
use crate::window::{InboundSegment, OutboundSegment};
use crate::{sys, Device, Error, Name, Peer, Result};

/// "uldmring", with the version in the lowest byte.
const MAGIC: u64 = 0x756c_646d_7269_6e00 | VERSION as u64;

const MAGIC_WORD: usize = layout::HANDSHAKE;
const CAPACITY_WORD: usize = layout::HANDSHAKE + 8;
const NONCE_WORD: usize = layout::HANDSHAKE + 16;
const ECHO_WORD: usize = layout::HANDSHAKE + 24;

/// Interval after which an attachment without an answer, or a failed one, is tried again.
const ATTACH_RETRY: Duration = Duration::from_millis(500);

/// The nonces of a handshake record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Handshake {
    nonce: u64,
    echo: u64,
}

/// Reads the peer's handshake record; none when it has not written one yet.
fn read(
    inbound: &impl Inbound,
    capacity: u64,
) -> std::result::Result<Option<Handshake>, Violation> {
    // The nonce is written after magic and capacity.
    let nonce = inbound.acquire(NONCE_WORD);
    if nonce == 0 {
        return Ok(None);
    }
    if inbound.load(MAGIC_WORD) != MAGIC || inbound.load(CAPACITY_WORD) != capacity {
        return Err(Violation::Handshake);
    }
    Ok(Some(Handshake {
        nonce,
        echo: inbound.load(ECHO_WORD),
    }))
}

/// Writes a handshake record.
fn write(outbound: &impl Outbound, capacity: u64, handshake: Handshake) {
    outbound.store(MAGIC_WORD, MAGIC);
    outbound.store(CAPACITY_WORD, capacity);
    outbound.store(ECHO_WORD, handshake.echo);
    outbound.publish(NONCE_WORD, handshake.nonce);
}

/// Performs the handshake with the process that does the same at the peer. While the peer's process is
/// missing, calls `may_come` every half second; an error from it ends the wait.
pub(crate) fn establish(
    device: &Device,
    (peer, name): (Peer, Name),
    capacity: u64,
    timeout: Duration,
    may_come: impl Fn() -> Result<()>,
) -> Result<WindowLink> {
    let inbound = create(device, (peer, name), capacity)?;
    let deadline = Instant::now() + timeout;
    let nonce = sys::random().map_err(|errno| Error::system("get a random number", errno))?;
    let mut meeting = Meeting {
        inbound: &inbound,
        capacity,
        nonce,
        known: 0,
        outbound: None,
    };
    loop {
        let attach = || {
            let left = deadline.saturating_duration_since(Instant::now());
            device.attach_segment_of(peer, name, left.min(ATTACH_RETRY))
        };
        let tried = meeting.try_once(attach, deadline, &may_come);
        // A peer that has completed may end at once, so its echo counts whatever else has happened.
        if let (true, Some(outbound)) = (meeting.is_answered()?, meeting.outbound.take()) {
            return WindowLink::new(device, peer, inbound, outbound);
        }
        tried?;
        if Instant::now() >= deadline {
            let what = format!("process at {peer} that opens the rings {name}");
            return Err(Error::Timeout {
                what,
                after: timeout,
            });
        }
    }
}

/// Creates this side's segment.
fn create(device: &Device, (peer, name): (Peer, Name), capacity: u64) -> Result<InboundSegment> {
    if !layout::is_capacity(capacity) {
        return Err(Error::Range {
            offset: 0,
            length: capacity,
            size: layout::MAX_CAPACITY,
        });
    }
    device.create_segment_for(peer, name, layout::length(capacity))
}

/// A handshake that is under way.
struct Meeting<'a> {
    inbound: &'a InboundSegment,
    capacity: u64,
    nonce: u64,
    /// The nonce that this side has echoed.
    known: u64,
    /// The peer's segment that was attached last.
    outbound: Option<OutboundSegment>,
}

impl Meeting<'_> {
    /// Attaches, writes a record, and waits for the answer.
    fn try_once(
        &mut self,
        attach: impl Fn() -> Result<OutboundSegment>,
        deadline: Instant,
        may_come: &impl Fn() -> Result<()>,
    ) -> Result<()> {
        // A record that was written before the attachment surely comes from the process that the
        // attachment reaches.
        let known = read(self.inbound, self.capacity)?.map_or(0, |handshake| handshake.nonce);
        let outbound = match attach() {
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::ETIMEDOUT)) => {
                return may_come();
            }
            other => other?,
        };
        if (outbound.length() as u64) < layout::length(self.capacity) {
            return Err(Violation::Handshake.into());
        }
        self.known = known;
        let outbound = self.outbound.insert(outbound);
        let handshake = Handshake {
            nonce: self.nonce,
            echo: known,
        };
        write(outbound, self.capacity, handshake);
        notify(outbound)?;
        self.await_record(deadline.min(Instant::now() + ATTACH_RETRY))
    }

    /// Waits for a record with this side's nonce, or of a process that started after the attachment,
    /// and does not see what is written to it.
    fn await_record(&self, until: Instant) -> Result<()> {
        loop {
            if let Some(handshake) = read(self.inbound, self.capacity)? {
                if handshake.echo == self.nonce || handshake.nonce != self.known {
                    return Ok(());
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            // The peer rings whenever it has written.
            self.inbound.wait_doorbell(left.min(LONGEST_SLEEP))?;
        }
    }

    /// Returns true if the peer has echoed this side's nonce, after its own was echoed, too.
    fn is_answered(&self) -> Result<bool> {
        let (Some(outbound), Some(handshake)) =
            (&self.outbound, read(self.inbound, self.capacity)?)
        else {
            return Ok(false);
        };
        if handshake.echo != self.nonce {
            return Ok(false);
        }
        if handshake.nonce != self.known {
            let echo = Handshake {
                nonce: self.nonce,
                echo: handshake.nonce,
            };
            write(outbound, self.capacity, echo);
            notify(outbound)?;
        }
        Ok(true)
    }
}

/// Rings the doorbell after a record was written. A peer that has ended meanwhile may have written its
/// own record, and messages, before.
fn notify(outbound: &OutboundSegment) -> Result<()> {
    match outbound.ring_doorbell() {
        Err(error) if error.errno() == Some(Errno::ESTALE) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loopback;

    #[test]
    fn a_record_arrives_as_it_was_written() {
        let (a, b) = loopback::pair(64);
        assert_eq!(read(&b, 64), Ok(None));
        let handshake = Handshake { nonce: 5, echo: 9 };
        write(&a, 64, handshake);
        assert_eq!(read(&b, 64), Ok(Some(handshake)));
    }

    #[test]
    fn another_protocol_or_capacity_is_refused() {
        let (a, b) = loopback::pair(64);
        write(&a, 128, Handshake { nonce: 5, echo: 0 });
        assert_eq!(read(&b, 64), Err(Violation::Handshake));
        write(&a, 64, Handshake { nonce: 5, echo: 0 });
        a.store(MAGIC_WORD, MAGIC + 1);
        assert_eq!(read(&b, 64), Err(Violation::Handshake));
    }
}
