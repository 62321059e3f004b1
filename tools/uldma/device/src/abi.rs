// SPDX-License-Identifier: MIT OR Apache-2.0

//! The part of the device interface that programs use: status codes, initiation methods and their
//! words, descriptors and the status page.
//!
//! `include/uapi/linux/uldma.h` defines these; a test compares every number here with it.

/// Reason for which an initiation was refused, or result of a transfer: `enum uldma_dma_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Status {
    /// The transfer is complete.
    Ok = 0,
    /// A load without a store before it.
    NoArgs = 1,
    /// Zero bytes.
    BadSize = 2,
    /// An access that is not aligned, or not of eight (or four) bytes.
    BadAccess = 3,
    /// No such page or region.
    NotValid = 4,
    /// The page or region belongs to another space.
    NotOwner = 5,
    /// Source not readable or destination not writable.
    NoRight = 6,
    /// The transfer would leave the region or the page.
    Bounds = 7,
    /// Too many transfers of this context are waiting.
    QueueFull = 8,
    /// The context or the device is disabled.
    Disabled = 9,
    /// The peer is not reachable, or the import is stale.
    LinkDown = 10,
    /// The peer's table does not allow the access.
    Remote = 11,
    /// Stopped by unregistration, reset or close.
    Aborted = 12,
    /// A bus address did not answer.
    BusError = 13,
    /// The method needs to know which context runs, and no driver has reported it.
    NotRunning = 14,
    /// The arguments were passed through different contexts.
    Mixed = 15,
    /// Wrong key, or too many of them.
    BadKey = 16,
    /// The method cannot carry this address or length.
    NotAligned = 17,
    /// The peer has not posted a receive descriptor in time.
    NotReady = 18,
    /// The message is longer than the posted buffer, or than the longest message of the endpoint.
    TooLong = 19,
    /// The next page of optimistic memory is not in memory.
    NotResident = 20,
    /// Nothing is mapped where the next page of optimistic memory would be.
    NoMapping = 21,
    /// The next page of optimistic memory did not come in time.
    NotLocked = 22,
    /// The mapping of the next page of optimistic memory does not allow the access.
    PageRight = 23,
    /// The peer has ended the region, or its export.
    Revoked = 24,
}

impl Status {
    /// All statuses, in the order of their numbers.
    pub const ALL: [Status; 25] = [
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
        Status::NotRunning,
        Status::Mixed,
        Status::BadKey,
        Status::NotAligned,
        Status::NotReady,
        Status::TooLong,
        Status::NotResident,
        Status::NoMapping,
        Status::NotLocked,
        Status::PageRight,
        Status::Revoked,
    ];

    /// Returns true if a transfer ends with it before a page that there is at another time: what it has
    /// moved until then is whole.
    pub fn is_miss(self) -> bool {
        self == Status::NotResident
    }

    /// Returns the value that an initiating load reads for this status.
    pub fn negated(self) -> i64 {
        -i64::from(self as u32)
    }
}

/// An initiation method: `enum uldma_method`, which are bit numbers in a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u32)]
pub enum Method {
    /// A latch for each context.
    ExtendedShadow = 0,
    /// One latch shared by all contexts, which does not mix their arguments.
    ExtendedShadowShared = 1,
    /// Stores of a key.
    Key = 2,
    /// A single store.
    SingleStore = 3,
    /// Descriptors in memory.
    Queue = 4,
    /// Arguments passed repeatedly by five accesses.
    Repeated5 = 5,
    /// A single load from a page that is mapped out.
    Shrimp1 = 6,
    /// A latch for each CPU, cleared by context switches.
    Shrimp2Abort = 7,
    /// A latch for each context, used while it runs.
    Flash = 8,
    /// Loads that add one.
    FetchAdd = 9,
    /// As [`Method::Shrimp2`], for programs that restart a sequence after a preemption.
    Pal = 16,
    /// One latch shared by all contexts.
    Shrimp2 = 17,
    /// [`Method::Flash`] with one register for all CPUs.
    FlashSingle = 18,
    /// Arguments passed repeatedly by three accesses.
    Repeated3 = 19,
    /// Arguments passed repeatedly by four accesses.
    Repeated4 = 20,
}

