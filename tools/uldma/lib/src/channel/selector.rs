// SPDX-License-Identifier: MIT OR Apache-2.0

//! Many channels, served in round-robin order by one thread.

use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};

use crate::channel::Channel;
use crate::connection::link::{Pollable, WindowLink};
use crate::error::{Error, Result};
use crate::sys;
use crate::wait::deadline::{poll_timeout, Deadline};
use crate::wait::spin::{repeat, Poller, Spin};
use crate::wait::wakeup;
use crate::wait::wakeup::LONGEST_SLEEP;

/// A set of channels to wait for. Each that has messages is served once before any is served twice.
#[derive(Debug)]
pub struct Selector<L: Pollable = WindowLink> {
    slots: Vec<Option<Slot<L>>>,
    /// The slot to serve next.
    next: usize,
    poller: Poller,
    spin: Spin,
    /// Ticks that a wake-up takes over the slowest of the links.
    wakeup: u64,
}

#[derive(Debug)]
struct Slot<L: Pollable> {
    channel: Channel<L>,
    /// The end of the channel and its reason were reported.
    ended: bool,
}

impl<L: Pollable> Default for Selector<L> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            next: 0,
            poller: Poller::new(Spin::Adaptive, wakeup::cost()),
            spin: Spin::Adaptive,
            wakeup: wakeup::cost(),
        }
    }
}

impl<L: Pollable> Selector<L> {
    /// Without channels.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets how long it polls the windows before it sleeps; [`Spin::Adaptive`] at first.
    pub fn set_spin(&mut self, spin: Spin) {
        self.spin = spin;
        self.poller = Poller::new(spin, self.wakeup);
    }

    /// Adds a channel, and returns its slot.
    ///
    /// # Errors
    ///
    /// [`Error::System`] of eventfd(), by [`Pollable::open`].
    pub fn add(&mut self, channel: Channel<L>) -> Result<usize> {
        channel.link().open()?;
        if channel.wakeup() > self.wakeup {
            self.wakeup = channel.wakeup();
            self.set_spin(self.spin);
        }
        let slot = Some(Slot {
            channel,
            ended: false,
        });
        match self.slots.iter().position(Option::is_none) {
            Some(free) => {
                self.slots[free] = slot;
                Ok(free)
            }
            None => {
                self.slots.push(slot);
                Ok(self.slots.len() - 1)
            }
        }
    }

    /// Returns the channel of a slot.
    pub fn get_mut(&mut self, slot: usize) -> Option<&mut Channel<L>> {
        let slot = self.slots.get_mut(slot)?.as_mut()?;
        Some(&mut slot.channel)
    }

    /// Removes a channel; its slot may be reused for another one.
    pub fn remove(&mut self, slot: usize) -> Option<Channel<L>> {
        Some(self.slots.get_mut(slot)?.take()?.channel)
    }

    /// Receives one message into the start of `target`, from the first channel that has one after
    /// the one that was served last. Returns the channel's slot and the message's length, or the
    /// reason for which that channel has ended (reported once: remove it then) or cannot be read.
    /// Waits if no message is pending.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], which also is the answer where there is no channel.
    pub fn receive(
        &mut self,
        target: &mut [u8],
        timeout: Duration,
    ) -> Result<(usize, Result<usize>)> {
        let mut poller = self.poller;
        let found = poller.until(|attempts| repeat(attempts, || self.poll_once(target)));
        self.poller = poller;
        if let Some(found) = found {
            return Ok(found);
        }
        self.poller.slept();
        let deadline = Deadline::after(timeout);
        loop {
            // This order makes it safe: count rings, publish the flags, poll again, sleep.
            let seen: Vec<u64> = self
                .open()
                .map(|slot| slot.channel.link().rings())
                .collect();
            self.open().for_each(|slot| slot.channel.fall_asleep());
            let mut found = self.poll_once(target);
            if found.is_none() {
                self.sleep(&seen, deadline.within(LONGEST_SLEEP))?;
            }
            self.open().for_each(|slot| slot.channel.wake_up());
            found = found.or_else(|| self.poll_once(target));
            if let Some(found) = found {
                return Ok(found);
            }
            if deadline.is_over() {
                return Err(deadline.missed("message from any peer"));
            }
        }
    }

    /// Polls each channel once, in round-robin order.
    fn poll_once(&mut self, target: &mut [u8]) -> Option<(usize, Result<usize>)> {
        let count = self.slots.len();
        for turn in 0..count {
            let index = (self.next + turn) % count;
            let Some(slot) = &mut self.slots[index] else {
                continue;
            };
            if let Some(found) = slot.poll_once(target) {
                self.next = index + 1;
                return Some((index, found));
            }
        }
        None
    }

    /// Returns the channels that have not ended.
    fn open(&mut self) -> impl Iterator<Item = &mut Slot<L>> {
        let slots = self.slots.iter_mut().flatten();
        slots.filter(|slot| !slot.ended)
    }

