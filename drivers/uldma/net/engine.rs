// SPDX-License-Identifier: GPL-2.0

//! The sender's side of the engine: packets that it moves to one peer, and their frames.
//!
//! The frame of a packet waits, written and not published, until the engine has reported the end of the
//! message, and so does everything behind it. So the peer never sees a frame before its packet.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::ring::Counter;
use crate::{
    dma::send_queue::SendQueue,
    kernel_ext::{
        errno::eproto,
        wakeup, //
    },
    link::TICK,
    uapi, //
};

/// Maximum number of frames that the peer has not consumed: as many as it can have posted buffers.
const MOST: usize = uapi::ULDMA_STATUS_RECORDS as usize;

/// The frame of a packet that the engine moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) ticket: u64,
    /// Where it begins in the ring.
    pub(super) block: u32,
    /// Blocks that were produced before it, and with it.
    pub(super) from: u32,
    pub(super) to: u32,
    /// Bytes of the packet, and those of them that are in the frame.
    pub(super) bytes: u32,
    pub(super) split: u32,
}

impl Frame {
    /// Returns the bytes that the engine moves.
    pub(super) fn moved(&self) -> u32 {
        self.bytes.saturating_sub(self.split)
    }
}

/// Frames that the peer has not consumed, oldest first. The first of them have landed: their packets
/// are at the peer, or never will be.
struct Frames {
    frames: KVec<Option<Frame>>,
    first: usize,
    count: usize,
    landed: usize,
}

impl Frames {
    fn new() -> Result<Self> {
        let mut frames = KVec::with_capacity(MOST, GFP_KERNEL)?;
        for _ in 0..MOST {
            frames.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            frames,
            first: 0,
            count: 0,
            landed: 0,
        })
    }

    fn get(&self, number: usize) -> Option<&Frame> {
        let frame = self.frames.get((self.first + number) % MOST)?.as_ref();
        frame.filter(|_| number < self.count)
    }

    /// Appends a frame. Returns false if there is no room.
    fn push(&mut self, frame: Frame) -> bool {
        let place = (self.first + self.count) % MOST;
        match self.frames.get_mut(place) {
            Some(place) if self.count < MOST => {
                *place = Some(frame);
                self.count += 1;
                true
            }
            _ => false,
        }
    }

    /// Returns the oldest frame that has not landed.
    fn flying(&self) -> Option<&Frame> {
        self.get(self.landed)
    }

    /// Removes the frames that end up to the count `consumed`. Returns the bytes that the engine moved
    /// for them.
    fn consumed(&mut self, consumed: u32) -> u32 {
        let mut bytes = 0u32;
        while self.landed > 0 {
            let Some(frame) = self.get(0) else {
                break;
            };
            if consumed.wrapping_sub(frame.to) > u32::MAX / 2 {
                break;
            }
            bytes = bytes.saturating_add(frame.moved());
            self.first = (self.first + 1) % MOST;
            self.count -= 1;
            self.landed -= 1;
        }
        bytes
    }
}

/// Buffers that the peer has posted.
struct Credits {
    posted: u32,
    used: u32,
}

impl Credits {
    /// Notes the count of buffers that the peer says it has posted.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it takes some back, or has more than a receive ring has places.
    fn note(&mut self, posted: u32) -> Result {
        const MOST: u32 = uapi::ULDMA_STATUS_RECORDS;
        let more = posted.wrapping_sub(self.posted);
        let free = posted.wrapping_sub(self.used);
        if more > MOST || free > MOST {
            return Err(eproto());
        }
        self.posted = posted;
        Ok(())
    }

    fn has_any(&self) -> bool {
        self.posted != self.used
    }
}

/// The way of packets by the engine to a peer.
pub(super) struct Engine {
    queue: Arc<SendQueue>,
    /// This node's endpoint.
    endpoint: u32,
    /// Bytes of the largest message that the peer takes.
    most_bytes: u32,
    credits: Credits,
    frames: Frames,
    /// A message has failed: all packets go by the ring.
    has_failed: bool,
    /// When a frame has landed last, or the oldest that flies was sent.
    since: Instant<Monotonic>,
}

/// Returns the time until the engine is polled again, after `waited` without a landing, where a timer
/// costs `timer`.
///
/// It is as long as the wait was, so a landing is noticed after at most twice its time. It does not depend
/// on the number of polls: packets of the peer have the queue polled, too.
fn pause(waited: Delta, timer: Delta) -> Delta {
    let nanos = waited.as_nanos().max(timer.as_nanos());
    Delta::from_nanos(nanos.min(TICK.as_nanos()))
}

