// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels: messages in both directions between a process of this node and one of a peer.

use std::time::Duration;

mod connect;
#[cfg(test)]
mod loopback;
pub(crate) mod selector;

pub use self::connect::ChannelListener;
use crate::connection::link::{Link, WindowLink};
use crate::error::{Error, Result};
use crate::ring::{Consumer, Geometry, Popped, Producer, Pushed, RingError};
use crate::wait::deadline::Deadline;
use crate::wait::spin::{repeat, Poller, Spin};
use crate::wait::wakeup::LONGEST_SLEEP;

/// A channel to one process at the peer: two rings over one pair of segments. One side has a
/// [`ChannelListener`], the other calls [`Channel::connect`].
///
/// Messages arrive whole and in order. The peer is not trusted: for anything that it writes, a call
/// returns the message, or an error.
#[derive(Debug)]
pub struct Channel<L: Link = WindowLink> {
    producer: Producer,
    consumer: Consumer,
    poller: Poller,
    /// Ticks that sleeping and waking takes here.
    wakeup: u64,
    /// How much either side was known to have taken when this side last rang: while that is unchanged,
    /// the peer may still sleep.
    rang: Option<(u64, u64)>,
    /// Reason for which the peer's memory may be unmapped and must not be accessed.
    lost: Option<Error>,
    /// Last value of the probe word, see [`crate::measure`].
    pub(crate) probe: u64,
    link: L,
}

impl<L: Link> Channel<L> {
    /// Opens a channel over a link whose memory is zero except for the handshake.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the capacity is not a power of two between 64 and 2^28.
    pub fn over(link: L, capacity: u64) -> Result<Self> {
        let ring = Geometry::of(capacity).ok_or_else(|| Error::capacity(capacity))?;
        Ok(Self::of(link, (ring, ring)))
    }

    /// Opens a channel over a link with two rings: that which this side writes, and that which it reads.
    fn of(link: L, (out, own): (Geometry, Geometry)) -> Self {
        let wakeup = link.wakeup();
        Self {
            producer: Producer::new(out),
            consumer: Consumer::new(own),
            poller: Poller::new(Spin::Adaptive, wakeup),
            wakeup,
            rang: None,
            lost: None,
            probe: 0,
            link,
        }
    }

    /// Returns the ticks that sleeping and waking takes here.
    pub(crate) fn wakeup(&self) -> u64 {
        self.wakeup
    }

    /// Sets how long calls poll the window before they sleep; [`Spin::Adaptive`] at first.
    pub fn set_spin(&mut self, spin: Spin) {
        self.poller = Poller::new(spin, self.wakeup);
    }

    /// Returns the largest number of bytes of a message.
    pub fn max_message(&self) -> usize {
        self.producer.max_message()
    }

    /// Returns the largest number of bytes of a message of the peer.
    pub fn max_received(&self) -> usize {
        self.consumer.max_message()
    }

    /// Returns the link of the channel.
    pub fn link(&self) -> &L {
        &self.link
    }

