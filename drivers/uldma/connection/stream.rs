// SPDX-License-Identifier: GPL-2.0

//! The buffers of one direction of a connection, and the progress of each.
//!
//! Bytes are counted, not buffers: the first byte posted here is transferred to or from the first
//! byte posted by the peer, whatever the boundaries. Memory is reaped in the order in which it was
//! posted, and adjacent memory is one range.

use kernel::prelude::*;

use crate::{
    kernel_ext::errno::eproto,
    uapi, //
};

/// Maximum number of buffers of one direction.
const MAX_BUFFERS: usize = uapi::ULDMA_CONN_MAX_BUFFERS as usize;

/// A posted buffer. The counts are bytes from its start, each at most the one before it.
struct PostedBuffer<B> {
    buffer: B,
    addr: u64,
    length: u64,
    /// Bytes that were offered to the peer, or whose copy has begun.
    claimed: u64,
    /// Bytes that were moved, so that the program may reap them.
    moved: u64,
    /// Bytes that were reaped.
    returned: u64,
    inval: InvalState,
}

/// Invalidation of a buffer. It is needed before the last bytes can be reaped if the engine moves
/// the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InvalState {
    /// The device can access the buffer. An invalidation has to be submitted once all bytes were
    /// moved.
    Needed,
    /// The invalidation is in flight.
    Requested,
    Done,
}

impl<B> PostedBuffer<B> {
    /// Returns the number of bytes that can be reaped.
    fn ready(&self) -> u64 {
        if self.moved == self.length && self.inval != InvalState::Done {
            0
        } else {
            self.moved - self.returned
        }
    }

    /// Returns true if the buffer has to be invalidated before it can be reaped.
    fn needs_invalidation(&self) -> bool {
        self.moved == self.length && self.inval == InvalState::Needed
    }
}

/// The buffers of one direction.
pub(super) struct Stream<B> {
    posted: KVec<PostedBuffer<B>>,
    /// Buffers that were reaped as a whole, to be released.
    finished: KVec<B>,
    /// Total number of bytes that were moved.
    total: u64,
    /// The total when waiters were woken last, if no call has tried to reap since.
    told: Option<u64>,
}

