// SPDX-License-Identifier: MIT OR Apache-2.0

//! The pages of `PEX_DMA`: those that are protected while they are sent, and those that are exchanged
//! where messages arrive. What cannot be exchanged is copied, or pinned, and counted by its reason.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use nix::errno::Errno;

use crate::device::heap::{Area, Part};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::region::exchange::ExchangeSlots;
use crate::transfer::ticket::Ticket;

/// What a connection has done by `PEX_DMA`, and what it has copied instead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ExchangeStats {
    /// Messages that were sent from protected pages.
    pub sent: u64,
    /// Pages whose last send has ended, and that were not written meanwhile.
    pub pages_clean: u64,
    /// Pages whose last send has ended, and that were copied, since the program wrote to them.
    pub pages_copied: u64,
    /// Messages that were not sent so, by reason.
    pub not_sent: Fallbacks,
    /// Pages that were exchanged at the receiver.
    pub pages_exchanged: u64,
    /// Calls of the driver for them: one for all pieces of a message that had arrived in adjacent
    /// slots, up to half of the slots.
    pub exchanges: u64,
    /// Bytes behind the last whole page of a piece whose other pages were exchanged; copied.
    pub tail_bytes: u64,
    /// Pieces of messages of which no page was exchanged, by reason. Each slot has one piece.
    pub not_exchanged: Fallbacks,
}

/// Messages, or pieces of messages, that were not exchanged, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fallbacks {
    /// Shorter than the threshold, or than a page where messages arrive.
    pub small: u64,
    /// Not in exchangeable memory of the same open file.
    pub ordinary: u64,
    /// Of these, sent by `V2P_DMA`, since they are longer than a slot.
    pub pinned: u64,
    /// The target does not begin at a page.
    pub unaligned: u64,
    /// Pages are being sent, by another connection if this one wants to send them.
    pub busy: u64,
    /// RLIMIT_MEMLOCK has no room for copies.
    pub limit: u64,
}

/// The reason for which a message is not exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Small,
    Ordinary,
    Unaligned,
    Busy,
    Limit,
}

impl Fallbacks {
    /// Counts a message that is sent, or pieces of one that is received.
    pub(super) fn count(&mut self, reason: Reason, pieces: u64) {
        let count = match reason {
            Reason::Small => &mut self.small,
            Reason::Ordinary => &mut self.ordinary,
            Reason::Unaligned => &mut self.unaligned,
            Reason::Busy => &mut self.busy,
            Reason::Limit => &mut self.limit,
        };
        *count += pieces;
    }
}

/// A message that is being sent from protected pages.
#[derive(Debug)]
struct Protected {
    /// Of its last piece.
    last: Ticket,
    area: Arc<Area>,
    offset: u64,
    length: u64,
}

impl Protected {
    fn part(&self) -> Part<'_> {
        Part {
            area: &self.area,
            offset: self.offset,
            length: self.length,
        }
    }
}

/// The exchanges of a connection.
#[derive(Debug)]
pub(super) struct Exchanges {
    /// The open file of the program's buffers.
    device: Device,
    /// What is shorter is copied.
    threshold: usize,
    /// Messages that are being sent, oldest first.
    protected: VecDeque<Protected>,
    pub(super) stats: ExchangeStats,
}

impl Exchanges {
    pub(super) fn new(device: &Device, threshold: usize) -> Self {
        Self {
            device: device.clone(),
            threshold,
            protected: VecDeque::new(),
            stats: ExchangeStats::default(),
        }
    }

    /// Creates slots of `bytes` bytes each, which are whole pages.
    pub(super) fn slots(&self, bytes: u64, count: u8) -> Result<ExchangeSlots> {
        ExchangeSlots::new(&self.device, bytes.saturating_mul(count.into()))
    }

    /// Finds the exchangeable memory that a message lies in.
    pub(super) fn locate(
        &self,
        address: usize,
        length: usize,
    ) -> std::result::Result<(Arc<Area>, u64), Reason> {
        if length < self.threshold.max(1) {
            return Err(Reason::Small);
        }
        self.device.heap().release_again(self.device.as_fd());
        let found = self.device.heap().locate(address, length);
        found.ok_or(Reason::Ordinary)
    }

