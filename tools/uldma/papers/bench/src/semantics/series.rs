// SPDX-License-Identifier: MIT OR Apache-2.0

//! What is measured, part by part, and its names: `sem.send.copy-dma.64k`.

use clap::ValueEnum;
use uldma::{ReceiveTechnique, SendTechnique};

use crate::link::order::Kind;
use crate::link::sizes::depth;
use crate::link::way::{Receiving, Sending, Way};

/// Sizes of messages, under the names that figures have.
pub(super) const SIZES: [(&str, usize); 9] = [
    (SHORTEST, 8),
    ("64", 64),
    ("256", 256),
    ("1k", 1 << 10),
    ("4k", 4 << 10),
    ("16k", 16 << 10),
    (MIDDLE, 64 << 10),
    ("256k", 256 << 10),
    (LARGEST, 1 << 20),
];
pub(super) const SHORTEST: &str = "8";
/// Of messages of the ablation of pipelining.
const MIDDLE: &str = "64k";
/// Of messages of the sweep of MTUs.
const LARGEST: &str = "1m";
/// Of a brief run, and of pairs.
const FEW: [&str; 3] = ["4k", MIDDLE, LARGEST];
/// Of round trips.
const TRIPS: [&str; 2] = [SHORTEST, "4k"];

/// Bytes of a slot, if nothing else is said, and the number of slots.
const MTU: usize = 64 << 10;
const SLOTS: u8 = 32;
/// Numbers of slots of the ablation of pipelining.
const ABLATION: [u8; 4] = [1, 2, 4, 8];

/// A part of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Messages without any copy, beside the engine alone
    Match,
    /// Senders alone: no receiver touches the data
    Send,
    /// Receivers alone: no sender touches the data
    Recv,
    /// Senders and receivers together
    Pair,
    /// One slot and more: with and without overlap of copy and transfer
    Slots,
    /// Slots of different sizes
    Mtu,
    /// Senders by page exchange, whose pages are written to at once or never
    Overwrite,
    /// Round trips
    Rtt,
}

/// A series of figures: all that is measured of one transport with one size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Series {
    /// The name of the figure, and of round trips its beginning.
    pub(super) name: String,
    pub(super) kind: Kind,
}

impl Series {
    fn new(name: impl Into<String>, kind: Kind) -> Self {
        let name = name.into();
        Self { name, kind }
    }
}

impl Part {
    /// Returns true if system calls and interrupts by message are counted.
    pub(super) fn is_counted(self) -> bool {
        matches!(
            self,
            Self::Match | Self::Send | Self::Recv | Self::Overwrite
        )
    }

    /// Returns the series with messages of this size; none if the part leaves the size out.
    pub(super) fn series(self, size: (&str, usize), brief: bool) -> Vec<Series> {
        let (name, bytes) = size;
        let some = FEW.contains(&name);
        match self {
            Self::Match if !brief || some => matched(size),
            Self::Send if !brief || some => {
                let null = |it| (it, Receiving::Null);
                // The cache is of the sender alone, so no pair has it.
                let senders = senders().chain([Sending::Cached]);
                ways(senders.map(null), bytes, |way| {
                    format!("sem.send.{}.{name}", way.sending)
                })
            }
            Self::Recv if !brief || some => {
                let generated = |it| (Sending::Generator, it);
                ways(receivers().map(generated), bytes, |way| {
                    format!("sem.recv.{}.{name}", way.receiving)
                })
            }
            Self::Pair if some => ways(pairs(), bytes, |way| {
                format!("sem.pair.{}.{}.{name}", way.sending, way.receiving)
            }),
            Self::Slots if name == MIDDLE => slots(),
            Self::Mtu if name == LARGEST => mtus(),
            Self::Overwrite if !brief || some => overwritten(size),
            Self::Rtt if TRIPS.contains(&name) => trips(size),
            _ => Vec::new(),
        }
    }
}

fn senders() -> impl Iterator<Item = Sending> {
    let techniques = SendTechnique::ALL.iter().copied().map(Sending::Technique);
    techniques.chain([Sending::Buffered])
}

fn receivers() -> impl Iterator<Item = Receiving> {
    let techniques = ReceiveTechnique::ALL.iter();
    let techniques = techniques.copied().map(Receiving::Technique);
    techniques.chain([Receiving::Buffered])
}

/// Returns all pairs of techniques; the layer goes with itself.
fn pairs() -> impl Iterator<Item = (Sending, Receiving)> {
    senders()
        .flat_map(|sending| receivers().map(move |receiving| (sending, receiving)))
        .filter(|pair| (pair.0 == Sending::Buffered) == (pair.1 == Receiving::Buffered))
}

/// Returns the way with slots of the default MTU; a message that has to be whole fits into one.
fn way((sending, receiving): (Sending, Receiving), bytes: usize) -> Way {
    let slot = match receiving.takes_whole() {
        true => bytes.max(MTU),
        false => MTU,
    };
    Way {
        sending,
        receiving,
        slot,
        slots: SLOTS.min(in_flight(slot)),
    }
}

fn in_flight(bytes: usize) -> u8 {
    u8::try_from(depth(bytes)).unwrap_or(u8::MAX)
}

fn ways(
    pairs: impl Iterator<Item = (Sending, Receiving)>,
    bytes: usize,
    name: impl Fn(&Way) -> String,
) -> Vec<Series> {
    let ways = pairs.map(|pair| way(pair, bytes));
    ways.map(|way| Series::new(name(&way), Kind::Messages(way)))
        .collect()
}