/// Bytes of one buffer to move or to offer.
pub(super) struct Piece<'a, B> {
    pub(super) buffer: &'a B,
    /// First byte.
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl<B> Stream<B> {
    /// Creates an empty stream, with room for the maximum number of buffers.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            posted: KVec::with_capacity(MAX_BUFFERS, GFP_KERNEL_ACCOUNT)?,
            finished: KVec::with_capacity(MAX_BUFFERS, GFP_KERNEL_ACCOUNT)?,
            total: 0,
            told: None,
        })
    }

    /// Returns true if there is room for one more buffer.
    pub(super) fn has_room(&self) -> bool {
        self.posted.len() + self.finished.len() < MAX_BUFFERS
    }

    /// Posts a buffer; returns it if there is no room. The last bytes of a buffer that is moved
    /// `by_engine` can be reaped only after [`Stream::invalidated`].
    pub(super) fn post(
        &mut self,
        buffer: B,
        (addr, length): (u64, u64),
        by_engine: bool,
    ) -> Result<(), B> {
        if !self.has_room() {
            return Err(buffer);
        }
        let posted = PostedBuffer {
            buffer,
            addr,
            length,
            claimed: 0,
            moved: 0,
            returned: 0,
            inval: if by_engine {
                InvalState::Needed
            } else {
                InvalState::Done
            },
        };
        // There is room.
        let pushed = self.posted.push_within_capacity(posted);
        pushed.map_err(|err| err.0.buffer)
    }

    /// Returns the next unclaimed bytes, at most `limit` of one buffer.
    pub(super) fn next(&self, limit: u64) -> Option<Piece<'_, B>> {
        let mut posted = self.posted.iter();
        let next = posted.find(|posted| posted.claimed < posted.length)?;
        let length = (next.length - next.claimed).min(limit);
        (length > 0).then_some(Piece {
            buffer: &next.buffer,
            offset: next.claimed,
            length,
        })
    }

    /// Claims `length` of the bytes that [`Stream::next`] has returned.
    pub(super) fn claim(&mut self, length: u64) {
        let mut posted = self.posted.iter_mut();
        if let Some(next) = posted.find(|posted| posted.claimed < posted.length) {
            next.claimed = next.claimed.saturating_add(length).min(next.length);
        }
    }

    /// Returns the claimed bytes of the first buffer that was not moved as a whole.
    pub(super) fn unmoved(&self) -> Option<Piece<'_, B>> {
        let mut posted = self.posted.iter();
        let next = posted.find(|posted| posted.moved < posted.length)?;
        Some(Piece {
            buffer: &next.buffer,
            offset: next.moved,
            length: next.claimed - next.moved,
        })
    }

    /// Notes that the next `bytes` bytes were moved.
    ///
    /// # Errors
    ///
    /// `EPROTO` for more bytes than were claimed; nothing has changed then.
    pub(super) fn moved(&mut self, bytes: u64) -> Result {
        if bytes > self.in_flight() {
            return Err(eproto());
        }
        let mut left = bytes;
        for posted in &mut self.posted {
            let step = left.min(posted.claimed - posted.moved);
            posted.moved += step;
            left -= step;
        }
        self.total = self.total.wrapping_add(bytes);
        Ok(())
    }

    /// Returns the next buffer that has to be invalidated.
    pub(super) fn next_to_invalidate(&mut self) -> Option<&mut B> {
        let mut posted = self.posted.iter_mut();
        let next = posted.find(|posted| posted.needs_invalidation())?;
        Some(&mut next.buffer)
    }

    /// Notes that the invalidation of [`Stream::next_to_invalidate`] was submitted.
    pub(super) fn invalidation_requested(&mut self) {
        let mut posted = self.posted.iter_mut();
        if let Some(next) = posted.find(|posted| posted.needs_invalidation()) {
            next.inval = InvalState::Requested;
        }
    }

    /// Notes that the buffer for which `is` returns true was invalidated. Returns the buffer.
    pub(super) fn invalidated(&mut self, is: impl Fn(&B) -> bool) -> Option<&mut B> {
        let mut posted = self.posted.iter_mut();
        let posted =
            posted.find(|posted| posted.inval == InvalState::Requested && is(&posted.buffer))?;
        posted.inval = InvalState::Done;
        Some(&mut posted.buffer)
    }

    /// Reaps at most `limit` moved bytes. Returns address and length.
    pub(super) fn reap(&mut self, limit: u64) -> Option<(u64, u64)> {
        self.told = None;
        let mut range: Option<(u64, u64)> = None;
        while let Some(first) = self.posted.first_mut() {
            let ready = first.ready();
            let addr = first.addr.wrapping_add(first.returned);
            let (start, length) = range.unwrap_or((addr, 0));
            if ready == 0 || length == limit || start.wrapping_add(length) != addr {
                break;
            }
            let step = ready.min(limit - length);
            first.returned += step;
            range = Some((start, length + step));
            if first.returned < first.length {
                break;
            }
            if let Ok(posted) = self.posted.remove(0) {
                // There is room for all posted buffers.
                let _ = self.finished.push_within_capacity(posted.buffer);
            }
        }
        range
    }

    /// Takes out a buffer that was reaped as a whole, to be released.
    pub(super) fn pop_finished(&mut self) -> Option<B> {
        self.finished.pop()
    }

    /// Takes out any buffer, in whatever state, to be released.
    pub(super) fn pop(&mut self) -> Option<B> {
        let posted = || self.posted.pop().map(|posted| posted.buffer);
        self.finished.pop().or_else(posted)
    }

    /// Returns true if bytes can be reaped.
    pub(super) fn has_ready(&self) -> bool {
        self.posted.first().is_some_and(|posted| posted.ready() > 0)
    }

    /// Returns true if bytes can be reaped of which waiters were not told, and notes that they are
    /// told now.
    pub(super) fn has_news(&mut self) -> bool {
        let ready = self.has_ready().then_some(self.total);
        let told = core::mem::replace(&mut self.told, ready);
        ready.is_some() && ready != told
    }

    /// Returns true if bytes can be reaped after an invalidation only.
    pub(super) fn is_withheld(&self) -> bool {
        let mut posted = self.posted.iter();
        posted
            .next()
            .is_some_and(|posted| posted.moved > posted.returned && posted.ready() == 0)
    }

    /// Returns true if all posted bytes were reaped.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty()
    }

    /// Returns true if no buffer is left to be released.
    pub(super) fn is_released(&self) -> bool {
        self.posted.is_empty() && self.finished.is_empty()
    }

    /// Returns the number of bytes that were claimed and not moved.
    pub(super) fn in_flight(&self) -> u64 {
        self.posted.iter().fold(0, |sum, posted| {
            sum.saturating_add(posted.claimed - posted.moved)
        })
    }

    /// Returns the number of bytes that were posted and not moved.
    pub(super) fn left(&self) -> u64 {
        self.posted.iter().fold(0, |sum, posted| {
            sum.saturating_add(posted.length - posted.moved)
        })
    }

    /// Returns the total number of bytes that were moved.
    pub(super) fn total(&self) -> u64 {
        self.total
    }
}

