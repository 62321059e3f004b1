// SPDX-License-Identifier: MIT OR Apache-2.0

//! How two processes find each other: each creates a segment under the same name, attaches to the
//! peer's, and greets.
//!
//! A greeting is four words, written by the one who attached into the other's segment: what it
//! speaks, the ring's capacity, a random number (the *nonce*) that stands for this one attempt,
//! and the *echo*: the nonce that it found in its own segment. Who finds its own nonce echoed
//! knows that the other reads the very segment that it writes, and not one of a process that has
//! ended meanwhile under the same name.

use std::time::{Duration, Instant};

use nix::errno::Errno;

use crate::link::{WindowLink, LONGEST_SLEEP};
use crate::ring::{layout, Inbound, Outbound, Violation};
use crate::window::{InboundSegment, OutboundSegment};
use crate::{sys, Device, Error, Name, Peer, Result};

/// "uldmring", and the version of layout and rules in the lowest byte's place.
const MAGIC: u64 = 0x756c_646d_7269_6e00 | VERSION;
const VERSION: u64 = 2;

const WORD_MAGIC: usize = layout::HELLO;
const WORD_CAPACITY: usize = layout::HELLO + 8;
const WORD_NONCE: usize = layout::HELLO + 16;
const WORD_ECHO: usize = layout::HELLO + 24;

/// How long to believe in an attachment that brings no answer, or to ask for one in vain.
const ATTACH_AGAIN: Duration = Duration::from_millis(500);

/// What the peer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Hello {
    nonce: u64,
    echo: u64,
}

/// Reads the peer's greeting; none when it has not greeted yet.
fn read(inbound: &impl Inbound, capacity: u64) -> std::result::Result<Option<Hello>, Violation> {
    // The nonce is written after magic and capacity.
    let nonce = inbound.acquire(WORD_NONCE);
    if nonce == 0 {
        return Ok(None);
    }
    if inbound.load(WORD_MAGIC) != MAGIC || inbound.load(WORD_CAPACITY) != capacity {
        return Err(Violation::Hello);
    }
    Ok(Some(Hello {
        nonce,
        echo: inbound.load(WORD_ECHO),
    }))
}

/// Writes the greeting.
fn write(outbound: &impl Outbound, capacity: u64, hello: Hello) {
    outbound.store(WORD_MAGIC, MAGIC);
    outbound.store(WORD_CAPACITY, capacity);
    outbound.store(WORD_ECHO, hello.echo);
    outbound.publish(WORD_NONCE, hello.nonce);
}

/// Meets the process that does the same at that peer; also returns whether this side is the first of the two
/// to do something. While it is not there, asks `may_come`
/// every half second whether it can still come: an error ends the waiting.
pub(crate) fn meet(
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
        // Whoever greeted before the attachment is surely whom the attachment reaches.
        let known = read(&inbound, capacity)?.map_or(0, |hello| hello.nonce);
        let left = deadline.saturating_duration_since(Instant::now());
        let outbound = match device.attach_segment_of(peer, name, left.min(ATTACH_AGAIN)) {
            Err(error) if matches!(error.errno(), Some(Errno::ENOENT | Errno::ETIMEDOUT)) => {
                may_come()?;
                if Instant::now() >= deadline {
                    return Err(unanswered(peer, name, timeout));
                }
                continue;
            }
            other => other?,
        };
        if (outbound.length() as u64) < length {
            return Err(Violation::Hello.into());
        }
        write(&outbound, capacity, Hello { nonce, echo: known });
        outbound.ring_doorbell()?;
        let until = deadline.min(Instant::now() + ATTACH_AGAIN);
        if let Some(other) = greeted(&inbound, &outbound, capacity, nonce, known, until)? {
            let link = WindowLink::new(device, peer, inbound, outbound)?;
            return Ok((link, nonce < other));
        }
        if Instant::now() >= deadline {
            return Err(unanswered(peer, name, timeout));
        }
    }
}

fn unanswered(peer: Peer, name: Name, timeout: Duration) -> Error {
    let what = format!("process at {peer} that opens channel {name}");
    Error::Timeout {
        what,
        after: timeout,
    }
}

/// Waits for the peer's greeting with our nonce in it, and returns the peer's; none when attaching again is
/// better.
fn greeted(
    inbound: &InboundSegment,
    outbound: &OutboundSegment,
    capacity: u64,
    nonce: u64,
    known: u64,
    until: Instant,
) -> Result<Option<u64>> {
    loop {
        if let Some(hello) = read(inbound, capacity)? {
            if hello.echo == nonce {
                if hello.nonce != known {
                    write(
                        outbound,
                        capacity,
                        Hello {
                            nonce,
                            echo: hello.nonce,
                        },
                    );
                    outbound.ring_doorbell()?;
                }
                return Ok(Some(hello.nonce));
            }
            if hello.nonce != known {
                // Somebody who came after we attached and does not see what we write.
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
    fn a_greeting_arrives_as_it_was_written() {
        let (a, b) = loopback::pair(64);
        assert_eq!(read(&b, 64), Ok(None));
        let hello = Hello { nonce: 5, echo: 9 };
        write(&a, 64, hello);
        assert_eq!(read(&b, 64), Ok(Some(hello)));
    }

    #[test]
    fn another_protocol_or_capacity_is_refused() {
        let (a, b) = loopback::pair(64);
        write(&a, 128, Hello { nonce: 5, echo: 0 });
        assert_eq!(read(&b, 64), Err(Violation::Hello));
        write(&a, 64, Hello { nonce: 5, echo: 0 });
        a.store(WORD_MAGIC, MAGIC + 1);
        assert_eq!(read(&b, 64), Err(Violation::Hello));
    }
}
