// SPDX-License-Identifier: MIT OR Apache-2.0

//! Writes completions and counters to the status page of a context.

use std::sync::atomic::Ordering;

use vm_memory::{Bytes, VolatileSlice};

use crate::abi::{status_page, Status, STATUS_RECORDS};
use crate::memory::{BusError, GuestMemory, Right};
use crate::transfer::Delivery;

/// A completion: the result of one transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The transfer's ticket.
    pub ticket: u64,
    /// Bytes moved, or the old value of the word that was changed.
    pub bytes: u64,
    /// Result of the transfer.
    pub status: Status,
    /// Number of tickets that ended with an error, including this one.
    pub failed: u64,
    /// Flags of a reception.
    pub flags: u32,
    /// The sender's endpoint, if it is the end of a send.
    pub sends: Option<u32>,
    /// The reception that ends with it, if it is a message.
    pub delivery: Option<Delivery>,
}

/// The counters of a status page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Highest ticket that has ended.
    pub completed: u64,
    /// Number of tickets that ended with an error.
    pub failed: u64,
    /// Initiations that got no ticket.
    pub refused: u64,
}

/// The status page of one context.
pub struct StatusPage<'a> {
    slice: VolatileSlice<'a>,
}

impl<'a> StatusPage<'a> {
    /// Returns the page at a bus address.
    pub fn new(memory: &'a GuestMemory, address: u64) -> Result<Self, BusError> {
        let slice = memory.slice(address, status_page::SIZE, Right::Write)?;
        // The page must not leave the mapped range that it begins in.
        let whole = slice.len() as u64 == status_page::SIZE;
        whole.then_some(Self { slice }).ok_or(BusError)
    }

    fn store(&self, offset: u64, value: u64) -> Result<(), BusError> {
        let offset = usize::try_from(offset).map_err(|_| BusError)?;
        self.slice
            .store(value.to_le(), offset, Ordering::Release)
            .map_err(|_| BusError)
    }

    fn load(&self, offset: u64) -> Result<u64, BusError> {
        let offset = usize::try_from(offset).map_err(|_| BusError)?;
        let value: u64 = self
            .slice
            .load(offset, Ordering::Acquire)
            .map_err(|_| BusError)?;
        Ok(u64::from_le(value))
    }

    /// Reads the counters.
    pub fn counts(&self) -> Result<Counts, BusError> {
        Ok(Counts {
            completed: self.load(status_page::COMPLETED)?,
            failed: self.load(status_page::FAILED)?,
            refused: self.load(status_page::REFUSED)?,
        })
    }

    /// Writes the record of a transfer.
    pub fn record(&self, completion: &Completion) -> Result<(), BusError> {
        let place = completion.ticket % STATUS_RECORDS * status_page::RECORD_SIZE;
        let record = status_page::RECORDS + place;
        self.store(record + status_page::RECORD_TICKET, completion.ticket)?;
        self.store(record + status_page::RECORD_BYTES, completion.bytes)?;
        let flags = u64::from(completion.flags) << 32;
        self.store(
            record + status_page::RECORD_STATUS,
            completion.status as u64 | flags,
        )
    }

    /// Writes the counts that publish all records up to this one.
    pub fn publish(&self, completion: &Completion) -> Result<(), BusError> {
        self.store(status_page::FAILED, completion.failed)?;
        self.store(status_page::COMPLETED, completion.ticket)
    }

    /// Reads the count of received bytes of a stream.
    pub fn received(&self) -> Result<u64, BusError> {
        self.load(status_page::RECEIVED)
    }

    /// Writes the count of received bytes of a stream.
    pub fn publish_received(&self, bytes: u64) -> Result<(), BusError> {
        self.store(status_page::RECEIVED, bytes)
    }

    /// Writes the count of sent bytes of a stream.
    pub fn publish_sent(&self, bytes: u64) -> Result<(), BusError> {
        self.store(status_page::SENT, bytes)
    }

    /// Notes that a send of a stream has failed.
    pub fn tear(&self) -> Result<(), BusError> {
        self.store(status_page::TORN, 1)
    }

    /// Returns true if the receiver asked for an interrupt at this count of receptions, or of the
    /// bytes of a stream, and takes its request back. It is ordered after the publication of the count.
    pub fn take_notify(&self, count: u64) -> Result<bool, BusError> {
        std::sync::atomic::fence(Ordering::SeqCst);
        let notify = self.load(status_page::NOTIFY)?;
        let due = notify != 0 && count >= notify;
        if due {
            self.store(status_page::NOTIFY, 0)?;
        }
        Ok(due)
    }

    /// Writes the number of initiations that got no ticket.
    pub fn refused(&self, count: u64) -> Result<(), BusError> {
        self.store(status_page::REFUSED, count)
    }

    /// Sets or clears the flag that asks for a store to the context page before the device polls
    /// the queue again. Later polls are ordered after this write.
    pub fn wakeup(&self, needed: bool) -> Result<(), BusError> {
        self.store(status_page::WAKEUP, needed.into())?;
        std::sync::atomic::fence(Ordering::SeqCst);
        Ok(())
    }
}
