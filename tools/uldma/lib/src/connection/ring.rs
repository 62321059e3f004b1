// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams through rings: the programs at both sides copy the bytes into and out of segments of the
//! window, without system calls.
//!
//! The two halves of a stream share a pair of segments, and each of them has one ring: the producer of
//! one direction, or the consumer of the other. What either half finds out about the peer's end is
//! noted for both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use nix::errno::Errno;

use crate::connection::link::Link;
use crate::error::{Error, Result};
use crate::ring::{Consumer, Geometry, Popped, Producer, Pushed, RingError, Violation};
use crate::wait::deadline::Deadline;
use crate::wait::spin::{repeat, Poller};
use crate::wait::wakeup::LONGEST_SLEEP;

/// Bytes of the longest record, so that the reader copies while the writer does.
const LONGEST: u64 = 64 << 10;
/// Records of the longest length that a small ring has room for.
const RECORDS: u64 = 4;

/// How the peer has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// It has disconnected, or its process has ended.
    Closed,
    /// The connection was reset, the device has gone, or the peer breaks the rules.
    Failed(Errno),
}

impl End {
    fn of(error: &Error) -> Self {
        match error {
            Error::Closed => Self::Closed,
            Error::Violation(_) => Self::Failed(Errno::EPROTO),
            other => Self::Failed(other.errno().unwrap_or(Errno::ECONNRESET)),
        }
    }

    fn error(self, what: &str) -> Error {
        let errno = match self {
            Self::Closed => Errno::EPIPE,
            Self::Failed(errno) => errno,
        };
        Error::connection(what, errno)
    }
}

/// What a reader finds.
enum Found {
    /// So many bytes.
    Bytes(usize),
    /// A message that is longer than the caller's memory.
    Longer,
    /// The end, which the peer has announced.
    End,
}

/// The rings of both directions.
#[derive(Debug)]
pub(super) struct Rings<L: Link> {
    link: L,
    sending: Mutex<Producer>,
    receiving: Mutex<Consumer>,
    /// Bytes of the longest message that is sent, and of the longest that can come.
    longest: usize,
    longest_received: usize,
    end: OnceLock<End>,
    /// This side has disconnected.
    disconnected: AtomicBool,
    /// Bytes of messages.
    sent: AtomicU64,
    received: AtomicU64,
}

/// The half that sends.
#[derive(Debug)]
pub(super) struct RingSender<L: Link> {
    rings: Arc<Rings<L>>,
    poller: Poller,
    /// Something was written since the peer was last known to be there.
    dirty: bool,
}

/// The half that receives.
#[derive(Debug)]
pub(super) struct RingReceiver<L: Link> {
    rings: Arc<Rings<L>>,
    poller: Poller,
    /// A message that the caller's memory was too short for, and the bytes of it that were read.
    rest: Vec<u8>,
    read: usize,
}

/// Makes both halves of a stream over a link whose memory is zero, with two rings: that which this side
/// writes, and that which it reads.
pub(super) fn halves<L: Link>(
    link: L,
    (out, own): (Geometry, Geometry),
    poller: Poller,
) -> (RingReceiver<L>, RingSender<L>) {
    let rings = Arc::new(Rings {
        link,
        sending: Mutex::new(Producer::new(out)),
        receiving: Mutex::new(Consumer::new(own)),
        longest: longest(out),
        longest_received: longest(own),
        end: OnceLock::new(),
        disconnected: AtomicBool::new(false),
        sent: AtomicU64::new(0),
        received: AtomicU64::new(0),
    });
    let sender = RingSender {
        rings: Arc::clone(&rings),
        poller,
        dirty: false,
    };
    let receiver = RingReceiver {
        rings,
        poller,
        rest: Vec::new(),
        read: 0,
    };
    (receiver, sender)
}

/// Returns the bytes of the longest message in a ring.
fn longest(ring: Geometry) -> usize {
    LONGEST.min(ring.capacity() / RECORDS) as usize
}

impl<L: Link> RingSender<L> {
    /// Returns what both halves share.
    pub(super) fn rings(&self) -> &Arc<Rings<L>> {
        &self.rings
    }

    /// Copies bytes into the ring; waits for room for one message at least. Returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Violation`]; [`Error::System`]: EPIPE when the peer has
    /// disconnected, ECONNRESET, ENOTCONN after this side has disconnected.
    pub(super) fn write(&mut self, source: &[u8], timeout: Duration) -> Result<usize> {
        if source.is_empty() {
            return Ok(0);
        }
        self.dirty = true;
        let rings = &self.rings;
        let sleeps = |asleep| rings.sender_sleeps(asleep);
        let wanted = ("room in the ring", timeout);
        rings.when_possible(&mut self.poller, wanted, sleeps, || rings.try_write(source))
    }