    /// Sends a message if there is room now; false when there is not.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Violation`], [`Error::TooLong`], and those of the doorbell.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        self.try_send_vectored(&[message])
    }

    /// Sends a message that lies in pieces, as one, if there is room now; false when there is not.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Violation`], [`Error::TooLong`], [`Error::System`] of the
    /// doorbell.
    pub fn try_send_vectored(&mut self, parts: &[impl AsRef<[u8]>]) -> Result<bool> {
        if let Some(error) = self.reason() {
            return Err(error);
        }
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let pushed = self.producer.push_vectored(inbound, outbound, parts)?;
        let Pushed::Done { wake } = pushed else {
            return Ok(false);
        };
        self.wake_peer(wake);
        self.reason().map_or(Ok(true), Err)
    }

    /// Receives all pending messages, at most `most`, without waiting. Each is copied to the start
    /// of `target` and passed to `taken`; the peer is notified once for all of them. Returns their
    /// number.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after the last message, [`Error::Violation`], [`Error::TooLong`] when
    /// `target` is too short (the message stays), [`Error::System`] of the doorbell.
    pub fn try_receive_batch(
        &mut self,
        target: &mut [u8],
        most: usize,
        taken: impl FnMut(&[u8]),
    ) -> Result<usize> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let (count, wake) = self
            .consumer
            .pop_batch(inbound, outbound, target, most, taken)?;
        self.wake_peer(wake);
        if count > 0 {
            return Ok(count);
        }
        self.reason().map_or(Ok(0), Err)
    }

    /// Receives the next message into the start of `target`, without waiting. Returns its length,
    /// or none if no message is pending.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after the last message, [`Error::Violation`], [`Error::TooLong`] when
    /// `target` is too short (the message stays), and those of the doorbell.
    #[inline]
    pub fn try_receive(&mut self, target: &mut [u8]) -> Result<Option<usize>> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let Popped { length, wake } = self.consumer.pop(inbound, outbound, target)?;
        self.wake_peer(wake);
        if length.is_some() {
            return Ok(length);
        }
        self.reason().map_or(Ok(None), Err)
    }

    /// Sends a message; waits for room if need be.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::LinkDown`], [`Error::Closed`], [`Error::Violation`],
    /// [`Error::TooLong`], [`Error::System`] of the doorbell.
    #[inline(always)]
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        match self.producer.push_short(inbound, outbound, message) {
            Some(Ok(false)) => Ok(()),
            other => self.send_slowly(message, timeout, other),
        }
    }

    /// Receives the next message into the start of `target`, and waits for one if none is pending.
    /// Returns its length.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::LinkDown`], [`Error::Closed`] after the last message,
    /// [`Error::Violation`], [`Error::TooLong`] when `target` is too short (the message stays),
    /// [`Error::System`] of the doorbell.
    #[inline(always)]
    pub fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let looks = self.poller.burst();
        match self.consumer.pop_short(self.link.inbound(), target, looks) {
            Some(length) => {
                self.poller.found_at_once();
                Ok(length)
            }
            None => self.receive_slowly(target, timeout),
        }
    }

    /// Sends a message that lies in pieces, as one; waits for room if need be.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::LinkDown`], [`Error::Closed`], [`Error::Violation`],
    /// [`Error::TooLong`], [`Error::System`] of the doorbell.
    pub fn send_vectored(&mut self, parts: &[impl AsRef<[u8]>], timeout: Duration) -> Result<()> {
        self.send_when_possible(timeout, |channel| channel.try_send_vectored(parts))
    }

    /// Waits for a message, then takes all that are there, as [`Channel::try_receive_batch`].
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::LinkDown`], [`Error::Closed`] after the last message,
    /// [`Error::Violation`], [`Error::TooLong`] when `target` is too short (the message stays),
    /// [`Error::System`] of the doorbell.
    pub fn receive_batch(
        &mut self,
        target: &mut [u8],
        most: usize,
        timeout: Duration,
        mut taken: impl FnMut(&[u8]),
    ) -> Result<usize> {
        self.receive_when_possible(timeout, |channel, attempts| {
            let mut attempt = || match channel.try_receive_batch(target, most, &mut taken) {
                Ok(0) => None,
                other => Some(other),
            };
            repeat(attempts, &mut attempt).transpose()
        })
    }

    #[cold]
    fn send_slowly(
        &mut self,
        message: &[u8],
        timeout: Duration,
        short: Option<std::result::Result<bool, RingError>>,
    ) -> Result<()> {
        if let Some(wake) = short {
            self.wake_peer(wake?);
            return self.reason().map_or(Ok(()), Err);
        }
        self.send_when_possible(timeout, |channel| channel.try_send(message))
    }

    /// Polls for a short message as [`Channel::receive`] does, and takes any other one.
    #[cold]
    fn receive_slowly(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        self.receive_when_possible(timeout, |channel, looks| {
            let inbound = channel.link.inbound();
            match channel.consumer.pop_short(inbound, target, looks) {
                Some(length) => Ok(Some(length)),
                None => channel.try_receive(target),
            }
        })
    }

    fn send_when_possible(
        &mut self,
        timeout: Duration,
        mut attempt: impl FnMut(&mut Self) -> Result<bool>,
    ) -> Result<()> {
        let mut attempts = |channel: &mut Self, attempts| {
            repeat(attempts, || match attempt(channel) {
                Ok(true) => Some(Ok(())),
                Ok(false) => None,
                Err(error) => Some(Err(error)),
            })
        };
        let sleep = |channel: &mut Self| {
            let (inbound, outbound) = (channel.link.inbound(), channel.link.outbound());
            channel.producer.sleep(inbound, outbound);
        };
        match self.spin(&mut attempts) {
            Some(result) => result,
            None => self.sleep_until(timeout, "room in the ring", sleep, attempts),
        }
    }

    fn receive_when_possible<T>(
        &mut self,
        timeout: Duration,
        mut attempts: impl FnMut(&mut Self, u32) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut attempts = |channel: &mut Self, count| attempts(channel, count).transpose();
        let sleep = Self::fall_asleep;
        match self.spin(&mut attempts) {
            Some(result) => result,
            None => self.sleep_until(timeout, "message from the peer", sleep, attempts),
        }
    }

    /// Makes attempts for as long as the poller allows.
    fn spin<T>(&mut self, mut attempts: impl FnMut(&mut Self, u32) -> Option<T>) -> Option<T> {
        let mut poller = self.poller;
        poller.begin(self.rang == Some(self.position()));
        let found = poller.until(|count| attempts(self, count));
        self.poller = poller;
        found
    }

    /// Publishes that this side sleeps until a message arrives. The caller must count rings before,
    /// and poll once more afterwards.
    pub(crate) fn fall_asleep(&mut self) {
        self.consumer
            .sleep(self.link.inbound(), self.link.outbound());
    }

    /// Publishes that this side is awake.
    pub(crate) fn wake_up(&mut self) {
        // A peer that has closed may have unmapped its memory, which must not be accessed.
        if self.lost.is_none() && !self.peer_closed() {
            self.consumer.awake(self.link.outbound());
            self.producer.awake(self.link.outbound());
        }
    }

    /// Returns true if the peer has published that it closed, by its words in this side's segment.
    fn peer_closed(&mut self) -> bool {
        let inbound = self.link.inbound();
        self.consumer.peer_closed(inbound) || self.producer.peer_closed(inbound)
    }

    /// Returns how much the peer is known to have taken, and this side: it changes when the peer shows
    /// that it is awake.
    fn position(&self) -> (u64, u64) {
        (self.producer.taken(), self.consumer.taken())
    }

    /// Marks the peer as lost: its memory is not accessed any more. Messages that it sent before
    /// can still be received; then `reason` is returned.
    pub(crate) fn abandon(&mut self, reason: Error) {
        self.lost = Some(reason);
        self.producer.abandon();
        self.consumer.abandon();
    }

    /// Rings the peer's doorbell, if that is necessary and there is a peer.
    #[inline]
    fn wake_peer(&mut self, necessary: bool) {
        if !necessary || self.lost.is_some() {
            return;
        }
        self.rang = Some(self.position());
        if let Err(error) = self.link.ring() {
            self.abandon(error);
        }
    }

    /// Returns the reason for which the peer is lost, if it is.
    #[inline]
    fn reason(&mut self) -> Option<Error> {
        let reason = self.lost.as_mut()?;
        // The first caller receives the full reason.
        Some(std::mem::replace(reason, Error::Closed))
    }

    /// Sleeps until an attempt succeeds or fails.
    fn sleep_until<T>(
        &mut self,
        timeout: Duration,
        what: &str,
        sleep: impl Fn(&mut Self),
        mut attempts: impl FnMut(&mut Self, u32) -> Option<Result<T>>,
    ) -> Result<T> {
        self.poller.slept();
        let deadline = Deadline::after(timeout);
        loop {
            // This order makes it safe: count rings, publish the flag, poll again, sleep.
            let seen = self.link.rings();
            sleep(self);
            let done = attempts(self, 1);
            if done.is_none() {
                if let Err(error) = self.link.wait(seen, deadline.within(LONGEST_SLEEP)) {
                    self.abandon(error);
                }
            }
            self.wake_up();
            if let Some(result) = done.or_else(|| attempts(self, 1)) {
                return result;
            }
            if deadline.is_over() {
                return Err(deadline.missed(what));
            }
        }
    }

    /// Waits until the peer has closed its side, and discards the messages that it sends until
    /// then.
    ///
    /// The side that sends the last message should call this, so that the message arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Violation`].
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<()> {
        let mut sink = vec![0; self.max_received()];
        let deadline = Deadline::after(timeout);
        loop {
            match self.receive(&mut sink, deadline.left()) {
                // A peer that sends without end must not keep this side here.
                Ok(_) if deadline.is_over() => {
                    return Err(deadline.missed("end of the peer's messages"))
                }
                Ok(_) => {}
                Err(Error::Closed | Error::LinkDown) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl<L: Link> Drop for Channel<L> {
    fn drop(&mut self) {
        // A peer that has closed or ended may have unmapped its memory, which must not be accessed.
        if self.lost.is_some() || self.peer_closed() || self.link.ring().is_err() {
            return;
        }
        self.producer.close(self.link.outbound());
        self.consumer.close(self.link.outbound());
        // Wake it, if it sleeps, to see that.
        let _ = self.link.ring();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::connection::loopback;
    use crate::connection::loopback::Loopback;
    use crate::ring::{layout, Inbound};

    const CAPACITY: u64 = 64;
    const LONG: Duration = Duration::from_secs(20);

    /// A link that turns out to be down when the peer's doorbell is rung.
    struct Lost(Loopback);

    impl Link for Lost {
        type In = Loopback;
        type Out = Loopback;

        fn inbound(&self) -> &Loopback {
            &self.0
        }

        fn outbound(&self) -> &Loopback {
            &self.0
        }

        fn ring(&self) -> Result<()> {
            Err(Error::LinkDown)
        }

        fn rings(&self) -> u64 {
            self.0.rings()
        }

        fn wait(&self, seen: u64, deadline: Instant) -> Result<bool> {
            self.0.wait(seen, deadline)
        }
    }

    /// A peer that sleeps for room behind so many messages, and the other side, which loses it by waking
    /// it.
    fn channels() -> (Channel<Loopback>, Channel<Lost>, usize) {
        let (left, right) = loopback::pair(CAPACITY);
        let mut left = Channel::over(left, CAPACITY).unwrap();
        let mut messages = 0;
        while left.try_send(&[1; 16]).unwrap() {
            messages += 1;
        }
        let (inbound, outbound) = (left.link.inbound(), left.link.outbound());
        left.producer.sleep(inbound, outbound);
        let right = Channel::over(Lost(right), CAPACITY).unwrap();
        (left, right, messages)
    }

    #[test]
    fn a_wait_can_be_without_limit() {
        let (left, right) = loopback::pair(CAPACITY);
        let mut right = Channel::over(right, CAPACITY).unwrap();
        right.set_spin(Spin::Never);
        let sleeper = std::thread::spawn(move || right.receive(&mut [0; 16], Duration::MAX));
        while left.inbound().acquire(layout::TAKEN) & layout::ASLEEP == 0 {
            std::thread::yield_now();
        }
        let mut left = Channel::over(left, CAPACITY).unwrap();
        left.send(b"late", LONG).unwrap();
        assert_eq!(sleeper.join().unwrap().unwrap(), 4);
    }

    #[test]
    fn what_was_taken_outlives_the_peer() {
        let (_left, mut right, messages) = channels();
        let mut target = [0; 16];
        for _ in 0..messages {
            assert_eq!(right.receive(&mut target, LONG).unwrap(), 16);
        }
        let error = right.receive(&mut target, LONG).unwrap_err();
        assert!(matches!(error, Error::LinkDown), "{error}");
        for error in [
            right.receive(&mut target, LONG).unwrap_err(),
            right.try_receive(&mut target).unwrap_err(),
            right.send(b"no peer", LONG).unwrap_err(),
        ] {
            assert!(matches!(error, Error::Closed), "{error}");
        }
    }

    /// A link whose other side sends the next message whenever the last one was received.
    struct Endless {
        link: Loopback,
        other: std::cell::RefCell<Channel<Loopback>>,
        /// Messages until it closes.
        left: std::cell::Cell<u32>,
    }

    impl Link for Endless {
        type In = Loopback;
        type Out = Loopback;

        fn inbound(&self) -> &Loopback {
            match self.left.get().checked_sub(1) {
                Some(left) => {
                    self.left.set(left);
                    let _ = self.other.borrow_mut().try_send(&[1; 8]);
                }
                None => {
                    let (peer_ended, _) = loopback::pair(CAPACITY);
                    *self.other.borrow_mut() = Channel::over(peer_ended, CAPACITY).unwrap();
                }
            }
            &self.link
        }

        fn outbound(&self) -> &Loopback {
            &self.link
        }

        fn ring(&self) -> Result<()> {
            self.link.ring()
        }

        fn rings(&self) -> u64 {
            self.link.rings()
        }

        fn wait(&self, seen: u64, deadline: Instant) -> Result<bool> {
            self.link.wait(seen, deadline)
        }
    }

    #[test]
    fn a_peer_that_goes_on_cannot_keep_who_waits_for_its_end() {
        for (left, timeout) in [(1000, Duration::ZERO), (1000, LONG)] {
            let (link, other) = loopback::pair(CAPACITY);
            let link = Endless {
                link,
                other: Channel::over(other, CAPACITY).unwrap().into(),
                left: left.into(),
            };
            let mut channel = Channel::over(link, CAPACITY).unwrap();
            let result = channel.wait_closed(timeout);
            match timeout.is_zero() {
                true => assert!(matches!(result, Err(Error::Timeout { .. })), "{result:?}"),
                false => result.unwrap(),
            }
        }
    }

    #[test]
    fn a_batch_outlives_the_peer() {
        let (_left, mut right, messages) = channels();
        let mut target = [0; 16];
        let mut batch =
            |right: &mut Channel<Lost>| right.receive_batch(&mut target, messages, LONG, |_| {});
        assert_eq!(batch(&mut right).unwrap(), messages);
        let error = batch(&mut right).unwrap_err();
        assert!(matches!(error, Error::LinkDown), "{error}");
    }
}
