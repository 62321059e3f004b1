// SPDX-License-Identifier: MIT OR Apache-2.0

//! The status page: memory in which the device reports the results of transfers.

use std::mem::offset_of;
use std::sync::atomic::{fence, Ordering};

use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::sys::{uapi, Mapping};
use crate::transfer::ticket::Ticket;

/// Completion records, and transfers of a context that can be under way.
pub(crate) const RECORDS: u64 = uapi::ULDMA_STATUS_RECORDS as u64;
const COMPLETED: usize = offset_of!(uapi::uldma_status_page, completed);
const REFUSED: usize = offset_of!(uapi::uldma_status_page, refused);
const WAKEUP: usize = offset_of!(uapi::uldma_status_page, wakeup);
const RECEIVED: usize = offset_of!(uapi::uldma_status_page, received);
const SENT: usize = offset_of!(uapi::uldma_status_page, sent);
const RECORD_TICKET: usize = offset_of!(uapi::uldma_completion, ticket);
const RECORD_BYTES: usize = offset_of!(uapi::uldma_completion, bytes);
const RECORD_STATUS: usize = offset_of!(uapi::uldma_completion, status);

/// Result of one transfer.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Completion, Context, Spin, Ticket};
///
/// fn bytes_of(context: &Context, ticket: Ticket) -> uldma::Result<u64> {
///     let ended: Completion = context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;
///     Ok(ended.bytes)
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Ticket of the transfer.
    pub ticket: Ticket,
    /// Bytes that were moved; of an atomic operation, what the word was before.
    pub bytes: u64,
    /// Reason of the failure; none if it succeeded.
    pub failure: Option<Refusal>,
}

impl Completion {
    /// Turns a failed transfer into an error.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`].
    pub fn check(self) -> Result<Self> {
        match self.failure {
            None => Ok(self),
            Some(status) => Err(Error::Transfer {
                ticket: self.ticket.get(),
                bytes: self.bytes,
                status,
            }),
        }
    }
}

/// One record of a status page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub(crate) bytes: u64,
    /// `enum uldma_dma_status`.
    pub(crate) status: u32,
    pub(crate) flags: u32,
}

/// The mapped status page of a context, or of an endpoint.
#[derive(Debug)]
pub(crate) struct StatusPage {
    mapping: Mapping,
}

impl StatusPage {
    pub(crate) fn new(mapping: Mapping) -> Result<Self> {
        let (size, needed) = (mapping.length(), size_of::<uapi::uldma_status_page>());
        if size < needed {
            return Err(Error::Range {
                offset: 0,
                length: needed as u64,
                size: size as u64,
            });
        }
        Ok(Self { mapping })
    }

    /// Returns the highest ticket that has ended; all effects of its transfer are visible then.
    #[inline]
    pub(crate) fn completed(&self) -> u64 {
        self.mapping.word(COMPLETED).load(Ordering::Acquire)
    }

    /// Initiations that got no ticket.
    pub(crate) fn refused(&self) -> u64 {
        self.mapping.word(REFUSED).load(Ordering::Relaxed)
    }

    /// Returns the bytes that a stream has received. These can be read then.
    #[inline]
    pub(crate) fn received(&self) -> u64 {
        self.mapping.word(RECEIVED).load(Ordering::Acquire)
    }

    /// Returns the bytes that a stream has sent. These can be overwritten then.
    #[inline]
    pub(crate) fn sent(&self) -> u64 {
        self.mapping.word(SENT).load(Ordering::Acquire)
    }

    /// Returns true if the device does not poll the queue. To be called after a full barrier that
    /// follows the descriptors.
    #[inline]
    pub(crate) fn wants_wakeup(&self) -> bool {
        self.mapping.word(WAKEUP).load(Ordering::Relaxed) != 0
    }

    /// Returns the result of a transfer; none while it has not ended.
    #[inline]
    pub(crate) fn ended(&self, ticket: Ticket) -> Result<Option<Completion>> {
        let record = self.record(ticket)?;
        Ok(record.map(|record| Completion {
            ticket,
            bytes: record.bytes,
            failure: Refusal::from_status(record.status),
        }))
    }

    /// Returns the record of a transfer or of a reception; none while it has not ended.
    #[inline]
    pub(crate) fn record(&self, ticket: Ticket) -> Result<Option<Record>> {
        // Acquire: the device writes `completed` after the record and after the data.
        if self.completed() < ticket.0 {
            return Ok(None);
        }
        let record = offset_of!(uapi::uldma_status_page, records)
            + (ticket.0 % RECORDS) as usize * size_of::<uapi::uldma_completion>();
        let load = |field| self.mapping.word(record + field).load(Ordering::Relaxed);
        let first = load(RECORD_TICKET);
        fence(Ordering::Acquire);
        let bytes = load(RECORD_BYTES);
        let (status, flags) = unpair(load(RECORD_STATUS));
        fence(Ordering::Acquire);
        // A later transfer may have overwritten the record in between.
        if first != ticket.0 || load(RECORD_TICKET) != ticket.0 {
            return Err(Error::RecordLost(ticket.0));
        }
        Ok(Some(Record {
            bytes,
            status,
            flags,
        }))
    }
}

/// Unpacks two fields of four bytes from a word.
#[inline]
fn unpair(word: u64) -> (u32, u32) {
    let (low, high) = (word as u32, (word >> 32) as u32);
    if cfg!(target_endian = "little") {
        (low, high)
    } else {
        (high, low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes what the device would write.
    fn complete(map: &Mapping, ticket: u64, bytes: u64, status: u32) {
        let record = 64 + (ticket % RECORDS) as usize * 24;
        for (offset, value) in [(0, ticket), (8, bytes), (16, u64::from(status))] {
            map.word(record + offset).store(value, Ordering::Relaxed);
        }
        map.word(0).store(ticket, Ordering::Release);
    }

    #[test]
    fn a_record_counts_once_the_ticket_has_ended() {
        let map = Mapping::anonymous(4096).unwrap();
        complete(&map, 1, 100, 0);
        complete(&map, 2, 5, uapi::ULDMA_DMA_REMOTE);
        let page = StatusPage::new(map).unwrap();
        assert_eq!(page.ended(Ticket(3)).unwrap(), None);
        let first = page.ended(Ticket(1)).unwrap().unwrap();
        assert_eq!((first.bytes, first.failure), (100, None));
        let second = page.ended(Ticket(2)).unwrap().unwrap();
        assert_eq!(second.failure, Some(Refusal::Remote));
        assert!(matches!(
            second.check(),
            Err(Error::Transfer {
                ticket: 2,
                bytes: 5,
                ..
            })
        ));
    }

    #[test]
    fn an_overwritten_record_is_not_mistaken() {
        let map = Mapping::anonymous(4096).unwrap();
        complete(&map, 1, 100, 0);
        complete(&map, 65, 7, 0);
        let page = StatusPage::new(map).unwrap();
        assert!(matches!(page.ended(Ticket(1)), Err(Error::RecordLost(1))));
        assert_eq!(page.ended(Ticket(65)).unwrap().unwrap().bytes, 7);
    }

    #[test]
    fn the_header_and_this_file_agree_on_the_layout() {
        assert_eq!(offset_of!(uapi::uldma_status_page, records), 64);
        assert_eq!(size_of::<uapi::uldma_completion>(), 24);
        assert!(StatusPage::new(Mapping::anonymous(1024).unwrap()).is_err());
    }
}
