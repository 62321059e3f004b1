// SPDX-License-Identifier: MIT OR Apache-2.0

//! Round trips: of a bare cache line, and of messages.

use std::time::Duration;

use super::Clock;
use crate::channel::Channel;
use crate::connection::link::Link;
use crate::error::Result;
use crate::ring::layout::PROBE;
use crate::ring::{Inbound, Outbound};
use crate::wait::deadline::Deadline;

/// Polls between two readings of the time.
const LOOKS: u32 = 1 << 16;

impl<L: Link> Channel<L> {
    /// Times `count` round trips of one bare word, each in ticks of `clock`: a store to the peer's
    /// segment and loads of the own one until the peer has stored the same. The peer must call
    /// [`Channel::raw_pong`] with the same count.
    ///
    /// This is the lower bound: no two processes on the two nodes can be faster.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`] when an answer takes longer than `timeout`.
    pub fn raw_ping(&mut self, count: u32, clock: &Clock, timeout: Duration) -> Result<Vec<u64>> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            self.probe += 1;
            let before = clock.ticks();
            self.link().outbound().store(PROBE, self.probe);
            self.wait_probe(timeout)?;
            samples.push(clock.ticks().wrapping_sub(before));
        }
        Ok(samples)
    }

    /// Answers [`Channel::raw_ping`].
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`] when the next word takes longer than `timeout`.
    pub fn raw_pong(&mut self, count: u32, timeout: Duration) -> Result<()> {
        for _ in 0..count {
            self.probe += 1;
            self.wait_probe(timeout)?;
            self.link().outbound().store(PROBE, self.probe);
        }
        Ok(())
    }

    #[inline]
    fn wait_probe(&self, timeout: Duration) -> Result<()> {
        let mut deadline = None;
        loop {
            for _ in 0..LOOKS {
                if self.link().inbound().load(PROBE) == self.probe {
                    return Ok(());
                }
            }
            let deadline = *deadline.get_or_insert_with(|| Deadline::after(timeout));
            if deadline.is_over() {
                return Err(deadline.missed("answer to a bare word"));
            }
            std::thread::yield_now();
        }
    }

    /// Times `count` round trips of a message, each in ticks of `clock`. The peer must call
    /// [`Channel::pong`] with the same count.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::LinkDown`], [`crate::Error::Closed`], [`crate::Error::Violation`],
    /// [`crate::Error::TooLong`], [`crate::Error::System`] of the doorbell.
    pub fn ping(
        &mut self,
        message: &[u8],
        count: u32,
        clock: &Clock,
        timeout: Duration,
    ) -> Result<Vec<u64>> {
        let mut samples = Vec::with_capacity(count as usize);
        let mut target = vec![0; message.len().max(8)];
        for _ in 0..count {
            let before = clock.ticks();
            self.send(message, timeout)?;
            self.receive(&mut target, timeout)?;
            samples.push(clock.ticks().wrapping_sub(before));
        }
        Ok(samples)
    }

    /// Answers [`Channel::ping`] with the same message.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Timeout`], [`crate::Error::LinkDown`], [`crate::Error::Closed`], [`crate::Error::Violation`],
    /// [`crate::Error::TooLong`], [`crate::Error::System`] of the doorbell.
    pub fn pong(&mut self, size: usize, count: u32, timeout: Duration) -> Result<()> {
        let mut target = vec![0; size.max(8)];
        for _ in 0..count {
            let length = self.receive(&mut target, timeout)?;
            self.send(&target[..length], timeout)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::loopback;
    use crate::error::Error;

    #[test]
    fn both_kinds_come_back() {
        let timeout = Duration::from_secs(20);
        let (left, right) = loopback::pair(1024);
        let mut right = Channel::over(right, 1024).unwrap();
        let peer = std::thread::spawn(move || {
            right.raw_pong(50, timeout).unwrap();
            right.pong(8, 50, timeout).unwrap();
            right.raw_pong(5, timeout).unwrap();
        });
        let mut left = Channel::over(left, 1024).unwrap();
        let clock = Clock::start();
        assert_eq!(left.raw_ping(50, &clock, timeout).unwrap().len(), 50);
        assert_eq!(left.ping(&[7; 8], 50, &clock, timeout).unwrap().len(), 50);
        assert_eq!(left.raw_ping(5, &clock, timeout).unwrap().len(), 5);
        peer.join().unwrap();
    }

    #[test]
    fn a_silent_peer_ends_in_a_timeout() {
        let (left, _right) = loopback::pair(64);
        let mut left = Channel::over(left, 64).unwrap();
        let error = left
            .raw_ping(1, &Clock::start(), Duration::ZERO)
            .unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }));
    }
}