    /// Sleeps until one of the peers rings, and notes which channels have ended.
    fn sleep(&mut self, seen: &[u64], until: Instant) -> Result<()> {
        let mut fds = Vec::with_capacity(seen.len());
        for slot in self.slots.iter().flatten() {
            let link = slot.channel.link();
            let flags = if link.is_urgent() {
                PollFlags::POLLPRI
            } else {
                PollFlags::POLLIN
            };
            fds.extend(
                link.fd()
                    .filter(|_| !slot.ended)
                    .map(|fd| PollFd::new(fd, flags)),
            );
        }
        let left = until.saturating_duration_since(Instant::now());
        sys::count_call();
        match poll(&mut fds, poll_timeout(left)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Error::system("wait for messages", errno)),
        }
        let rung: Vec<bool> = fds.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        drop(fds);
        let idle = Instant::now() >= until;
        for ((slot, &seen), rung) in self.open().zip(seen).zip(rung) {
            if !rung && !idle {
                continue;
            }
            let link = slot.channel.link();
            if let Err(error) = link
                .collect()
                .and_then(|()| link.wait(seen, Instant::now()))
            {
                slot.channel.abandon(error);
            }
        }
        Ok(())
    }
}

impl<L: Pollable> Slot<L> {
    fn poll_once(&mut self, target: &mut [u8]) -> Option<Result<usize>> {
        if self.ended {
            return None;
        }
        let found = self.channel.try_receive(target).transpose();
        self.ended = matches!(&found, Some(Err(error)) if !matches!(error, Error::TooLong { .. }));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::loopback;
    use crate::connection::loopback::Loopback;

    const CAPACITY: u64 = 1024;
    const LONG: Duration = Duration::from_secs(20);

    /// Channels to a selector, and the selector.
    fn channels(count: usize, spin: Spin) -> (Vec<Channel<Loopback>>, Selector<Loopback>) {
        let mut selector = Selector::new();
        selector.set_spin(spin);
        let mut peers = Vec::new();
        for slot in 0..count {
            let (left, right) = loopback::pair(CAPACITY);
            peers.push(Channel::over(left, CAPACITY).unwrap());
            let right = Channel::over(right, CAPACITY).unwrap();
            assert_eq!(selector.add(right).unwrap(), slot);
        }
        (peers, selector)
    }

    #[test]
    fn nobody_is_served_twice_before_all() {
        let (mut peers, mut selector) = channels(3, Spin::Never);
        for peer in &mut peers {
            for _ in 0..5 {
                peer.send(b"12345678", LONG).unwrap();
            }
        }
        let mut target = [0; 8];
        for round in 0..15 {
            let (slot, result) = selector.receive(&mut target, LONG).unwrap();
            assert_eq!((slot, result.unwrap()), (round % 3, 8));
        }
        let error = selector.receive(&mut target, Duration::ZERO).unwrap_err();
        assert!(matches!(error, Error::Timeout { .. }));
    }

    /// The sleeper is woken by whichever peer sends, and never waits for the longest sleep.
    #[test]
    fn any_peer_wakes_the_sleeper() {
        let start = Instant::now();
        for spin in [Spin::Never, Spin::Adaptive] {
            let (peers, mut selector) = channels(4, spin);
            let writers: Vec<_> = peers
                .into_iter()
                .enumerate()
                .map(|(index, mut peer)| {
                    std::thread::spawn(move || {
                        for round in 0..500u32 {
                            peer.send(&round.to_ne_bytes(), LONG).unwrap();
                            if (round as usize + index) % 50 == 0 {
                                std::thread::yield_now();
                            }
                        }
                        peer.wait_closed(LONG).unwrap();
                    })
                })
                .collect();
            let mut rounds = [0u32; 4];
            while rounds.iter().sum::<u32>() < 2000 {
                let mut target = [0; 4];
                let (slot, result) = selector.receive(&mut target, LONG).unwrap();
                assert_eq!(result.unwrap(), 4);
                assert_eq!(u32::from_ne_bytes(target), rounds[slot]);
                rounds[slot] += 1;
            }
            assert_eq!(rounds, [500; 4]);
            drop(selector);
            for writer in writers {
                writer.join().unwrap();
            }
        }
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn an_end_is_told_once_after_the_last_message() {
        let (mut peers, mut selector) = channels(2, Spin::Never);
        peers[0].send(b"last", LONG).unwrap();
        peers.remove(0);
        peers[0].send(b"more", LONG).unwrap();
        let mut target = [0; 8];
        let mut served = Vec::new();
        for _ in 0..3 {
            let (slot, result) = selector.receive(&mut target, LONG).unwrap();
            served.push((slot, result.is_ok()));
        }
        assert_eq!(served, [(0, true), (1, true), (0, false)]);
        assert!(selector.receive(&mut target, Duration::ZERO).is_err());
        assert!(selector.remove(0).is_some());
        assert!(selector.remove(0).is_none());
        // The others go on, and the place is free.
        peers[0].send(b"more", LONG).unwrap();
        assert_eq!(selector.receive(&mut target, LONG).unwrap().0, 1);
        let (_peer, right) = loopback::pair(CAPACITY);
        let right = Channel::over(right, CAPACITY).unwrap();
        assert_eq!(selector.add(right).unwrap(), 0);
    }
}
