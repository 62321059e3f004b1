// SPDX-License-Identifier: GPL-2.0

//! Messages of the control channel.
//!
//! A message is seven u64, little-endian, and up to sixteen more of private data behind them. The
//! first is a [`Head`]; the rest depends on its kind, but for the last of the seven, which is the
//! turnaround of the writer. Decoding reads a local copy only, and accepts
//! nothing that encoding does not produce.

use kernel::prelude::*;

use crate::{
    hw::{
        layout::{
            word::*,
            REGION_SLOTS, //
        },
        le::Le, //
    },
    kernel_ext::errno::eproto,
    mem::tpt::Remote,
    user_abi::{
        access::Access,
        offer::{
            PrivateData,
            WORDS as PRIVATE_WORDS, //
        }, //
    }, //
};

mod connection;
mod network;

pub(crate) use connection::{
    Connection,
    EndpointName,
    Extent, //
};
pub(crate) use network::{
    Network,
    NetworkEndpoint, //
};

word! {
    /// First word of a message.
    struct Head(u64);

    fields {
        /// Number of the request or of the connection.
        NUMBER: u32 = 63, 32;
        /// Bytes of private data.
        PRIVATE: u8 = 15, 8;
        /// Kind of the message.
        KIND: u8 = 7, 0;
    }
}

/// Number of u64s of a message without private data.
const FIRST: usize = 7;
/// Number of the word with the writer's turnaround, in nanoseconds.
const TURNAROUND: usize = FIRST - 1;
/// Most u64s of a message.
pub(crate) const WORDS: usize = FIRST + PRIVATE_WORDS;
/// Most bytes of a message.
pub(super) const BYTES: usize = WORDS * size_of::<u64>();

/// A message without a turnaround; what it does not have is zero.
pub(crate) type Raw = [Le<u64>; WORDS];

/// The words that depend on the kind.
type Body = [u64; 5];

const LOOKUP_REGION: u8 = 1;
const LOOKUP_SEGMENT: u8 = 2;
const REGION: u8 = 3;
const SEGMENT: u8 = 4;
const REFUSED: u8 = 5;
const SEGMENT_GONE: u8 = 6;
const SEGMENT_LEFT: u8 = 7;

/// A query to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Query {
    /// The region exported under a name.
    Region(u64),
    /// The segment created under a name.
    Segment(u64),
}

/// A region that the peer exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExportedRegion {
    pub(crate) index: u32,
    pub(crate) generation: u64,
    pub(crate) length: u64,
    pub(crate) access: Access,
}

impl ExportedRegion {
    /// Returns the remote region of an import from `node` under `link_generation`.
    pub(crate) fn remote(&self, node: u32, link_generation: u32) -> Remote {
        Remote {
            node,
            region: self.index,
            generation: self.generation,
            link_generation,
        }
    }
}

/// A segment of the peer's section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreatedSegment {
    pub(crate) offset: u64,
    pub(crate) length: u64,
}

/// The answer to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Region(ExportedRegion),
    Segment(CreatedSegment),
    /// There is no object of that name.
    Refused,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Query(u32, Query),
    Answer(u32, Answer),
    /// The segment at this offset of the sender's section has ended: do not write it any more.
    SegmentGone(u64),
    /// So many offers of the segment at this offset of the receiver's section are returned.
    SegmentLeft(u64, u32),
    Connection(Connection),
    Network(Network),
    NetworkEndpoint(NetworkEndpoint),
}

/// Returns the first word of a message.
fn head(kind: u8, number: u32) -> u64 {
    let head = Head::NONE.with(Head::NUMBER, number);
    head.with(Head::KIND, kind).bits()
}

/// Returns how many words a message has with so many bytes of private data.
fn words_with(private: u8) -> usize {
    FIRST + usize::from(private).div_ceil(size_of::<u64>())
}

/// Returns how many words a message has that begins with `first`.
///
/// # Errors
///
/// `EPROTO` if it has more private data than is possible.
fn words_of(first: Le<u64>) -> Result<usize> {
    match words_with(Head::from_bits(first.get()).get(Head::PRIVATE)) {
        words if words <= WORDS => Ok(words),
        _ => Err(eproto()),
    }
}