impl Engine {
    /// Begins to send by `queue` from the endpoint `endpoint`, messages of up to `most_bytes` bytes.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(queue: Arc<SendQueue>, endpoint: u32, most_bytes: u32) -> Result<Self> {
        Ok(Self {
            queue,
            endpoint,
            most_bytes,
            credits: Credits { posted: 0, used: 0 },
            frames: Frames::new()?,
            has_failed: false,
            since: Instant::now(),
        })
    }

    /// Returns the queue.
    pub(super) fn queue(&self) -> &SendQueue {
        &self.queue
    }

    /// Returns the number of this node's endpoint.
    pub(super) fn endpoint(&self) -> u32 {
        self.endpoint
    }

    /// Returns true if a message of `bytes` bytes can be sent, when the peer says that it has posted
    /// so many buffers of the ring `key`.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it cannot have.
    pub(super) fn takes(&mut self, bytes: u32, posted: Counter, key: u32) -> Result<bool> {
        if self.has_failed || bytes > self.most_bytes || self.frames.count == MOST {
            return Ok(false);
        }
        if posted.get(Counter::KEY) == key {
            self.credits.note(posted.get(Counter::COUNT))?;
        }
        Ok(self.credits.has_any())
    }

    /// Notes a frame whose packet was submitted, for which there was [room](Engine::takes). Returns true
    /// if no other one flies.
    pub(super) fn sent(&mut self, frame: Frame) -> bool {
        let is_first = !self.flies();
        if is_first {
            self.since = Instant::now();
        }
        self.credits.used = self.credits.used.wrapping_add(1);
        self.frames.push(frame);
        is_first
    }

    /// Returns true if the engine moves packets.
    pub(super) fn flies(&self) -> bool {
        self.frames.flying().is_some()
    }

    /// Returns the number of blocks before the first frame that flies, if there is one.
    pub(super) fn limit(&self) -> Option<u32> {
        self.frames.flying().map(|frame| frame.from)
    }

    /// Takes the next frame that has landed, and whether the peer has its packet. A packet that flies
    /// for longer than `limit` is given up.
    pub(super) fn land(&mut self, limit: Delta) -> Option<(Frame, bool)> {
        let frame = *self.frames.flying()?;
        let arrived = match self.queue.take(frame.ticket) {
            // The peer counts messages, so what follows one that it may or may not have is of no use.
            Some(arrived) => arrived && !self.has_failed,
            None if self.since.elapsed() >= limit => {
                self.queue.abandon(frame.ticket);
                false
            }
            None => return None,
        };
        self.has_failed |= !arrived;
        self.frames.landed += 1;
        // After a failure the others have their time behind them, too.
        if arrived {
            self.since = Instant::now();
        }
        Some((frame, arrived))
    }

    /// Notes that the peer has consumed up to this count of blocks. Returns the bytes of packets that the
    /// engine had moved for them.
    pub(super) fn consumed(&mut self, consumed: u32) -> u32 {
        self.frames.consumed(consumed)
    }

    /// Returns the time until the engine is to be polled again; none if it moves nothing.
    pub(super) fn next_poll(&self) -> Option<Delta> {
        self.frames.flying()?;
        Some(pause(self.since.elapsed(), wakeup::cost_by_timer()))
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        while let Some(frame) = self.frames.flying() {
            self.queue.abandon(frame.ticket);
            self.frames.landed += 1;
        }
    }
}

#[kunit_tests(uldma_net_engine)]
mod tests {
    use super::*;

    fn frame(number: u32) -> Frame {
        Frame {
            ticket: number.into(),
            block: 0,
            from: number.wrapping_mul(4),
            to: number.wrapping_mul(4).wrapping_add(4),
            bytes: 5000 + number % 1000,
            split: 240,
        }
    }

    #[test]
    fn frames_land_and_are_consumed_in_order() -> Result {
        let mut frames = Frames::new()?;
        for number in 0..3 {
            assert!(frames.push(frame(number)));
        }
        // What flies was not published, so it cannot have been consumed.
        assert_eq!(frames.consumed(12), 0);
        frames.landed = 2;
        assert_eq!(frames.flying(), Some(&frame(2)));
        assert_eq!(frames.consumed(7), 4760);
        assert_eq!(frames.consumed(7), 0);
        assert_eq!(frames.consumed(8), 4761);
        assert_eq!(frames.flying(), Some(&frame(2)));
        Ok(())
    }

    #[test]
    fn there_is_room_for_as_many_as_can_be_posted() -> Result {
        let mut frames = Frames::new()?;
        // The counts of blocks wrap, too.
        let start = u32::MAX / 4 - 70;
        let mut next = start;
        for _ in 0..3 {
            while frames.push(frame(next)) {
                next += 1;
            }
            assert_eq!(frames.count, MOST);
            frames.landed = 50;
            let consumed = frames.get(49).unwrap().to;
            assert!(frames.consumed(consumed) > 0);
            assert_eq!((frames.count, frames.landed), (MOST - 50, 0));
        }
        assert_eq!(next - start, 64 + 2 * 50);
        Ok(())
    }

    #[test]
    fn polls_are_no_further_apart_than_the_wait_is_long() {
        const TIMER: Delta = Delta::from_micros(50);
        let mut waited = Delta::ZERO;
        for expected in [50, 50, 100, 200, 400] {
            let next = pause(waited, TIMER);
            assert_eq!(next, Delta::from_micros(expected));
            // However often it is polled meanwhile.
            assert_eq!(pause(waited, TIMER), next);
            waited = waited + next;
        }
        assert_eq!(pause(Delta::from_secs(1000), TIMER), TICK);
    }

    #[test]
    fn credits_are_those_of_a_ring() {
        let mut credits = Credits { posted: 0, used: 0 };
        assert!(!credits.has_any());
        assert_eq!(credits.note(65), Err(eproto()));
        assert_eq!(credits.note(u32::MAX), Err(eproto()));
        assert_eq!(credits.note(16), Ok(()));
        assert_eq!(credits.note(15), Err(eproto()));
        credits.used = 16;
        assert!(!credits.has_any());
        assert_eq!(credits.note(80), Ok(()));
        assert_eq!(credits.note(81), Err(eproto()));
        // Counts wrap.
        let mut credits = Credits {
            posted: u32::MAX - 3,
            used: u32::MAX - 9,
        };
        assert_eq!(credits.note(10), Ok(()));
        assert!(credits.has_any());
    }
}