/// An offer of memory of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) token: u64,
    pub(super) generation: u64,
    /// First byte that is not claimed.
    pub(super) offset: u64,
    /// Bytes from there on.
    pub(super) length: u64,
}

/// The unclaimed offers of the peer.
pub(super) struct Offers(KVec<Offer>);

impl Offers {
    /// Creates an empty list, with room for the maximum number of offers.
    pub(super) fn new() -> Result<Self> {
        let room = KVec::with_capacity(MAX_BUFFERS, GFP_KERNEL_ACCOUNT)?;
        Ok(Self(room))
    }

    /// Adds an offer of `bytes` bytes. All unclaimed bytes have to fit into `room`.
    ///
    /// # Errors
    ///
    /// `EPROTO` for zero bytes, for a number beyond `i64`, and for too many offers or bytes.
    pub(super) fn add(&mut self, token: u64, generation: u64, bytes: u64, room: u64) -> Result {
        let offered = self.0.iter().map(|offer| offer.length);
        let sum = offered.fold(bytes, u64::saturating_add);
        if bytes == 0 || i64::try_from(bytes).is_err() || sum > room {
            return Err(eproto());
        }
        let offer = Offer {
            token,
            generation,
            offset: 0,
            length: bytes,
        };
        self.0.push_within_capacity(offer).map_err(|_| eproto())
    }

    /// The next bytes.
    pub(super) fn next(&self) -> Option<Offer> {
        self.0.first().copied()
    }

    /// Claims `length` of the next bytes.
    pub(super) fn claim(&mut self, length: u64) {
        let Some(first) = self.0.first_mut() else {
            return;
        };
        first.offset += length.min(first.length);
        first.length -= length.min(first.length);
        if first.length == 0 {
            let _ = self.0.remove(0);
        }
    }
}

#[kunit_tests(uldma_connection_stream)]
mod tests {
    use super::*;

    fn stream(buffers: &[(u64, u64)]) -> Result<Stream<u32>> {
        let mut stream = Stream::new()?;
        for (number, (addr, length)) in buffers.iter().enumerate() {
            let number = u32::try_from(number)?;
            let posted = stream.post(number, (*addr, *length), false);
            posted.map_err(|_| ENOSPC)?;
        }
        Ok(stream)
    }

    /// Claims and moves `bytes` bytes.
    fn run(stream: &mut Stream<u32>, bytes: u64) -> Result {
        let mut left = bytes;
        while left > 0 {
            let length = stream.next(left).ok_or(ENOENT)?.length;
            stream.claim(length);
            left -= length;
        }
        stream.moved(bytes)
    }

    #[test]
    fn waiters_are_told_once_of_what_is_ready() -> Result {
        let mut stream = stream(&[(1000, 100), (5000, 10)])?;
        assert!(!stream.has_news());
        run(&mut stream, 50)?;
        assert!(stream.has_news());
        // Other progress of the connection is no news of this direction.
        assert!(!stream.has_news());
        run(&mut stream, 50)?;
        assert!(stream.has_news() && !stream.has_news());
        // A call that takes a part may wait for the rest, which is there.
        assert_eq!(stream.reap(30), Some((1000, 30)));
        assert!(stream.has_news());
        Ok(())
    }

    #[test]
    fn what_an_invalidation_withholds_is_news_after_it() -> Result {
        let mut stream = Stream::new()?;
        for number in 0..2 {
            let posted = stream.post(number, (u64::from(number) * 1000, 100), true);
            posted.map_err(|_| ENOSPC)?;
        }
        run(&mut stream, 200)?;
        assert!(!stream.has_news());
        for number in 0..2 {
            assert_eq!(stream.next_to_invalidate().copied(), Some(number));
            stream.invalidation_requested();
        }
        assert!(stream.invalidated(|buffer| *buffer == 0).is_some());
        assert!(stream.has_news());
        // The second one is withheld when a call has reaped the first, and no byte is moved later.
        assert_eq!(stream.reap(1000), Some((0, 100)));
        assert!(stream.invalidated(|buffer| *buffer == 1).is_some());
        assert!(stream.has_news());
        Ok(())
    }