/// Returns the bytes of a message that tells a turnaround, and how many they are.
pub(super) fn to_bytes(message: &Message, turnaround: u64) -> ([u8; BYTES], usize) {
    let mut raw = message.encode();
    raw[TURNAROUND] = Le::new(turnaround);
    let mut bytes = [0; BYTES];
    let words = words_with(message.private().length());
    for (to, word) in bytes.chunks_mut(size_of::<u64>()).zip(raw).take(words) {
        to.copy_from_slice(&word.in_memory().to_ne_bytes());
    }
    (bytes, words * size_of::<u64>())
}

/// Decodes a message of the peer with so many `bytes`, behind which are zeroes. Returns the turnaround,
/// too.
///
/// # Errors
///
/// `EPROTO` for anything that [`to_bytes`] does not produce.
pub(super) fn from_bytes(bytes: &[u8; BYTES], length: usize) -> Result<(Message, u64)> {
    let mut raw = [Le::new(0); WORDS];
    let words = bytes.get(..length).unwrap_or_default();
    for (to, word) in raw.iter_mut().zip(words.chunks_exact(size_of::<u64>())) {
        let word = word.try_into().map_err(|_| eproto())?;
        *to = Le::from_memory(u64::from_ne_bytes(word));
    }
    if words_of(raw[0])? * size_of::<u64>() != length {
        return Err(eproto());
    }
    let turnaround = core::mem::replace(&mut raw[TURNAROUND], Le::new(0)).get();
    Ok((Message::decode(&raw)?, turnaround))
}

impl Message {
    /// Returns the private data of the message.
    fn private(&self) -> &PrivateData {
        match self {
            Self::Connection(connection) => connection.private(),
            _ => &PrivateData::NONE,
        }
    }

    /// Encodes the message.
    pub(crate) fn encode(&self) -> Raw {
        let (kind, request, body) = match *self {
            Self::Query(request, Query::Region(name)) => {
                (LOOKUP_REGION, request, [name, 0, 0, 0, 0])
            }
            Self::Query(request, Query::Segment(name)) => {
                (LOOKUP_SEGMENT, request, [name, 0, 0, 0, 0])
            }
            Self::Answer(request, Answer::Region(region)) => (
                REGION,
                request,
                [
                    region.index.into(),
                    region.generation,
                    region.length,
                    region.access.to_flags().into(),
                    0,
                ],
            ),
            Self::Answer(request, Answer::Segment(segment)) => {
                (SEGMENT, request, [segment.offset, segment.length, 0, 0, 0])
            }
            Self::Answer(request, Answer::Refused) => (REFUSED, request, [0; 5]),
            Self::SegmentGone(offset) => (SEGMENT_GONE, 0, [offset, 0, 0, 0, 0]),
            Self::SegmentLeft(offset, count) => (SEGMENT_LEFT, 0, [offset, count.into(), 0, 0, 0]),
            Self::Connection(ref connection) => connection.encode(),
            Self::Network(ref network) => network.encode(),
            Self::NetworkEndpoint(ref endpoint) => endpoint.encode(),
        };
        let private = self.private();
        let head = Head::from_bits(head(kind, request)).with(Head::PRIVATE, private.length());
        let mut raw = [Le::new(0); WORDS];
        let [a, b, c, d, e] = body;
        for (to, word) in raw.iter_mut().zip([head.bits(), a, b, c, d, e]) {
            *to = Le::new(word);
        }
        for (to, word) in raw.iter_mut().skip(FIRST).zip(private.words()) {
            *to = Le::new(*word);
        }
        raw
    }

