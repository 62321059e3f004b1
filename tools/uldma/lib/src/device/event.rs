// SPDX-License-Identifier: MIT OR Apache-2.0

//! Events: completions, doorbells, stale regions and link changes, distributed to the threads that
//! wait for them.
//!
//! An open file has one stream of events, and several threads may wait for different ones. So one
//! thread reads for all (it has the *reader's role*) and counts the events; the others sleep until
//! the counts change or the role is free. Stale regions are kept by handle until a thread reads
//! events, as a count cannot name them.

use std::collections::{BTreeMap, HashMap};
use std::io::Read;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags};
use nix::unistd;

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::{poll_timeout, Deadline};

/// An event of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// Transfers of the open file's context ended, up to this ticket.
    Completion {
        /// Highest ticket that has ended.
        completed: u64,
    },
    /// The other side of a segment rang its doorbell.
    Doorbell {
        /// Handle of this side's segment.
        segment: u32,
        /// True once the segment, which was attached, has ended.
        ended: bool,
    },
    /// The link came up or went down.
    Link {
        /// True if the link is up.
        up: bool,
    },
    /// Addresses of a region were unmapped, moved, discarded or mapped anew.
    ///
    /// The region still refers to its original pages. The process now reads and writes other memory
    /// at these addresses, and should register it again.
    Stale {
        /// The region, see [`crate::region::Registered::handle`].
        handle: u32,
        /// Bytes of its pages whose addresses refer to other memory, as of this event.
        bytes: u64,
    },
    /// A type that this library does not know.
    Other(u32),
}

/// Number of events, by type.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) completions: u64,
    pub(crate) links: u64,
    doorbells: HashMap<u32, u64>,
    /// Those that reported the end of an attached segment.
    ends: HashMap<u32, u64>,
}

impl Counts {
    /// Returns how often the other side of the segment rang.
    pub(crate) fn doorbells(&self, segment: u32) -> u64 {
        self.doorbells.get(&segment).copied().unwrap_or(0)
    }

    /// Returns how often the end of the segment was reported. As handles are used again, this may
    /// count those of segments that had the same.
    pub(crate) fn ends(&self, segment: u32) -> u64 {
        self.ends.get(&segment).copied().unwrap_or(0)
    }

    fn add(&mut self, event: Event) {
        match event {
            Event::Completion { .. } => self.completions += 1,
            Event::Doorbell { segment, ended } => {
                *self.doorbells.entry(segment).or_default() += 1;
                if ended {
                    *self.ends.entry(segment).or_default() += 1;
                }
            }
            Event::Link { .. } => self.links += 1,
            Event::Stale { .. } | Event::Other(_) => {}
        }
    }
}

#[derive(Debug, Default)]
struct EventsState {
    counts: Counts,
    being_read: bool,
    /// Regions that went stale while threads waited for other events: bytes by handle.
    stale: BTreeMap<u32, u64>,
}

/// The events of one open file.
#[derive(Debug, Default)]
pub(crate) struct Events {
    state: Mutex<EventsState>,
    changed: Condvar,
    /// The open file has a connection, so that poll() reports events separately from data.
    connected: AtomicBool,
}

impl Events {
    /// Notes that the open file is about to have a connection: from now on its end ends the waits.
    pub(crate) fn set_connected(&self) {
        self.connected.store(true, Ordering::Relaxed);
    }

    /// Reads pending events without waiting, unless another thread is about to.
    pub(crate) fn collect(&self, fd: BorrowedFd<'_>) -> Result<()> {
        let state = self.lock();
        if !state.being_read {
            drop(self.keep(state, fd, Duration::ZERO)?);
        }
        Ok(())
    }

    /// Returns the current counts. To be called before checking the state that the events are
    /// about.
    pub(crate) fn snapshot(&self) -> Counts {
        self.lock().counts.clone()
    }

    /// Sleeps until `happened` returns true for the counts; returns false when the deadline is
    /// reached first.
    pub(crate) fn wait(
        &self,
        fd: BorrowedFd<'_>,
        deadline: Deadline,
        happened: impl Fn(&Counts) -> bool,
    ) -> Result<bool> {
        let mut state = self.lock();
        loop {
            if happened(&state.counts) {
                return Ok(true);
            }
            let left = deadline.left();
            if left.is_zero() {
                return Ok(false);
            }
            if state.being_read {
                let result = self.changed.wait_timeout(state, left);
                state = result.unwrap_or_else(PoisonError::into_inner).0;
            } else {
                state = self.keep(state, fd, left)?;
            }
        }
    }