    /// Fails unless what was written is in the peer's memory, where it is at once while there is a
    /// peer. Of one that has ended, this side only knows what it said of that before.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EPIPE, ECONNRESET, ENOTCONN after this side has disconnected.
    pub(super) fn flush(&mut self) -> Result<()> {
        if !self.dirty {
            return Ok(());
        }
        let (rings, mut producer) = (&self.rings, lock(&self.rings.sending));
        rings.check_connected("send")?;
        // Only the device knows.
        rings.ring(true);
        let inbound = rings.link.inbound();
        let is_whole = producer.is_consumed(inbound);
        let closed = producer.peer_closed(inbound).then_some(End::Closed);
        match rings.end.get().copied().or(closed) {
            Some(end) if !is_whole => return Err(end.error("send")),
            _ => {}
        }
        self.dirty = false;
        Ok(())
    }
}

impl<L: Link> RingReceiver<L> {
    /// Copies bytes out of the ring; waits for one at least. Returns zero when the peer has
    /// disconnected and all was read.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Violation`]; [`Error::System`]: ECONNRESET after what came
    /// before the reset, ENOTCONN after this side has disconnected.
    pub(super) fn read(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        if target.is_empty() {
            return Ok(0);
        }
        if let Some(length) = self.take_rest(target) {
            return Ok(length);
        }
        self.read = 0;
        self.rest.clear();
        let (rings, rest) = (&self.rings, &mut self.rest);
        let sleeps = |asleep| rings.receiver_sleeps(asleep);
        let wanted = ("data from the peer", timeout);
        let found = rings.when_possible(&mut self.poller, wanted, sleeps, || {
            rings.try_read(target, rest)
        })?;
        Ok(match found {
            Found::Bytes(length) => length,
            Found::Longer => self.take_rest(target).unwrap_or(0),
            Found::End => 0,
        })
    }

    /// Copies what is left of a message; none if nothing is.
    fn take_rest(&mut self, target: &mut [u8]) -> Option<usize> {
        let rest = self.rest.get(self.read..).filter(|rest| !rest.is_empty())?;
        let length = rest.len().min(target.len());
        for (to, from) in target.iter_mut().zip(rest) {
            *to = *from;
        }
        self.read += length;
        Some(length)
    }
}

impl<L: Link> Rings<L> {
    /// Returns the bytes that were sent and received.
    pub(super) fn counts(&self) -> (u64, u64) {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (of(&self.sent), of(&self.received))
    }

    /// Tells the peer that nothing more comes, and that nothing more is read. Calls of both halves fail
    /// from now on.
    pub(super) fn disconnect(&self) {
        if self.disconnected.swap(true, Ordering::AcqRel) {
            return;
        }
        let (mut producer, mut consumer) = (lock(&self.sending), lock(&self.receiving));
        // Finds out whether the device is there: without it, a store would raise SIGBUS.
        self.ring(true);
        if self.end.get().is_some() {
            return;
        }
        producer.close(self.link.outbound());
        consumer.close(self.link.outbound());
        // Wakes the peer, if it sleeps, to see that.
        self.ring(true);
    }

    fn check_connected(&self, what: &str) -> Result<()> {
        match self.disconnected.load(Ordering::Acquire) {
            true => Err(Error::connection(what, Errno::ENOTCONN)),
            false => Ok(()),
        }
    }

    /// Notes that the peer's memory must not be written any more.
    fn lose(&self, error: &Error) {
        // The first reason counts.
        let _ = self.end.set(End::of(error));
    }

    /// Rings the peer's doorbell, if that is necessary and there is a peer.
    fn ring(&self, necessary: bool) {
        if !necessary || self.end.get().is_some() {
            return;
        }
        if let Err(error) = self.link.ring() {
            self.lose(&error);
        }
    }

    /// Writes as many bytes as there is room for; none if there is no room.
    fn try_write(&self, source: &[u8]) -> Result<Option<usize>> {
        let mut producer = lock(&self.sending);
        self.check_connected("send")?;
        if let Some(end) = self.end.get() {
            return Err(end.error("send"));
        }
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let mut written = 0;
        for piece in source.chunks(self.longest) {
            match producer.push(inbound, outbound, piece) {
                Ok(Pushed::Done { wake }) => {
                    written += piece.len();
                    self.ring(wake);
                }
                Ok(Pushed::Full) => break,
                // The next call returns it.
                Err(_) if written > 0 => break,
                Err(RingError::Closed) => return Err(End::Closed.error("send")),
                Err(error) => return Err(error.into()),
            }
        }
        self.sent.fetch_add(written as u64, Ordering::Relaxed);
        Ok((written > 0).then_some(written))
    }