    /// Protects the pages of a part, so that a write to them does not change what is sent.
    pub(super) fn protect(&self, part: &Part<'_>) -> std::result::Result<(), Errno> {
        part.protect(self.device.as_fd())
    }

    /// Notes that a protected part is being sent, until the send `last` has ended.
    pub(super) fn keep(&mut self, last: Ticket, area: Arc<Area>, offset: u64, length: u64) {
        self.protected.push_back(Protected {
            last,
            area,
            offset,
            length,
        });
    }

    /// Returns true if pages are protected.
    pub(super) fn are_sending(&self) -> bool {
        !self.protected.is_empty()
    }

    /// Ends the sends before `pending`, the oldest one that has not ended; all if there is none.
    pub(super) fn release(&mut self, pending: Option<Ticket>) -> Result<()> {
        while let Some(oldest) = self.protected.front() {
            if pending.is_some_and(|pending| pending <= oldest.last) {
                return Ok(());
            }
            match oldest.part().release(self.device.as_fd()) {
                Ok(released) => {
                    self.stats.pages_clean += released.pages.saturating_sub(released.copied);
                    self.stats.pages_copied += released.copied;
                }
                // The memory has ended with the device.
                Err(Errno::ENODEV | Errno::ENOENT) => {}
                // The next call repeats it.
                Err(errno) => return Err(Error::system("end a send of pages", errno)),
            }
            self.protected.pop_front();
        }
        Ok(())
    }

    /// Returns the newest send that uses pages of a part.
    pub(super) fn newest_over(&self, part: &Part<'_>) -> Option<Ticket> {
        let page = self.device.page_size().max(1);
        let pages = |offset: u64, length: u64| offset / page..(offset + length).div_ceil(page);
        let wanted = pages(part.offset, part.length);
        let uses = |sent: &&Protected| {
            let used = pages(sent.offset, sent.length);
            std::ptr::eq(&*sent.area, part.area)
                && used.start < wanted.end
                && wanted.start < used.end
        };
        self.protected.iter().rev().find(uses).map(|sent| sent.last)
    }

    /// Moves pieces of a message out of adjacent slots: by exchange where that is possible, else by a
    /// copy. Returns the number of bytes that were copied.
    pub(super) fn take(
        &mut self,
        slots: &ExchangeSlots,
        offset: u64,
        target: &mut [u8],
        pieces: u64,
    ) -> Result<u64> {
        let exchanged = match self.exchange(slots, offset, target) {
            Ok(exchanged) => exchanged?,
            Err(reason) => {
                self.stats.not_exchanged.count(reason, pieces);
                0
            }
        };
        let rest = target.get_mut(exchanged..).unwrap_or_default();
        if exchanged > 0 {
            self.stats.tail_bytes += rest.len() as u64;
        }
        if rest.is_empty() {
            return Ok(0);
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        slots
            .area()
            .mapping()
            .read(start.saturating_add(exchanged), rest);
        Ok(rest.len() as u64)
    }

    /// Exchanges the whole pages of a piece, and returns their bytes.
    fn exchange(
        &mut self,
        slots: &ExchangeSlots,
        offset: u64,
        target: &mut [u8],
    ) -> std::result::Result<Result<usize>, Reason> {
        let page = self.device.page_size().max(1);
        let length = target.len() as u64 / page * page;
        if length == 0 {
            return Err(Reason::Small);
        }
        let (area, place) = self.locate(target.as_mut_ptr() as usize, target.len())?;
        if place % page != 0 {
            return Err(Reason::Unaligned);
        }
        let part = Part {
            area: &area,
            offset: place,
            length,
        };
        match part.swap(self.device.as_fd(), slots.area(), offset) {
            Ok(()) => {
                self.stats.pages_exchanged += length / page;
                self.stats.exchanges += 1;
                Ok(Ok(usize::try_from(length).unwrap_or(usize::MAX)))
            }
            Err(Errno::EBUSY) => Err(Reason::Busy),
            Err(errno) => Ok(Err(Error::system("exchange pages", errno))),
        }
    }
}

impl Drop for Exchanges {
    fn drop(&mut self) {
        // The context has ended before, so no send is under way. What fails now is repeated by later
        // calls on the memory of the open file.
        for sent in &self.protected {
            let heap = self.device.heap();
            heap.release(self.device.as_fd(), &sent.area, sent.offset, sent.length);
        }
    }
}