    /// Counts the events that were read, and keeps those that counts cannot represent.
    fn keep<'a>(
        &'a self,
        state: MutexGuard<'a, EventsState>,
        fd: BorrowedFd<'_>,
        left: Duration,
    ) -> Result<MutexGuard<'a, EventsState>> {
        let (mut state, events) = self.read(state, fd, left)?;
        for event in events {
            if let Event::Stale { handle, bytes } = event {
                state.stale.insert(handle, bytes);
            }
        }
        Ok(state)
    }

    /// Drops the events of a region that has ended.
    pub(crate) fn forget(&self, handle: u32) {
        self.lock().stale.remove(&handle);
    }

    /// Sleeps until events arrive and returns them; none when the deadline is reached first.
    pub(crate) fn next(&self, fd: BorrowedFd<'_>, deadline: Deadline) -> Result<Vec<Event>> {
        let mut state = self.lock();
        loop {
            if !state.stale.is_empty() {
                let stale = std::mem::take(&mut state.stale).into_iter();
                return Ok(stale
                    .map(|(handle, bytes)| Event::Stale { handle, bytes })
                    .collect());
            }
            let left = deadline.left();
            if state.being_read {
                if left.is_zero() {
                    return Ok(Vec::new());
                }
                let result = self.changed.wait_timeout(state, left);
                state = result.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let events;
            (state, events) = self.read(state, fd, left)?;
            if !events.is_empty() || left.is_zero() {
                return Ok(events);
            }
        }
    }

    /// Reads once for all threads, with the lock released while reading.
    fn read<'a>(
        &'a self,
        mut state: MutexGuard<'a, EventsState>,
        fd: BorrowedFd<'_>,
        left: Duration,
    ) -> Result<(MutexGuard<'a, EventsState>, Vec<Event>)> {
        state.being_read = true;
        drop(state);
        let connected = self.connected.load(Ordering::Relaxed);
        let result = read_events(fd, left, connected);
        let mut state = self.lock();
        state.being_read = false;
        for event in result.iter().flatten() {
            state.counts.add(*event);
        }
        self.changed.notify_all();
        result.map(|events| (state, events))
    }

    fn lock(&self) -> MutexGuard<'_, EventsState> {
        // The state is counts only: no panic can leave it half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sleeps in poll() for at most `left`, then reads the pending events.
fn read_events(fd: BorrowedFd<'_>, left: Duration, connected: bool) -> Result<Vec<Event>> {
    let failed = |errno| Error::system("wait for events", errno);
    let pending = if connected {
        PollFlags::POLLPRI
    } else {
        PollFlags::POLLIN
    };
    let mut fds = [PollFd::new(fd, pending)];
    sys::count_call();
    match poll(&mut fds, poll_timeout(left)) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Vec::new()),
        Ok(_) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let events = fds[0].revents().unwrap_or(PollFlags::empty());
    if connected && !events.contains(pending) && events.contains(PollFlags::POLLHUP) {
        return Err(if events.contains(PollFlags::POLLERR) {
            Error::connection("wait for the peer", Errno::ECONNRESET)
        } else {
            Error::Closed
        });
    }
    let broken = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    if !connected && events.intersects(broken) {
        return Err(failed(Errno::ENODEV));
    }
    let mut bytes = [0u8; 32 * size_of::<uapi::uldma_event>()];
    sys::count_call();
    match unistd::read(fd, &mut bytes) {
        Ok(length) => Ok(decode(&bytes[..length])),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(Vec::new()),
        Err(errno) => Err(failed(errno)),
    }
}