impl Method {
    /// Mask of all methods.
    pub const ALL: u32 = {
        let (mut mask, mut index) = (0, 0);
        while index < Self::NAMES.len() {
            mask |= 1 << Self::NAMES[index].0 as u32;
            index += 1;
        }
        mask
    };

    /// All methods and their names.
    const NAMES: [(Method, &'static str); 15] = [
        (Method::ExtendedShadow, "extended-shadow"),
        (Method::ExtendedShadowShared, "extended-shadow-shared"),
        (Method::Key, "key"),
        (Method::SingleStore, "single-store"),
        (Method::Queue, "queue"),
        (Method::Repeated5, "repeated-5"),
        (Method::Shrimp1, "shrimp-1"),
        (Method::Shrimp2Abort, "shrimp-2-abort"),
        (Method::Flash, "flash"),
        (Method::FetchAdd, "fetch-add"),
        (Method::Pal, "pal"),
        (Method::Shrimp2, "shrimp-2"),
        (Method::FlashSingle, "flash-single"),
        (Method::Repeated3, "repeated-3"),
        (Method::Repeated4, "repeated-4"),
    ];

    /// Returns all methods.
    pub fn all() -> impl Iterator<Item = Method> {
        Self::NAMES.into_iter().map(|(method, _)| method)
    }

    /// Returns the name of the method.
    pub fn name(self) -> &'static str {
        let mut names = Self::NAMES.into_iter();
        names
            .find(|(method, _)| *method == self)
            .map_or("", |(_, name)| name)
    }

    /// Returns the method of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        let mut names = Self::NAMES.into_iter();
        let found = names.find(|(_, other)| *other == name)?;
        Some(found.0)
    }

    /// Returns true if the method's state machine compares the addresses behind shadow addresses.
    pub fn compares_addresses(self) -> bool {
        matches!(
            self,
            Method::Repeated3 | Method::Repeated4 | Method::Repeated5
        )
    }

    /// Returns true if a transfer can have arguments that were passed through different contexts.
    /// The MMU alone then decides which memory each context can name.
    pub fn mixes_contexts(self) -> bool {
        self.compares_addresses()
            || matches!(self, Method::Pal | Method::Shrimp2 | Method::FlashSingle)
    }

    /// Returns the method's bit in a mask of methods.
    pub fn bit(self) -> u32 {
        1 << self as u32
    }

    /// Returns the method of a mask with exactly one bit.
    pub fn of_mask(mask: u32) -> Option<Self> {
        Self::all().find(|method| method.bit() == mask)
    }
}