    #[test]
    fn memory_comes_back_in_order() -> Result {
        // Two buffers side by side, then one elsewhere.
        let mut stream = stream(&[(1000, 100), (1100, 50), (5000, 10)])?;
        assert_eq!(stream.reap(10), None);
        run(&mut stream, 155)?;
        assert_eq!(stream.reap(30), Some((1000, 30)));
        assert_eq!(stream.pop_finished(), None);
        assert_eq!(stream.reap(1000), Some((1030, 120)));
        assert_eq!(stream.pop_finished(), Some(1));
        assert_eq!(stream.pop_finished(), Some(0));
        assert_eq!(stream.reap(1000), Some((5000, 5)));
        assert!(!stream.has_ready() && !stream.is_empty());
        assert_eq!(stream.left(), 5);
        Ok(())
    }

    #[test]
    fn no_more_is_moved_than_was_claimed() -> Result {
        let mut stream = stream(&[(0, 100)])?;
        assert_eq!(stream.moved(1), Err(eproto()));
        stream.claim(60);
        assert_eq!(stream.moved(61), Err(eproto()));
        assert_eq!(stream.in_flight(), 60);
        stream.moved(60)?;
        assert_eq!(stream.in_flight(), 0);
        assert_eq!(stream.total(), 60);
        assert_eq!(stream.next(u64::MAX).map(|piece| piece.offset), Some(60));
        Ok(())
    }

    #[test]
    fn what_is_held_comes_back_when_it_is_let_go() -> Result {
        let mut stream = Stream::new()?;
        for (number, addr) in [(1, 0), (2, 100)] {
            let posted = stream.post(number, (addr, 100), true);
            posted.map_err(|_| ENOSPC)?;
        }
        run(&mut stream, 60)?;
        // Not all bytes were moved, so those that were can be reaped.
        assert_eq!(stream.next_to_invalidate(), None);
        assert_eq!(stream.reap(50), Some((0, 50)));
        run(&mut stream, 140)?;
        assert_eq!(stream.next_to_invalidate(), Some(&mut 1));
        stream.invalidation_requested();
        assert_eq!(stream.next_to_invalidate(), Some(&mut 2));
        stream.invalidation_requested();
        assert_eq!(stream.next_to_invalidate(), None);
        assert!(stream.reap(1000).is_none() && !stream.has_ready());
        assert!(stream.is_withheld());
        // Out of order: the first buffer still blocks the second.
        assert_eq!(stream.invalidated(|number| *number == 2), Some(&mut 2));
        assert_eq!(stream.reap(1000), None);
        assert_eq!(stream.invalidated(|number| *number == 1), Some(&mut 1));
        assert_eq!(stream.invalidated(|number| *number == 1), None);
        assert!(stream.has_ready() && !stream.is_withheld());
        assert_eq!(stream.reap(1000), Some((50, 150)));
        Ok(())
    }

    #[test]
    fn buffers_are_limited() -> Result {
        let mut stream = Stream::new()?;
        for number in 0..uapi::ULDMA_CONN_MAX_BUFFERS {
            assert!(stream.post(number, (0, 1), false).is_ok());
        }
        assert_eq!(stream.post(77, (0, 1), true), Err(77));
        Ok(())
    }

    #[test]
    fn offers_are_claimed_in_parts() -> Result {
        let mut offers = Offers::new()?;
        assert_eq!(offers.add(1, 2, 0, u64::MAX), Err(eproto()));
        assert_eq!(offers.add(1, 2, u64::MAX, u64::MAX), Err(eproto()));
        assert_eq!(offers.add(1, 2, 11, 10), Err(eproto()));
        offers.add(1, 2, 10, 10)?;
        assert_eq!(offers.add(3, 4, 5, 14), Err(eproto()));
        offers.add(3, 4, 5, 15)?;
        offers.claim(4);
        let rest = Offer {
            token: 1,
            generation: 2,
            offset: 4,
            length: 6,
        };
        assert_eq!(offers.next(), Some(rest));
        offers.claim(6);
        assert_eq!(offers.next().map(|offer| offer.token), Some(3));
        for _ in 1..MAX_BUFFERS {
            offers.add(1, 1, 1, u64::MAX)?;
        }
        assert_eq!(offers.add(1, 1, 1, u64::MAX), Err(eproto()));
        Ok(())
    }
}
