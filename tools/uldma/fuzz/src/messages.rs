// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of the control channel: decoding and encoding are inverse to each other.

use crate::chance::Chance;
use crate::hw::layout::REGION_SLOTS;
use crate::hw::le::Le;
use crate::link::message::{
    Answer, Connection, CreatedSegment, ExportedRegion, Extent, Message, Network, NetworkEndpoint,
    Query, Raw, WORDS,
};
use crate::link::peer;
use crate::outcomes::Outcomes;
use crate::user_abi::access::Access;
use crate::user_abi::offer::{Offer, PrivateData, WORDS as PRIVATE_WORDS};

/// Messages, handshakes, or rings of messages.
pub(crate) fn case(chance: &mut Chance, outcomes: &mut Outcomes) {
    match chance.below(8) {
        0 => peer::handshake(chance, outcomes),
        1 => peer::rings(chance, outcomes),
        2..=4 => there_and_back(chance, outcomes),
        _ => back_and_there(chance, outcomes),
    }
}

/// Returns the kind of a message, without its numbers.
pub(crate) fn name(message: &Message) -> String {
    let text = format!("{message:?}");
    let words = text.split(|c: char| !c.is_ascii_alphabetic());
    let names = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
    names.take(2).collect::<Vec<_>>().join(" ")
}

fn access(chance: &mut Chance) -> Access {
    let read = chance.one_in(2);
    Access {
        read,
        write: !read || chance.one_in(2),
    }
}

fn offer(chance: &mut Chance) -> Offer {
    let mut words = [0; PRIVATE_WORDS];
    let length = chance.below(8 * PRIVATE_WORDS + 1);
    for (number, word) in words.iter_mut().enumerate() {
        let kept = length.saturating_sub(8 * number).min(8) as u32;
        *word = chance.any() & u64::MAX.checked_shr(64 - 8 * kept).unwrap_or(0);
    }
    Offer {
        kind: chance.half() as u16,
        version: chance.half() as u16,
        user: chance.half(),
        private: PrivateData::new(length as u8, words).unwrap_or(PrivateData::NONE),
    }
}

fn connection(chance: &mut Chance) -> Connection {
    let extent = Extent::from_bits(chance.word());
    match chance.below(7) {
        0 => Connection::Connect {
            from: chance.half(),
            port: chance.half(),
            flags: chance.half(),
            name: chance.word(),
            window: extent,
            ring: Extent::from_bits(chance.word()),
            offer: offer(chance),
        },
        1 => Connection::Connected {
            to: chance.half(),
            error: chance.half(),
            from: chance.half(),
            name: chance.word(),
            window: extent,
            ring: Extent::from_bits(chance.word()),
            offer: offer(chance),
        },
        2 => Connection::Disconnect {
            to: chance.half(),
            from: chance.half(),
            reset: chance.one_in(2),
        },
        3 => Connection::Disconnected { to: chance.half() },
        4 => Connection::Export {
            to: chance.half(),
            bytes: chance.word(),
            token: chance.word(),
            generation: chance.word(),
        },
        5 => Connection::Done {
            to: chance.half(),
            bytes: chance.word(),
        },
        _ => Connection::Stream {
            to: chance.half(),
            endpoint: chance.one_in(2).then(|| (chance.half(), chance.word())),
        },
    }
}

/// Returns a random message that the driver could send.
pub(crate) fn message(chance: &mut Chance) -> Message {
    match chance.below(7) {
        0 => Message::Query(chance.half(), Query::Region(chance.word())),
        1 => Message::Query(chance.half(), Query::Segment(chance.word())),
        2 => {
            let region = ExportedRegion {
                index: chance.half() % REGION_SLOTS,
                generation: chance.word(),
                length: chance.word().max(1),
                access: access(chance),
            };
            Message::Answer(chance.half(), Answer::Region(region))
        }
        3 => {
            let (offset, length) = (chance.word(), chance.word());
            Message::Answer(
                chance.half(),
                Answer::Segment(CreatedSegment { offset, length }),
            )
        }
        4 => match chance.below(5) {
            0 => Message::Answer(chance.half(), Answer::Refused),
            1 => Message::SegmentGone(chance.word()),
            2 => Message::Network(Network {
                key: chance.half(),
                window: (chance.word(), chance.word()),
                max_frame: chance.half(),
                accepts: chance.half(),
            }),
            3 => Message::NetworkEndpoint(NetworkEndpoint {
                key: chance.half(),
                index: chance.half(),
                generation: chance.word(),
                most_bytes: chance.half(),
            }),
            _ => Message::SegmentLeft(chance.word(), chance.half()),
        },
        _ => Message::Connection(connection(chance)),
    }
}

/// Words that a peer might write: those of a message, with some changed.
pub(crate) fn words(chance: &mut Chance) -> Raw {
    let mut raw = match chance.below(4) {
        0 => [Le::new(0); WORDS],
        _ => message(chance).encode(),
    };
    for _ in 0..chance.below(4) {
        let at = chance.below(WORDS);
        if let Some(word) = raw.get_mut(at) {
            *word = Le::new(match chance.below(3) {
                0 => word.get() ^ (1 << chance.below(64)),
                1 => (chance.any() % 20) | (chance.word() << 32),
                _ => chance.word(),
            });
        }
    }
    raw
}

fn there_and_back(chance: &mut Chance, outcomes: &mut Outcomes) {
    let message = message(chance);
    let raw = message.encode();
    assert_eq!(Message::decode(&raw), Ok(message), "{raw:x?}");
    outcomes.add(format!("encoded: {}", name(&message)));
}

fn back_and_there(chance: &mut Chance, outcomes: &mut Outcomes) {
    let raw = words(chance);
    match Message::decode(&raw) {
        Ok(message) => {
            assert_eq!(message.encode(), raw, "{message:?}");
            outcomes.add(format!("decoded: {}", name(&message)));
        }
        Err(error) => {
            let kind = raw
                .first()
                .map_or(0, |head| (head.get() & 0xffff_ffff).min(20));
            outcomes.add(format!("kind {kind:2}: {error:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const PROTOCOL: &str = include_str!("../../../../Documentation/uldma/link.rst");

    /// Every kind of message in the documentation is made.
    #[test]
    fn all_kinds_are_made() {
        let Some((_, table)) = PROTOCOL.split_once("\nkind  message ") else {
            panic!("no table of messages");
        };
        let lines = table
            .lines()
            .skip(2)
            .take_while(|line| !line.starts_with('='));
        let listed: BTreeSet<u64> = lines
            .filter_map(|line| line.split_whitespace().next()?.parse().ok())
            .collect();
        assert!(listed.contains(&1) && listed.len() > 1, "{listed:?}");
        let mut chance = Chance::new(1);
        let made: BTreeSet<u64> = (0..10_000)
            .filter_map(|_| Some(message(&mut chance).encode().first()?.get() & 0xff))
            .collect();
        assert_eq!(made, listed);
    }
}
