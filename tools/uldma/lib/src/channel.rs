// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels: messages in both directions between a process here and one at the peer.

use std::time::{Duration, Instant};

use crate::link::{Link, WindowLink, LONGEST_SLEEP};
use crate::ring::{Duplex, Pushed, RingError};
use crate::{greeting, Device, Error, Name, Result, Spin};

/// A channel to one process at the peer: two rings over one pair of segments.
///
/// Messages arrive whole and in order. The peer is not trusted: whatever it writes, a call
/// returns the message, or an error.
#[derive(Debug)]
pub struct Channel<L: Link = WindowLink> {
    rings: Duplex,
    spin: Spin,
    /// The peer's memory may be gone: leave it alone.
    dead: bool,
    /// Last value of the probe word, see [`crate::measure`].
    pub(crate) probe: u64,
    link: L,
}

impl Device {
    /// Opens a channel to the process at the peer that opens one under the same name, with rings
    /// of `capacity` bytes (a power of two, the same on both sides) in each direction.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`] when nobody is there in time; [`Error::System`] as
    /// [`Device::create_segment`] and [`Device::attach_segment`] have it;
    /// [`Error::Violation`] when the peer speaks something else.
    pub fn channel(&self, name: Name, capacity: u64, timeout: Duration) -> Result<Channel> {
        let link = greeting::meet(self, name, capacity, timeout)?;
        Channel::over(link, capacity)
    }
}

impl<L: Link> Channel<L> {
    /// A channel over a link whose memory is zeroed, or greeted only.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the capacity is not a power of two between 64 and 2^30.
    pub fn over(link: L, capacity: u64) -> Result<Self> {
        let Some(rings) = Duplex::new(capacity) else {
            let size = crate::ring::layout::MAX_CAPACITY;
            return Err(Error::Range {
                offset: 0,
                length: capacity,
                size,
            });
        };
        Ok(Self {
            rings,
            spin: Spin::RING,
            dead: false,
            probe: 0,
            link,
        })
    }

    /// Sets how long calls look before they sleep.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
    }

    /// Bytes that a message can have.
    pub fn max_message(&self) -> usize {
        self.rings.max_message()
    }

    pub(crate) fn link(&self) -> &L {
        &self.link
    }

    /// Sends a message if there is room now; false when there is not.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`], [`Error::Violation`], [`Error::TooLong`], and those of the doorbell.
    #[inline]
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let (sent, wake) = match self.rings.push(inbound, outbound, message)? {
            Pushed::Done { wake } => (true, wake),
            Pushed::Full { wake } => (false, wake),
        };
        if wake {
            self.link.ring()?;
        }
        Ok(sent)
    }

    /// Takes the next message into the start of `target`, if there is one now; its length.
    ///
    /// # Errors
    ///
    /// [`Error::Closed`] after the last message, [`Error::Violation`], [`Error::TooLong`] when
    /// `target` is too short (the message stays), and those of the doorbell.
    #[inline]
    pub fn try_receive(&mut self, target: &mut [u8]) -> Result<Option<usize>> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        let (popped, wake) = self.rings.pop(inbound, outbound, target)?;
        if wake {
            self.link.ring()?;
        }
        Ok(popped)
    }

    /// Sends a message; waits for room if need be.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_send`], [`Error::Timeout`], [`Error::LinkDown`].
    #[inline(always)]
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let (inbound, outbound) = (self.link.inbound(), self.link.outbound());
        match self.rings.push_fast(inbound, outbound, message) {
            Some(Ok(false)) => Ok(()),
            other => self.send_slowly(message, timeout, other),
        }
    }

    /// Takes the next message into the start of `target` and returns its length; waits for one if
    /// need be.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_receive`], [`Error::Timeout`], [`Error::LinkDown`].
    #[inline(always)]
    pub fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let looks = self.spin.tight;
        match self.rings.pop_fast(self.link.inbound(), target, looks) {
            Some(length) => Ok(length),
            None => self.receive_slowly(target, timeout),
        }
    }

    #[cold]
    fn send_slowly(
        &mut self,
        message: &[u8],
        timeout: Duration,
        fast: Option<std::result::Result<bool, RingError>>,
    ) -> Result<()> {
        if let Some(wake) = fast {
            return if wake? { self.link.ring() } else { Ok(()) };
        }
        let spin = self.spin;
        let attempt = |channel: &mut Self| match channel.try_send(message) {
            Ok(true) => Some(Ok(())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        if let Some(result) = spin.until(|| attempt(self)) {
            return result;
        }
        self.sleep_until(timeout, "room in the ring", Duplex::sleep_for_room, attempt)
    }

    #[cold]
    fn receive_slowly(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let spin = self.spin;
        let mut attempt = |channel: &mut Self| channel.try_receive(target).transpose();
        if let Some(result) = spin.until(|| attempt(self)) {
            return result;
        }
        let sleep = Duplex::sleep_for_message;
        self.sleep_until(timeout, "message from the peer", sleep, attempt)
    }

    /// Sleeps until an attempt succeeds or fails.
    fn sleep_until<T>(
        &mut self,
        timeout: Duration,
        what: &str,
        sleep: impl Fn(&mut Duplex, &L::In, &L::Out),
        mut attempt: impl FnMut(&mut Self) -> Option<Result<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + timeout;
        loop {
            // The order is what makes it safe: count rings, say it, look again, sleep.
            let seen = self.link.rings();
            sleep(&mut self.rings, self.link.inbound(), self.link.outbound());
            let done = attempt(self);
            if done.is_none() {
                let slice = deadline.min(Instant::now() + LONGEST_SLEEP);
                if let Err(error) = self.link.wait(seen, slice) {
                    self.dead = true;
                    self.rings.abandon();
                    // What it sent before is still here.
                    return attempt(self).unwrap_or(Err(error));
                }
            }
            // A peer that has closed may have given its memory back: leave that alone.
            if !self.rings.peer_closed(self.link.inbound()) {
                self.rings.awake(self.link.outbound());
            }
            if let Some(result) = done.or_else(|| attempt(self)) {
                return result;
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: what.into(),
                    after: timeout,
                });
            }
        }
    }

    /// Waits until the peer has closed its side, and throws away what it sends until then.
    ///
    /// The side that says the last word should do this, so that the word arrives.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Violation`].
    pub fn wait_closed(&mut self, timeout: Duration) -> Result<()> {
        let mut sink = vec![0; self.max_message()];
        let deadline = Instant::now() + timeout;
        loop {
            match self.receive(
                &mut sink,
                deadline.saturating_duration_since(Instant::now()),
            ) {
                Ok(_) => {}
                Err(Error::Closed | Error::LinkDown) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}

impl<L: Link> Drop for Channel<L> {
    fn drop(&mut self) {
        // A peer that has closed, or is not there any more, may have given its memory back: leave
        // that alone.
        let gone = self.dead || self.rings.peer_closed(self.link.inbound());
        if gone || self.link.ring().is_err() {
            return;
        }
        self.rings.close(self.link.outbound());
        // Wake it, if it sleeps, to see that.
        let _ = self.link.ring();
    }
}