    /// Decodes a message of the peer.
    ///
    /// # Errors
    ///
    /// `EPROTO` for anything that [`Message::encode`] does not produce.
    pub(crate) fn decode(raw: &Raw) -> Result<Self> {
        let [head, a, b, c, d, e, _, private @ ..] = raw.map(Le::get);
        let head = Head::from_bits(head);
        let request = head.get(Head::NUMBER);
        let message = match head.get(Head::KIND) {
            LOOKUP_REGION => Self::Query(request, Query::Region(a)),
            LOOKUP_SEGMENT => Self::Query(request, Query::Segment(a)),
            REGION => {
                let index = u32::try_from(a).map_err(|_| eproto())?;
                let access = u32::try_from(d).map_err(|_| eproto())?;
                if index >= REGION_SLOTS || c == 0 {
                    return Err(eproto());
                }
                Self::Answer(
                    request,
                    Answer::Region(ExportedRegion {
                        index,
                        generation: b,
                        length: c,
                        access: Access::from_flags(access).map_err(|_| eproto())?,
                    }),
                )
            }
            SEGMENT => {
                let (offset, length) = (a, b);
                Self::Answer(request, Answer::Segment(CreatedSegment { offset, length }))
            }
            REFUSED => Self::Answer(request, Answer::Refused),
            SEGMENT_GONE => Self::SegmentGone(a),
            SEGMENT_LEFT => Self::SegmentLeft(a, u32::try_from(b).map_err(|_| eproto())?),
            network::KIND => Self::Network(Network::decode(request, [a, b, c, d, e])),
            network::ENDPOINT_KIND => {
                Self::NetworkEndpoint(NetworkEndpoint::decode(request, [a, b, c, d, e])?)
            }
            kind => {
                let private = || PrivateData::new(head.get(Head::PRIVATE), private);
                Self::Connection(Connection::decode(kind, request, [a, b, c, d, e], private)?)
            }
        };
        if message.encode() == *raw {
            Ok(message)
        } else {
            Err(eproto())
        }
    }
}

#[kunit_tests(uldma_link_message)]
mod tests {
    use super::*;
    use crate::user_abi::offer::Offer;

    fn offer(length: u8) -> Offer {
        let mut words = [u64::MAX; PRIVATE_WORDS];
        let kept = words.iter_mut().skip(usize::from(length) / 8);
        kept.for_each(|word| *word = 0);
        Offer {
            kind: u16::MAX,
            version: 1,
            user: 1000,
            private: PrivateData::new(length, words).unwrap_or(PrivateData::NONE),
        }
    }

    #[test]
    fn messages_survive_the_window() -> Result {
        let access = Access {
            read: true,
            write: false,
        };
        let region = ExportedRegion {
            index: 7,
            generation: u64::MAX,
            length: 1,
            access,
        };
        let segment = CreatedSegment {
            offset: 65536,
            length: 4096,
        };
        let extent = Extent::new(65536, 4096)?;
        assert_eq!(extent.bytes(), (65536, 4096));
        assert_eq!(extent.bits(), 16 << 32 | 1);
        for message in [
            Message::Query(1, Query::Region(2)),
            Message::Query(u32::MAX, Query::Segment(u64::MAX)),
            Message::Answer(3, Answer::Region(region)),
            Message::Answer(4, Answer::Segment(segment)),
            Message::Answer(5, Answer::Refused),
            Message::SegmentGone(65536),
            Message::SegmentLeft(65536, 2),
            Message::Connection(Connection::Connect {
                from: 1,
                port: u32::MAX,
                flags: 1,
                name: u64::MAX,
                window: extent,
                ring: Extent::from_bits(u64::MAX),
                offer: offer(128),
            }),
            Message::Connection(Connection::Connected {
                to: 1,
                error: 111,
                from: u32::MAX,
                name: 5,
                window: Extent::NONE,
                ring: extent,
                offer: offer(0),
            }),
            Message::Connection(Connection::Disconnect {
                to: 7,
                from: 8,
                reset: true,
            }),
            Message::Connection(Connection::Disconnected { to: 7 }),
            Message::Connection(Connection::Export {
                to: 7,
                bytes: u64::MAX,
                token: 3,
                generation: u64::MAX,
            }),
            Message::Connection(Connection::Done { to: 7, bytes: 1 }),
            Message::Connection(Connection::Stream {
                to: 7,
                endpoint: Some((u32::MAX, u64::MAX)),
            }),
            Message::Connection(Connection::Stream {
                to: 7,
                endpoint: None,
            }),
            Message::Network(Network {
                key: u32::MAX,
                window: (65536, u64::MAX),
                max_frame: u32::MAX,
                accepts: 1,
            }),
            Message::Network(Network::NONE),
            Message::NetworkEndpoint(NetworkEndpoint {
                key: 1,
                index: u32::MAX,
                generation: u64::MAX,
                most_bytes: u32::MAX,
            }),
        ] {
            assert_eq!(Message::decode(&message.encode()), Ok(message));
            let (bytes, length) = to_bytes(&message, u64::MAX);
            assert_eq!(from_bytes(&bytes, length), Ok((message, u64::MAX)));
            for other in [0, length - 8, length + 1, length + 8] {
                assert_eq!(from_bytes(&bytes, other), Err(eproto()));
            }
        }
        Ok(())
    }

