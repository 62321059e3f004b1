// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels: messages in both directions between a process here and one at the peer.

use std::time::{Duration, Instant};

use crate::link::{Link, WindowLink, LONGEST_SLEEP};
use crate::ring::{Consumer, Inbound, Producer, Pushed};
use crate::{greeting, Device, Error, Name, Result, Spin};

/// A channel to one process at the peer: two rings over one pair of segments.
///
/// Messages arrive whole and in order. The peer is not trusted: whatever it writes, a call
/// returns the message, or an error.
#[derive(Debug)]
pub struct Channel<L: Link = WindowLink> {
    producer: Producer,
    consumer: Consumer,
    spin: Spin,
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
        let (Some(producer), Some(consumer)) = (Producer::new(capacity), Consumer::new(capacity))
        else {
            let size = crate::ring::layout::MAX_CAPACITY;
            return Err(Error::Range {
                offset: 0,
                length: capacity,
                size,
            });
        };
        Ok(Self {
            producer,
            consumer,
            spin: Spin::RING,
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
        self.producer.max_message()
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
        match self
            .producer
            .push(self.link.inbound(), self.link.outbound(), message)?
        {
            Pushed::Done { wake } => {
                if wake {
                    self.link.ring()?;
                }
                Ok(true)
            }
            Pushed::Full => Ok(false),
        }
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
        let popped = self.consumer.pop(inbound, outbound, target)?;
        let wake = match popped {
            Some(popped) => popped.wake,
            None => self.consumer.feed(inbound, outbound)?,
        };
        if wake {
            self.link.ring()?;
        }
        Ok(popped.map(|popped| popped.length))
    }

    /// Sends a message; waits for room if need be.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_send`], [`Error::Timeout`], [`Error::LinkDown`].
    #[inline]
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let spin = self.spin;
        match spin.until(|| {
            self.try_send(message)
                .map(|sent| sent.then_some(()))
                .transpose()
        }) {
            Some(result) => result,
            None => self.send_sleeping(message, timeout),
        }
    }

    /// Takes the next message into the start of `target` and returns its length; waits for one if
    /// need be.
    ///
    /// # Errors
    ///
    /// As [`Channel::try_receive`], [`Error::Timeout`], [`Error::LinkDown`].
    #[inline]
    pub fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let spin = self.spin;
        match spin.until(|| self.try_receive(target).transpose()) {
            Some(result) => result,
            None => self.receive_sleeping(target, timeout),
        }
    }

    #[cold]
    fn send_sleeping(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        loop {
            // The order is what makes it safe: count rings, say it, look again, sleep.
            let seen = self.link.rings();
            self.producer
                .sleep(self.link.inbound(), self.link.outbound());
            if self.try_send(message)? {
                return Ok(());
            }
            let now = Instant::now();
            let woken = self.link.wait(seen, deadline.min(now + LONGEST_SLEEP));
            self.producer.awake(self.link.outbound());
            woken?;
            if self.try_send(message)? {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: "room in the ring".into(),
                    after: timeout,
                });
            }
        }
    }

    #[cold]
    fn receive_sleeping(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        let deadline = Instant::now() + timeout;
        loop {
            let seen = self.link.rings();
            self.consumer
                .sleep(self.link.inbound(), self.link.outbound());
            let mut found = self.try_receive(target).transpose();
            if found.is_none() {
                let now = Instant::now();
                if let Err(error) = self.link.wait(seen, deadline.min(now + LONGEST_SLEEP)) {
                    found = Some(Err(error));
                }
            }
            if !self.consumer.peer_closed() {
                self.consumer.awake(self.link.outbound());
            }
            if let Some(result) = found.or_else(|| self.try_receive(target).transpose()) {
                return result;
            }
            if Instant::now() >= deadline {
                return Err(Error::Timeout {
                    what: "message from the peer".into(),
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
        // A peer that has closed may have given its memory back: leave that alone.
        let closed = self.consumer.peer_closed()
            || self.producer.peer_closed(self.link.inbound())
            || self.link.inbound().load(crate::ring::layout::PRODUCER)
                & crate::ring::layout::CLOSED
                != 0;
        if closed {
            return;
        }
        let outbound = self.link.outbound();
        self.producer.close(outbound);
        self.consumer.close(outbound);
        // Wake it, if it sleeps, to see that. It need not be there any more.
        let _ = self.link.ring();
    }
}