impl serde::Serialize for Method {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// Bits 3..0 of a key: the context.
pub const KEY_CONTEXT_MASK: u64 = 0xf;

/// The access was not the expected one.
pub const REPEATED_FAIL: u64 = 0;
/// The source was passed the first time.
pub const REPEATED_OK1: u64 = 1;
/// The source was passed the second time.
pub const REPEATED_OK2: u64 = 2;
/// The transfer was started.
pub const REPEATED_OK3: u64 = 3;
/// Position of the ticket above these codes.
pub const REPEATED_TICKET_SHIFT: u32 = 12;

/// The word of single-store initiation.
pub mod single_store {
    /// Bits 17..0: length / 8.
    pub const LENGTH_MASK: u64 = 0x3_ffff;
    /// Bits 35..18: first byte in the source region / 8.
    pub const SRC_OFFSET_SHIFT: u32 = 18;
    /// Mask of this field.
    pub const SRC_OFFSET_MASK: u64 = 0x3_ffff;
    /// Bits 49..36: source region.
    pub const SRC_REGION_SHIFT: u32 = 36;
    /// Bits 63..50: destination region, or 0.
    pub const DST_REGION_SHIFT: u32 = 50;
    /// Mask of each of these two fields.
    pub const REGION_MASK: u64 = 0x3fff;
}

/// Completion records of a status page.
pub const STATUS_RECORDS: u64 = 64;

/// `struct uldma_status_page`: byte offsets.
pub mod status_page {
    /// u64: highest ticket that has ended.
    pub const COMPLETED: u64 = 0;
    /// u64: number of tickets that ended with an error.
    pub const FAILED: u64 = 8;
    /// u64: number of initiations that got no ticket.
    pub const REFUSED: u64 = 16;
    /// u64: not zero if a store to the context page is needed to make the device poll the queue.
    pub const WAKEUP: u64 = 24;
    /// u64, of receptions: the value of [`COMPLETED`] from which to interrupt; 0: none.
    pub const NOTIFY: u64 = 32;
    /// u64, of the receptions of a stream: number of bytes that were received.
    pub const RECEIVED: u64 = 40;
    /// u64, of the receptions of a stream: number of bytes that the endpoint has sent.
    pub const SENT: u64 = 48;
    /// u64, of the receptions of a stream: not zero if a send of the endpoint has failed.
    pub const TORN: u64 = 56;
    /// Array of `struct uldma_completion`.
    pub const RECORDS: u64 = 64;
    /// Bytes of one record.
    pub const RECORD_SIZE: u64 = 24;
    /// u64 in a record: the ticket.
    pub const RECORD_TICKET: u64 = 0;
    /// u64 in a record: bytes moved.
    pub const RECORD_BYTES: u64 = 8;
    /// u32 in a record: status; the u32 after it has the flags [`MORE`] and [`REDIRECTED`].
    pub const RECORD_STATUS: u64 = 16;
    /// Flag of a reception: the message goes on in the next one.
    pub const MORE: u32 = 1 << 0;
    /// Flag of a reception: the message is where the receiver has redirected it.
    pub const REDIRECTED: u32 = 1 << 1;
    /// Bytes of the whole page that mean something.
    pub const SIZE: u64 = RECORDS + super::STATUS_RECORDS * RECORD_SIZE;
}

/// `struct uldma_descriptor`: byte offsets.
pub mod descriptor {
    /// Bytes of one descriptor.
    pub const SIZE: u64 = 64;
    /// u64: the descriptor's number.
    pub const TICKET: u64 = 0;
    /// u32: one of [`super::Op`]; the u32 after it holds [`FENCE`] and [`LINK`].
    pub const OP: u64 = 8;
    /// u32: source region; the u32 after it is the destination's.
    pub const REGIONS: u64 = 16;
    /// u64: first byte in the source.
    pub const SRC_OFFSET: u64 = 24;
    /// u64: first byte in the destination.
    pub const DST_OFFSET: u64 = 32;
    /// u64: bytes.
    pub const LENGTH: u64 = 40;
    /// u64: the operand, which is added or stored.
    pub const OPERAND: u64 = 48;
    /// u64: the expected value of a compare-and-swap.
    pub const COMPARE: u64 = 56;

    /// Flag: begin after all before have ended.
    pub const FENCE: u32 = 1 << 0;
    /// Flag: if this ends badly, so does the next.
    pub const LINK: u32 = 1 << 1;
    /// Flag of a send: the next one continues the message.
    pub const MORE: u32 = 1 << 2;
    /// Flag of a receive descriptor: the operand is one of [`super::redirect`].
    pub const REDIRECT: u32 = 1 << 3;
}

/// `enum uldma_redirect`: states of a receive descriptor that can be redirected.
pub mod redirect {
    /// The message goes to the destination.
    pub const NONE: u64 = 0;
    /// It goes to the source's place, of as many bytes as the expected value says.
    pub const READY: u64 = 1;
    /// The device has taken the descriptor.
    pub const TAKEN: u64 = 2;
}

/// The operation of a descriptor: `enum uldma_op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Move bytes.
    Copy = 0,
    /// Add to a word.
    FetchAdd = 1,
    /// Replace a word.
    CompareSwap = 2,
    /// Nothing.
    Nop = 3,
    /// Send a message.
    Send = 4,
    /// Room for a message; in receive rings only.
    Recv = 5,
}

impl Op {
    const ALL: [Op; 6] = [
        Op::Copy,
        Op::FetchAdd,
        Op::CompareSwap,
        Op::Nop,
        Op::Send,
        Op::Recv,
    ];