/// Returns the way without copies: a message is one descriptor.
fn bare(bytes: usize) -> Kind {
    Kind::Messages(Way {
        sending: Sending::Generator,
        receiving: Receiving::Null,
        slot: bytes,
        slots: in_flight(bytes),
    })
}

fn matched((name, bytes): (&str, usize)) -> Vec<Series> {
    [
        ("match", bare(bytes)),
        ("conn", Kind::Push),
        ("tcp", Kind::Tcp),
    ]
    .into_iter()
    .map(|(what, kind)| Series::new(format!("sem.{what}.stream.{name}"), kind))
    .collect()
}

/// Techniques that copy, and the one that does not, with few slots.
fn slots() -> Vec<Series> {
    let copied = (
        Sending::Technique(SendTechnique::CopyDma),
        Receiving::Technique(ReceiveTechnique::CopyDma),
    );
    let direct = (Sending::Generator, Receiving::Null);
    let mut found = Vec::new();
    for slots in ABLATION {
        for (what, pair) in [("copy-dma", copied), ("direct-dma", direct)] {
            let way = Way {
                slots,
                ..way(pair, MTU)
            };
            let name = format!("sem.slots.{what}.{slots}");
            found.push(Series::new(name, Kind::Messages(way)));
        }
    }
    found
}

/// Techniques that send from slots, from registered memory, and from pages that are pinned or exchanged:
/// the last three by pieces of the receiver's slots.
const MTU_TECHNIQUES: [SendTechnique; 4] = [
    SendTechnique::CopyDma,
    SendTechnique::DirectDma,
    SendTechnique::V2pDma,
    SendTechnique::PexDma,
];

/// Senders alone with slots of each size.
fn mtus() -> Vec<Series> {
    let mut found = Vec::new();
    for (mtu, slot) in SIZES.into_iter().filter(|(_, bytes)| *bytes >= 1 << 10) {
        for technique in MTU_TECHNIQUES {
            let way = Way {
                sending: Sending::Technique(technique),
                receiving: Receiving::Null,
                slot,
                slots: in_flight(slot),
            };
            let name = format!("sem.mtu.{technique}.{mtu}");
            found.push(Series::new(name, Kind::Messages(way)));
        }
    }
    found
}

/// Senders alone whose pages are never copied, and those that write to each page at once.
fn overwritten((name, bytes): (&str, usize)) -> Vec<Series> {
    let kinds = [
        ("0", Sending::Technique(SendTechnique::PexDma)),
        ("100", Sending::Overwritten),
        ("v2p-dma", Sending::Technique(SendTechnique::V2pDma)),
    ];
    let kinds = kinds.into_iter().map(|(what, sending)| {
        let way = way((sending, Receiving::Null), bytes);
        Series::new(format!("sem.overwrite.{what}.{name}"), Kind::Messages(way))
    });
    kinds.collect()
}

/// Round trips by all pairs, beside what they are compared with.
fn trips((size, bytes): (&str, usize)) -> Vec<Series> {
    let mut found: Vec<Series> = [
        ("match", bare(bytes)),
        ("ring", Kind::Ring),
        ("conn", Kind::Push),
        ("tcp", Kind::Tcp),
    ]
    .into_iter()
    .map(|(what, kind)| Series::new(format!("sem.{what}.rtt.{size}"), kind))
    .collect();
    found.extend(ways(pairs(), bytes, |way| {
        format!("sem.rtt.{}.{}.{size}", way.sending, way.receiving)
    }));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(part: Part, size: &str, brief: bool) -> Vec<String> {
        let size = SIZES.into_iter().find(|(name, _)| *name == size).unwrap();
        let found = part.series(size, brief).into_iter();
        found.map(|series| series.name).collect()
    }

    #[test]
    fn every_technique_of_the_library_is_measured() {
        for technique in SendTechnique::ALL {
            let name = format!("sem.send.{technique}.64");
            assert!(names(Part::Send, "64", false).contains(&name));
        }
        for technique in ReceiveTechnique::ALL {
            let name = format!("sem.recv.{technique}.64k");
            assert!(names(Part::Recv, "64k", true).contains(&name));
        }
        let pairs = names(Part::Pair, "1m", true);
        assert!(pairs.contains(&"sem.pair.copy-dma.v2p-dma.1m".to_owned()));
        assert!(pairs.contains(&"sem.pair.buffered.buffered.1m".to_owned()));
        assert!(!pairs.contains(&"sem.pair.buffered.copy-dma.1m".to_owned()));
    }

    #[test]
    fn parts_have_sizes_of_their_own() {
        assert!(names(Part::Send, "64", true).is_empty());
        assert!(names(Part::Mtu, "64k", false).is_empty());
        let mtus = names(Part::Mtu, "1m", true);
        assert!(mtus.contains(&"sem.mtu.direct-dma.4k".to_owned()));
        assert_eq!(names(Part::Slots, "64k", true)[0], "sem.slots.copy-dma.1");
        assert!(names(Part::Rtt, "8", true).contains(&"sem.match.rtt.8".to_owned()));
    }

    #[test]
    fn messages_that_have_to_be_whole_fit_into_a_slot() {
        for (_, bytes) in SIZES {
            for pair in pairs() {
                let way = way(pair, bytes);
                assert!(!pair.1.takes_whole() || way.slot >= bytes);
                assert!((1..=64).contains(&way.slots));
            }
        }
    }
}