    /// Reads as many messages as there are and fit; none if there are none. One that is longer goes
    /// into `rest`.
    fn try_read(&self, target: &mut [u8], rest: &mut Vec<u8>) -> Result<Option<Found>> {
        let mut consumer = lock(&self.receiving);
        self.check_connected("receive")?;
        // Looked up before the ring is: the peer has written nothing since.
        let end = self.end.get();
        if end.is_some() {
            consumer.abandon();
        }
        let mut filled = 0;
        while let Some(free) = target.get_mut(filled..).filter(|free| !free.is_empty()) {
            match self.pop(&mut consumer, free) {
                Ok(Some(length)) if length > 0 => filled += length,
                // The next call returns it.
                _ if filled > 0 => break,
                // No end of empty messages can keep this side here.
                Ok(Some(_)) => return Err(Violation::Length.into()),
                Ok(None) => match end {
                    None => return Ok(None),
                    Some(End::Failed(errno)) => return Err(Error::connection("receive", *errno)),
                    // It has not said that this is all.
                    Some(End::Closed) => {
                        return Err(Error::connection("receive", Errno::ECONNRESET));
                    }
                },
                Err(RingError::Closed) => return Ok(Some(Found::End)),
                Err(RingError::TooLong { length, .. }) if length <= self.longest_received => {
                    rest.resize(length, 0);
                    let popped = self.pop(&mut consumer, rest);
                    // The peer may have changed it meanwhile.
                    let length = popped.as_ref().map_or(0, |length| length.unwrap_or(0));
                    rest.truncate(length);
                    self.count_received(length);
                    return match popped? {
                        None | Some(0) => Err(Violation::Length.into()),
                        Some(_) => Ok(Some(Found::Longer)),
                    };
                }
                Err(RingError::TooLong { .. }) => return Err(Violation::Length.into()),
                Err(error) => return Err(error.into()),
            }
        }
        self.count_received(filled);
        Ok(Some(Found::Bytes(filled)))
    }

    fn count_received(&self, length: usize) {
        self.received.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Consumes a message, or tells a peer that waits for room that there is some.
    fn pop(
        &self,
        consumer: &mut Consumer,
        target: &mut [u8],
    ) -> std::result::Result<Option<usize>, RingError> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let Popped { length, wake } = consumer.pop(inbound, outbound, target)?;
        self.ring(wake);
        Ok(length)
    }

    fn has_ended(&self) -> bool {
        self.disconnected.load(Ordering::Acquire) || self.end.get().is_some()
    }

    fn sender_sleeps(&self, asleep: bool) {
        let mut producer = lock(&self.sending);
        match asleep {
            _ if self.has_ended() => {}
            true => producer.sleep(self.link.inbound(), self.link.outbound()),
            false => producer.awake(self.link.outbound()),
        }
    }

    fn receiver_sleeps(&self, asleep: bool) {
        let mut consumer = lock(&self.receiving);
        match asleep {
            // The word says that this side is closed.
            _ if self.has_ended() => {}
            true => consumer.sleep(self.link.inbound(), self.link.outbound()),
            false => consumer.awake(self.link.outbound()),
        }
    }

    /// Makes attempts until one has a result: polls for as long as a wake-up costs, then sleeps.
    fn when_possible<T>(
        &self,
        poller: &mut Poller,
        (what, timeout): (&str, Duration),
        sleeps: impl Fn(bool),
        mut attempt: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let mut attempt = || {
            let result = attempt();
            if let Err(error @ Error::Violation(_)) = &result {
                // The other half must not wait for this peer.
                self.lose(error);
            }
            result.transpose()
        };
        if let Some(result) = attempt() {
            poller.found_at_once();
            return result;
        }
        poller.begin(false);
        if let Some(result) = poller.until(|attempts| repeat(attempts, &mut attempt)) {
            return result;
        }
        poller.slept();
        let deadline = Deadline::after(timeout);
        loop {
            // This order makes it safe: count rings, publish the flag, poll again, sleep.
            let seen = self.link.rings();
            sleeps(true);
            let done = attempt();
            if done.is_none() {
                // The other half may have seen the end, or disconnected.
                if let Err(error) = self.link.wait(seen, deadline.within(LONGEST_SLEEP)) {
                    self.lose(&error);
                }
            }
            sleeps(false);
            if let Some(result) = done.or_else(&mut attempt) {
                return result;
            }
            if deadline.is_over() {
                return Err(deadline.missed(what));
            }
        }
    }
}

impl<L: Link> Drop for Rings<L> {
    fn drop(&mut self) {
        self.disconnect();
    }
}

fn lock<T>(ring: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in between leaves a ring that the peer may find broken, and nothing worse.
    ring.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