    #[test]
    fn bytes_are_those_of_the_protocol() {
        let raw = Message::SegmentLeft(0x0102_0304_0506_0708, 9).encode();
        let bytes = raw.map(|word| word.in_memory().to_ne_bytes());
        assert_eq!(bytes[0], [SEGMENT_LEFT, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[1], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(bytes[2], [9, 0, 0, 0, 0, 0, 0, 0]);
    }

    fn connected(length: u8) -> Raw {
        let connected = Connection::Connected {
            to: 3,
            error: 0,
            from: 4,
            name: 5,
            window: Extent::NONE,
            ring: Extent::NONE,
            offer: offer(length),
        };
        Message::Connection(connected).encode()
    }

    #[test]
    fn private_data_follows_the_message() {
        for (length, words) in [(0, 7), (8, 8), (64, 15), (128, 23)] {
            let raw = connected(length);
            assert_eq!(words_of(raw[0]), Ok(words));
            assert_eq!(raw[0].get(), 3 << 32 | u64::from(length) << 8 | 9);
            assert_eq!(raw[5].get(), 1000 << 32 | 0xffff_0001);
            let data = raw.iter().skip(FIRST);
            let data = data.filter(|word| word.get() == u64::MAX).count();
            assert_eq!(data, words - FIRST);
        }
        assert_eq!(words_of(Le::new(head(9, 3) | 129 << 8)), Err(eproto()));
        assert_eq!(words_of(Le::new(head(9, 3) | 121 << 8)), Ok(WORDS));
    }

    #[test]
    fn private_data_of_other_lengths_is_refused() {
        for (length, claims) in [(8, 0), (8, 7), (16, 8), (128, 127), (128, 129), (0, 255)] {
            let mut raw = connected(length);
            raw[0] = Le::new(head(9, 3) | claims << 8);
            assert_eq!(Message::decode(&raw), Err(eproto()));
        }
        // More words than the length has.
        let mut raw = connected(8);
        raw[WORDS - 1] = Le::new(1);
        assert_eq!(Message::decode(&raw), Err(eproto()));
    }

    fn decode<const N: usize>(words: [u64; N]) -> Result<Message> {
        let mut raw = [Le::new(0); WORDS];
        for (to, word) in raw.iter_mut().zip(words) {
            *to = Le::new(word);
        }
        Message::decode(&raw)
    }

    #[test]
    fn nonsense_is_refused() {
        assert_eq!(decode([0; WORDS]), Err(eproto()));
        assert_eq!(decode([u64::MAX; WORDS]), Err(eproto()));
        // A word that the kind does not have, and bits beside the kind.
        assert_eq!(decode([head(REFUSED, 0), 0, 0, 0, 0, 0, 1]), Err(eproto()));
        assert_eq!(
            decode([head(REFUSED, 0) | 1 << 8, 0, 0, 0, 0, 0, 0]),
            Err(eproto())
        );
        // A generation without an endpoint.
        assert_eq!(decode([head(16, 0), 7, 0, 0, 0, 0, 0]), Err(eproto()));
        assert_eq!(decode([head(16, 0), 0, 7, 0, 0, 0, 0]), Err(eproto()));
        // A region index that no size word can name, no length, no rights.
        assert_eq!(
            decode([head(REGION, 0), 1 << 20, 0, 1, 1, 0, 0, 0]),
            Err(eproto())
        );
        assert_eq!(
            decode([head(REGION, 0), 1, 0, 0, 1, 0, 0, 0]),
            Err(eproto())
        );
        assert_eq!(
            decode([head(REGION, 0), 1, 0, 1, 0, 0, 0, 0]),
            Err(eproto())
        );
    }
}