fn decode(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    let (mut kind, mut handle, mut value) = ([0; 4], [0; 4], [0; 8]);
    while bytes.read_exact(&mut kind).is_ok()
        && bytes.read_exact(&mut handle).is_ok()
        && bytes.read_exact(&mut value).is_ok()
    {
        let value = u64::from_ne_bytes(value);
        let handle = u32::from_ne_bytes(handle);
        events.push(match u32::from_ne_bytes(kind) {
            uapi::ULDMA_EVENT_COMPLETION => Event::Completion { completed: value },
            uapi::ULDMA_EVENT_DOORBELL => Event::Doorbell {
                segment: handle,
                ended: value == 0,
            },
            uapi::ULDMA_EVENT_LINK => Event::Link { up: value != 0 },
            uapi::ULDMA_EVENT_STALE => Event::Stale {
                handle,
                bytes: value,
            },
            other => Event::Other(other),
        });
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn bytes_of(kind: u32, handle: u32, value: u64) -> Vec<u8> {
        [
            &kind.to_ne_bytes()[..],
            &handle.to_ne_bytes(),
            &value.to_ne_bytes(),
        ]
        .concat()
    }

    #[test]
    fn events_are_decoded_whole() {
        let mut bytes = bytes_of(2, 9, 1);
        bytes.extend(bytes_of(2, 10, 0));
        bytes.extend(bytes_of(3, 0, 1));
        bytes.extend(bytes_of(1, 0, 42));
        bytes.extend(bytes_of(4, 16385, 8192));
        bytes.extend(bytes_of(77, 0, 0));
        bytes.extend([0; 5]);
        let expected = [
            Event::Doorbell {
                segment: 9,
                ended: false,
            },
            Event::Doorbell {
                segment: 10,
                ended: true,
            },
            Event::Link { up: true },
            Event::Completion { completed: 42 },
            Event::Stale {
                handle: 16385,
                bytes: 8192,
            },
            Event::Other(77),
        ];
        assert_eq!(decode(&bytes), expected);
    }

    /// Two threads wait for different doorbells; whichever reads must not swallow the other's.
    #[test]
    fn nobody_loses_an_event_to_another_waiter() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let events = Events::default();
        let deadline = Deadline::after(Duration::from_secs(20));
        std::thread::scope(|scope| {
            for segment in [1, 2] {
                let (events, reader) = (&events, &reader);
                scope.spawn(move || {
                    let rung = |counts: &Counts| counts.doorbells(segment) > 0;
                    assert!(events.wait(reader.as_fd(), deadline, rung).unwrap());
                });
            }
            let both = [bytes_of(2, 1, 0), bytes_of(2, 2, 0)].concat();
            unistd::write(&writer, &both).unwrap();
        });
    }

    #[test]
    fn a_stale_region_is_told_once_even_if_another_waiter_read_it() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let events = Events::default();
        let deadline = Deadline::after(Duration::from_secs(20));
        let all = [
            bytes_of(4, 5, 4096),
            bytes_of(4, 6, 4096),
            bytes_of(2, 1, 0),
        ];
        unistd::write(&writer, &all.concat()).unwrap();
        let rung = |counts: &Counts| counts.doorbells(1) > 0;
        assert!(events.wait(reader.as_fd(), deadline, rung).unwrap());
        events.forget(6);
        let stale = Event::Stale {
            handle: 5,
            bytes: 4096,
        };
        assert_eq!(events.next(reader.as_fd(), deadline).unwrap(), [stale]);
        let now = Deadline::after(Duration::ZERO);
        assert!(events.next(reader.as_fd(), now).unwrap().is_empty());
    }

    /// A pipe whose other end is closed behaves like a connection that has ended.
    #[test]
    fn the_end_of_a_connection_ends_the_wait() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let events = Events::default();
        events.set_connected();
        drop(writer);
        let deadline = Deadline::after(Duration::from_secs(20));
        let result = events.wait(reader.as_fd(), deadline, |_| false);
        assert!(matches!(result, Err(Error::Closed)), "{result:?}");
    }

    #[test]
    fn what_is_pending_is_collected_without_waiting() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let events = Events::default();
        events.collect(reader.as_fd()).unwrap();
        assert_eq!(events.snapshot().doorbells(1), 0);
        unistd::write(&writer, &bytes_of(2, 1, 0)).unwrap();
        events.collect(reader.as_fd()).unwrap();
        assert_eq!(events.snapshot().doorbells(1), 1);
    }

    #[test]
    fn a_deadline_ends_the_wait() {
        let (reader, _writer) = nix::unistd::pipe().unwrap();
        let deadline = Deadline::after(Duration::from_millis(5));
        let events = Events::default();
        assert!(!events.wait(reader.as_fd(), deadline, |_| false).unwrap());
        assert!(events.next(reader.as_fd(), deadline).unwrap().is_empty());
    }
}
