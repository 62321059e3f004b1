// SPDX-License-Identifier: MIT OR Apache-2.0

//! The handshake of a channel: each process creates a segment under the same name, attaches to the
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
use crate::ring::{layout, Inbound, Outbound, Violation};
use crate::wakeup::LONGEST_SLEEP;
use crate::window::{InboundSegment, OutboundSegment};
use crate::{sys, Device, Error, Name, Peer, Result};

/// "uldmring", with the version of layout and rules in the lowest byte.
const MAGIC: u64 = 0x756c_646d_7269_6e00 | VERSION;
const VERSION: u64 = 2;

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

/// Performs the handshake with the process that does the same at the peer. Returns the link, and
/// true if this side is the first one of the two. While the peer's process is missing, calls
/// `may_come` every half second; an error from it ends the wait.
pub(crate) fn establish(
    device: &Device,
    (peer, name): (Peer, Name),
    capacity: u64,
    timeout: Duration,
    may_come: impl Fn() -> Result<()>,
) -> Result<(WindowLink, bool)> {
    if !layout::is_capacity(capacity) {
        return Err(Error::Range {
            offset: 0,
            length: capacity,
            size: layout::MAX_CAPACITY,
        });
    }
    let deadline = Instant::now() + timeout;
    let length = layout::DATA as u64 + capacity;
    let inbound = device.create_segment(name, length)?;
    let nonce = sys::random().map_err(|errno| Error::system("get a random number", errno))?;
    loop {
        // A record that was written before the attachment surely comes from the process that the
        // attachment reaches.
        let known = read(&inbound, capacity)?.map_or(0, |handshake| handshake.nonce);
        let left = deadline.saturating_duration_since(Instant::now());
        let outbound = match device.attach_segment_of(peer, name, left.min(ATTACH_RETRY)) {
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::ETIMEDOUT)) => {
                may_come()?;
                if Instant::now() >= deadline {
                    return Err(timed_out(peer, name, timeout));
                }
                continue;
            }
            other => other?,
        };
        if (outbound.length() as u64) < length {
            return Err(Violation::Handshake.into());
        }
        write(&outbound, capacity, Handshake { nonce, echo: known });
        outbound.ring_doorbell()?;
        let until = deadline.min(Instant::now() + ATTACH_RETRY);
        if let Some(other) = await_echo(&inbound, &outbound, capacity, nonce, known, until)? {
            let link = WindowLink::new(device, peer, inbound, outbound)?;
            return Ok((link, nonce < other));
        }
        if Instant::now() >= deadline {
            return Err(timed_out(peer, name, timeout));
        }
    }
}

fn timed_out(peer: Peer, name: Name, timeout: Duration) -> Error {
    let what = format!("process at {peer} that opens channel {name}");
    Error::Timeout {
        what,
        after: timeout,
    }
}

/// Waits for the peer's record with our nonce in it, and returns the peer's nonce; none when attaching
/// again is better.
fn await_echo(
    inbound: &InboundSegment,
    outbound: &OutboundSegment,
    capacity: u64,
    nonce: u64,
    known: u64,
    until: Instant,
) -> Result<Option<u64>> {
    loop {
        if let Some(handshake) = read(inbound, capacity)? {
            if handshake.echo == nonce {
                if handshake.nonce != known {
                    write(
                        outbound,
                        capacity,
                        Handshake {
                            nonce,
                            echo: handshake.nonce,
                        },
                    );
                    outbound.ring_doorbell()?;
                }
                return Ok(Some(handshake.nonce));
            }
            if handshake.nonce != known {
                // A process that started after we attached, and does not see our writes.
                return Ok(None);
            }
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        // The peer rings whenever it has written.
        inbound.wait_doorbell(left.min(LONGEST_SLEEP))?;
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
