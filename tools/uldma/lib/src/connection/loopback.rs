// SPDX-License-Identifier: MIT OR Apache-2.0

//! A link within one process, for tests and for programs without a device.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{fence, AtomicU64, AtomicU8, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use crate::ring::{Geometry, Inbound, Outbound};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::connection::link::{Link, Pollable};
use crate::error::{Error, Result};

/// One half: memory that one side writes and the other reads, and the owner's doorbell.
#[derive(Debug)]
struct Half {
    words: Vec<AtomicU64>,
    rings: Mutex<u64>,
    rung: Condvar,
    /// The doorbell for poll(), if it was requested.
    eventfd: OnceLock<EventFd>,
}

impl Half {
    fn new(length: u64) -> Arc<Self> {
        let words = length / 8;
        Arc::new(Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            rings: Mutex::new(0),
            rung: Condvar::new(),
            eventfd: OnceLock::new(),
        })
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        let word = self.words[offset / 8].as_ptr().cast::<u8>();
        // SAFETY: the byte lies in the word that was just found in bounds; all accesses to it,
        // of one byte or eight, are atomic.
        unsafe { AtomicU8::from_ptr(word.add(offset % 8)) }
    }
}

/// One side of a link within a process.
#[derive(Clone, Debug)]
pub struct Loopback {
    inbound: Arc<Half>,
    outbound: Arc<Half>,
}

/// Returns the two sides of a link whose halves hold rings of `capacity` bytes, or nothing if there is no
/// such ring.
pub fn pair(capacity: u64) -> (Loopback, Loopback) {
    let length = Geometry::of(capacity).map_or(0, Geometry::length);
    let (left, right) = (Half::new(length), Half::new(length));
    (
        Loopback {
            inbound: Arc::clone(&left),
            outbound: Arc::clone(&right),
        },
        Loopback {
            inbound: right,
            outbound: left,
        },
    )
}

impl Inbound for Loopback {
    fn load(&self, offset: usize) -> u64 {
        u64::from_le(self.inbound.words[offset / 8].load(Ordering::Acquire))
    }

    fn acquire(&self, offset: usize) -> u64 {
        self.load(offset)
    }

    fn read(&self, offset: usize, target: &mut [u8]) {
        for (index, byte) in target.iter_mut().enumerate() {
            *byte = self.inbound.byte(offset + index).load(Ordering::Relaxed);
        }
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Outbound for Loopback {
    fn store(&self, offset: usize, value: u64) {
        self.outbound.words[offset / 8].store(value.to_le(), Ordering::Relaxed);
    }

    fn publish(&self, offset: usize, value: u64) {
        self.outbound.words[offset / 8].store(value.to_le(), Ordering::Release);
    }

    fn release(&self, offset: usize, value: u64) {
        self.publish(offset, value);
    }

    fn write(&self, offset: usize, source: &[u8]) {
        for (index, byte) in source.iter().enumerate() {
            self.outbound
                .byte(offset + index)
                .store(*byte, Ordering::Relaxed);
        }
    }
}

impl Link for Loopback {
    type In = Self;
    type Out = Self;

    fn inbound(&self) -> &Self {
        self
    }

    fn outbound(&self) -> &Self {
        self
    }

    fn ring(&self) -> Result<()> {
        let mut rings = self
            .outbound
            .rings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *rings += 1;
        self.outbound.rung.notify_all();
        if let Some(eventfd) = self.outbound.eventfd.get() {
            // Full is as good as rung.
            let _ = eventfd.write(1);
        }
        Ok(())
    }

    fn rings(&self) -> u64 {
        *self
            .inbound
            .rings
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn wait(&self, seen: u64, deadline: Instant) -> Result<bool> {
        let mut rings = self
            .inbound
            .rings
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while *rings == seen {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let result = self.inbound.rung.wait_timeout(rings, left);
            rings = result.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(true)
    }
}

impl Pollable for Loopback {
    fn open(&self) -> Result<()> {
        let flags = EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC;
        let eventfd =
            EventFd::from_flags(flags).map_err(|errno| Error::system("make an eventfd", errno))?;
        // If another thread was first, its eventfd is used.
        let _ = self.inbound.eventfd.set(eventfd);
        Ok(())
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.inbound.eventfd.get().map(AsFd::as_fd)
    }

    fn is_urgent(&self) -> bool {
        false
    }

    fn collect(&self) -> Result<()> {
        if let Some(eventfd) = self.inbound.eventfd.get() {
            // Nothing to read is nothing to collect.
            let _ = eventfd.read();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::layout;

    #[test]
    fn words_are_little_endian_in_memory() {
        let (left, right) = pair(64);
        let (one, other) = (layout::TAKEN, layout::OUT);
        left.store(one, 0x0102_0304_0506_0708);
        left.publish(other, 0x1112_1314_1516_1718);
        let mut bytes = [0; 16];
        right.read(one, &mut bytes);
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[8..], [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11]);
        assert_eq!(right.load(one), 0x0102_0304_0506_0708);
        assert_eq!(right.acquire(other), 0x1112_1314_1516_1718);
    }
}