    /// Returns the operation of a number.
    pub fn of(number: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u32 == number)
    }
}

const _: () = assert!(status_page::SIZE <= 4096);
const _: () = assert!(STATUS_RECORDS * descriptor::SIZE <= 4096);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::{SizeWord, QUEUE_DEPTH};

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
            if let Some(shifted) = value.strip_prefix("(1U") {
                assert_eq!((shifted, words.next()?), ("", "<<"));
                let bit: u32 = words.next()?.trim_end_matches(')').parse().ok()?;
                return Some(1 << bit);
            }
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
    fn flags_and_states_are_those_of_the_header() {
        for (name, value) in [
            ("ULDMA_COMPLETION_MORE", status_page::MORE.into()),
            (
                "ULDMA_COMPLETION_REDIRECTED",
                status_page::REDIRECTED.into(),
            ),
            ("ULDMA_DESC_FENCE", descriptor::FENCE.into()),
            ("ULDMA_DESC_LINK", descriptor::LINK.into()),
            ("ULDMA_DESC_MORE", descriptor::MORE.into()),
            ("ULDMA_DESC_REDIRECT", descriptor::REDIRECT.into()),
            ("ULDMA_REDIRECT_NONE", redirect::NONE),
            ("ULDMA_REDIRECT_READY", redirect::READY),
            ("ULDMA_REDIRECT_TAKEN", redirect::TAKEN),
        ] {
            assert_eq!(number(name), Some(value), "{name}");
        }
    }

    #[test]
    fn methods_are_those_of_the_header() {
        for method in Method::all() {
            let name = method.name().to_uppercase().replace('-', "_");
            let bit = number(&format!("ULDMA_METHOD_{name}"));
            assert_eq!(bit, Some(u64::from(method as u32)), "{name}");
            assert_eq!(Method::of_name(method.name()), Some(method));
            assert_eq!(Method::of_mask(method.bit()), Some(method));
        }
        let count = HEADER
            .lines()
            .filter(|line| line.starts_with("\tULDMA_METHOD_") && line.contains(" = "))
            .count();
        assert_eq!(count, Method::NAMES.len());
        for mask in [0, 3, 1 << 10, 1 << 31] {
            assert_eq!(Method::of_mask(mask), None);
        }
    }

    /// Byte offsets of the fields of a structure of the header, by name, and its size.
    fn fields(structure: &str) -> (Vec<(String, u64)>, u64) {
        let start = format!("struct {structure} {{");
        let body = HEADER.split_once(&start).unwrap().1;
        let body = body.split_once("\n};").unwrap().0;
        let mut at = 0;
        let mut fields = Vec::new();
        for line in body.lines().filter(|line| line.ends_with(';')) {
            let mut words = line.trim_end_matches(';').split_whitespace();
            let (kind, name) = (words.next().unwrap(), words.last().unwrap());
            let size = match kind {
                "__u32" => 4,
                "__aligned_u64" => 8,
                _ => fields_of_record().1,
            };
            let (name, count) = match name.trim_end_matches(']').split_once('[') {
                Some((name, "ULDMA_STATUS_RECORDS")) => (name, STATUS_RECORDS),
                Some((name, count)) => (name, count.parse().unwrap()),
                None => (name, 1),
            };
            fields.push((name.to_string(), at));
            at += size * count;
        }
        (fields, at)
    }

    fn fields_of_record() -> (Vec<(String, u64)>, u64) {
        fields("uldma_completion")
    }

    #[test]
    fn structures_are_those_of_the_header() {
        let record = [
            ("ticket", status_page::RECORD_TICKET),
            ("bytes", status_page::RECORD_BYTES),
            ("status", status_page::RECORD_STATUS),
        ];
        let page = [
            ("completed", status_page::COMPLETED),
            ("failed", status_page::FAILED),
            ("refused", status_page::REFUSED),
            ("wakeup", status_page::WAKEUP),
            ("notify", status_page::NOTIFY),
            ("records", status_page::RECORDS),
        ];
        let descriptor = [
            ("ticket", descriptor::TICKET),
            ("op", descriptor::OP),
            ("flags", descriptor::OP + 4),
            ("src", descriptor::REGIONS),
            ("dst", descriptor::REGIONS + 4),
            ("src_offset", descriptor::SRC_OFFSET),
            ("dst_offset", descriptor::DST_OFFSET),
            ("length", descriptor::LENGTH),
            ("operand", descriptor::OPERAND),
            ("compare", descriptor::COMPARE),
        ];
        for (structure, ours, size) in [
            ("uldma_completion", &record[..], status_page::RECORD_SIZE),
            ("uldma_status_page", &page[..], status_page::SIZE),
            ("uldma_descriptor", &descriptor[..], descriptor::SIZE),
        ] {
            let (theirs, bytes) = fields(structure);
            assert_eq!(bytes, size, "{structure}");
            for (name, offset) in ours {
                let found = theirs.iter().find(|(field, _)| field == name);
                assert_eq!(found.map(|(_, at)| at), Some(offset), "{structure}.{name}");
            }
        }
    }

    #[test]
    fn operations_have_numbers() {
        for number in 0..6 {
            assert_eq!(Op::of(number).map(|op| op as u32), Some(number));
        }
        assert_eq!(Op::of(6), None);
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let pairs = [
            ("ULDMA_STATUS_RECORDS", STATUS_RECORDS),
            ("ULDMA_STATUS_RECORDS", QUEUE_DEPTH as u64),
            ("ULDMA_SIZE_WORD_BYTES_MASK", SizeWord::BYTES.max()),
            (
                "ULDMA_SIZE_WORD_SRC_LOW_SHIFT",
                SizeWord::SRC_LOW.shift().into(),
            ),
            (
                "ULDMA_SIZE_WORD_DST_LOW_SHIFT",
                SizeWord::DST_LOW.shift().into(),
            ),
            ("ULDMA_SIZE_WORD_LOW_MASK", SizeWord::SRC_LOW.max()),
            (
                "ULDMA_SIZE_WORD_SRC_REGION_SHIFT",
                SizeWord::SRC_REGION.shift().into(),
            ),
            (
                "ULDMA_SIZE_WORD_DST_REGION_SHIFT",
                SizeWord::DST_REGION.shift().into(),
            ),
            ("ULDMA_SIZE_WORD_REGION_MASK", SizeWord::SRC_REGION.max()),
            ("ULDMA_OP_COPY", Op::Copy as u64),
            ("ULDMA_OP_FETCH_ADD", Op::FetchAdd as u64),
            ("ULDMA_OP_COMPARE_SWAP", Op::CompareSwap as u64),
            ("ULDMA_OP_NOP", Op::Nop as u64),
            ("ULDMA_DESC_FENCE", descriptor::FENCE.into()),
            ("ULDMA_DESC_LINK", descriptor::LINK.into()),
            ("ULDMA_KEY_CONTEXT_MASK", KEY_CONTEXT_MASK),
            ("ULDMA_SINGLE_STORE_LENGTH_MASK", single_store::LENGTH_MASK),
            (
                "ULDMA_SINGLE_STORE_SRC_OFFSET_SHIFT",
                single_store::SRC_OFFSET_SHIFT.into(),
            ),
            (
                "ULDMA_SINGLE_STORE_SRC_OFFSET_MASK",
                single_store::SRC_OFFSET_MASK,
            ),
            (
                "ULDMA_SINGLE_STORE_SRC_REGION_SHIFT",
                single_store::SRC_REGION_SHIFT.into(),
            ),
            (
                "ULDMA_SINGLE_STORE_DST_REGION_SHIFT",
                single_store::DST_REGION_SHIFT.into(),
            ),
            ("ULDMA_REPEATED_FAIL", REPEATED_FAIL),
            ("ULDMA_REPEATED_OK1", REPEATED_OK1),
            ("ULDMA_REPEATED_OK2", REPEATED_OK2),
            ("ULDMA_REPEATED_OK3", REPEATED_OK3),
            ("ULDMA_REPEATED_TICKET_SHIFT", REPEATED_TICKET_SHIFT.into()),
        ];
        for (name, value) in pairs {
            assert_eq!(number(name), Some(value), "{name}");
        }
    }
}
