// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the device shares with programs rather than with the driver: status codes, initiation
//! methods and the status page.
//!
//! `include/uapi/linux/uldma.h` defines these; a test compares every number here with it.

/// Why an initiation was refused or how a transfer ended: `enum uldma_dma_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Status {
    /// The transfer is complete.
    Ok = 0,
    /// A load came without a store before it.
    NoArgs = 1,
    /// Zero bytes.
    BadSize = 2,
    /// Not an aligned access of eight (or four) bytes.
    BadAccess = 3,
    /// No such page or region.
    NotValid = 4,
    /// The page or region belongs to somebody else.
    NotOwner = 5,
    /// Source not readable or destination not writable.
    NoRight = 6,
    /// The transfer would leave the region or the page.
    Bounds = 7,
    /// Too many transfers of this context are waiting.
    QueueFull = 8,
    /// The context or the device is off.
    Disabled = 9,
    /// The peer is not reachable, or the import is stale.
    LinkDown = 10,
    /// The peer's table does not allow the access.
    Remote = 11,
    /// Stopped by unregistration, reset or close.
    Aborted = 12,
    /// A bus address did not answer.
    BusError = 13,
}

impl Status {
    /// All of them, in the order of their numbers.
    pub const ALL: [Status; 14] = [
        Status::Ok,
        Status::NoArgs,
        Status::BadSize,
        Status::BadAccess,
        Status::NotValid,
        Status::NotOwner,
        Status::NoRight,
        Status::Bounds,
        Status::QueueFull,
        Status::Disabled,
        Status::LinkDown,
        Status::Remote,
        Status::Aborted,
        Status::BusError,
    ];

    /// What an initiating load returns for this status.
    pub fn negated(self) -> i64 {
        -i64::from(self as u32)
    }
}

/// Bit number of extended shadow addressing in a mask of methods.
pub const METHOD_EXTENDED_SHADOW: u32 = 0;

/// Completion records of a status page.
pub const STATUS_RECORDS: u64 = 64;

/// `struct uldma_status_page`: byte offsets.
pub mod status_page {
    /// u64: highest ticket that has ended.
    pub const COMPLETED: u64 = 0;
    /// u64: how many did not end well.
    pub const FAILED: u64 = 8;
    /// Array of `struct uldma_completion`.
    pub const RECORDS: u64 = 64;
    /// Bytes of one record.
    pub const RECORD_SIZE: u64 = 24;
    /// u64 in a record: the ticket.
    pub const RECORD_TICKET: u64 = 0;
    /// u64 in a record: bytes moved.
    pub const RECORD_BYTES: u64 = 8;
    /// u32 in a record: status; the u32 after it is zero.
    pub const RECORD_STATUS: u64 = 16;
}

const _: () = assert!(status_page::RECORDS + STATUS_RECORDS * status_page::RECORD_SIZE <= 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{size_word, QUEUE_DEPTH};

    const HEADER: &str = include_str!("../../../../include/uapi/linux/uldma.h");

    /// The number that `NAME = n` or `#define NAME n` gives to a name.
    fn number(name: &str) -> Option<u64> {
        HEADER.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let first = words.next()?;
            let value = match (first, words.next()?) {
                ("#define", second) if second == name => words.next()?,
                (first, "=") if first == name => words.next()?,
                _ => return None,
            };
            let value = value.trim_end_matches(',');
            match value.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None => value.parse().ok(),
            }
        })
    }

    #[test]
    fn statuses_are_those_of_the_header() {
        for status in Status::ALL {
            let mut name = String::from("ULDMA_DMA");
            for letter in format!("{status:?}").chars() {
                if letter.is_uppercase() {
                    name.push('_');
                }
                name.push(letter.to_ascii_uppercase());
            }
            assert_eq!(number(&name), Some(u64::from(status as u32)), "{name}");
        }
        let count = HEADER
            .lines()
            .filter(|line| line.starts_with("\tULDMA_DMA_"))
            .count();
        assert_eq!(count, Status::ALL.len());
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let pairs = [
            (
                "ULDMA_METHOD_EXTENDED_SHADOW",
                u64::from(METHOD_EXTENDED_SHADOW),
            ),
            ("ULDMA_STATUS_RECORDS", STATUS_RECORDS),
            ("ULDMA_STATUS_RECORDS", QUEUE_DEPTH as u64),
            ("ULDMA_SIZE_WORD_BYTES_MASK", size_word::BYTES_MASK),
            (
                "ULDMA_SIZE_WORD_SRC_LOW_SHIFT",
                size_word::SRC_LOW_SHIFT.into(),
            ),
            (
                "ULDMA_SIZE_WORD_DST_LOW_SHIFT",
                size_word::DST_LOW_SHIFT.into(),
            ),
            ("ULDMA_SIZE_WORD_LOW_MASK", size_word::LOW_MASK),
            (
                "ULDMA_SIZE_WORD_SRC_REGION_SHIFT",
                size_word::SRC_REGION_SHIFT.into(),
            ),
            (
                "ULDMA_SIZE_WORD_DST_REGION_SHIFT",
                size_word::DST_REGION_SHIFT.into(),
            ),
            ("ULDMA_SIZE_WORD_REGION_MASK", size_word::REGION_MASK),
        ];
        for (name, value) in pairs {
            assert_eq!(number(name), Some(value), "{name}");
        }
    }
}
