// SPDX-License-Identifier: MIT OR Apache-2.0

//! A peer that writes random words where the driver reads handshakes and messages.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use kernel::error::{Result, EBUSY};

use super::area::{ring_of, AreaRegister, Shape, Versions, AREA_SIZE, MAX_SLOTS};
use super::handshake::{Handshake, Offer};
use super::message::{Raw, WORDS};
use super::ring::{Channel, Rings};
use crate::chance::Chance;
use crate::hw::layout::Lanes;
use crate::hw::le::Le;
use crate::hw::{Geometry, Hw, Words};
use crate::kernel_ext::errno::eproto;
use crate::messages;
use crate::outcomes::Outcomes;
use crate::ring::layout::{self, ASLEEP, HEAD, HEADS, LINE, OUT, TAKEN, WANTS_ROOM};

const NODE: u32 = 1;
const PEER: u32 = 0;
/// Bytes of a section.
const SECTION: u64 = 1 << 20;

/// Words of the window: written by the peer at random whenever they are read, or as they were set.
struct Hostile {
    geometry: Geometry,
    chance: RefCell<Chance>,
    /// Plausible words, which it writes now and then: of records that come, and were taken.
    counts: Cell<(u64, u64)>,
    /// Messages of the own ring.
    slots: Cell<u32>,
    message: RefCell<Raw>,
    written: Cell<u64>,
}

impl Hostile {
    fn new(chance: &mut Chance) -> Self {
        let nodes = 2 + u32::try_from(chance.below(7)).unwrap_or(0);
        let Some(lanes) = Lanes::new(nodes, SECTION) else {
            panic!("a section has room for all lanes");
        };
        Self {
            geometry: Geometry {
                node: NODE,
                nodes,
                lanes,
            },
            chance: RefCell::new(Chance::new(chance.any())),
            counts: Cell::new((0, 0)),
            slots: Cell::new(1),
            message: RefCell::new([Le::new(0); WORDS]),
            written: Cell::new(0),
        }
    }

    /// Returns a word of the own ring that may well be true.
    fn word_of_ring(&self, offset: usize, chance: &mut Chance) -> u64 {
        let (next, taken) = self.counts.get();
        let slots = self.slots.get();
        match offset {
            TAKEN => {
                let lines = if chance.one_in(2) { 0 } else { 2 * taken };
                (taken & 0xffff) << 48 | (lines & 0xff_ffff) << 24 | chance.any() & ASLEEP
            }
            OUT => chance.any() & (ASLEEP | WANTS_ROOM),
            _ => {
                let heads = HEADS..HEADS + slots as usize * LINE;
                let place = offset % LINE;
                let message = &mut *self.message.borrow_mut();
                if heads.contains(&offset) && place == HEAD {
                    *message = messages::words(chance);
                    let private = message[0].get() >> 8 & 0xff;
                    return layout::head(next, 56 + private.next_multiple_of(8));
                }
                let word = match heads.contains(&offset) {
                    true => place / 8,
                    false => 7 + (offset - HEADS) % (2 * LINE) / 8,
                };
                message.get(word).map_or(0, |word| word.get())
            }
        }
    }

    /// Checks that an access is to a word of the area at the start of a lane. Returns its place there.
    fn check(offset: usize, lane: Result<Range<usize>>) -> Result<usize> {
        let base = lane?.start;
        assert!(offset >= base && offset - base <= AREA_SIZE - 8 && offset % 8 == 0);
        Ok(offset - base)
    }
}

impl Words for Hostile {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn read(&self, offset: usize) -> Result<u64> {
        let at = Self::check(offset, self.geometry.inbound(PEER))?;
        let mut chance = self.chance.borrow_mut();
        let slots = 1 << chance.below(7);
        if chance.one_in(12) {
            return Ok(chance.word());
        }
        Ok(match AreaRegister::decode(at) {
            Some(AreaRegister::MAGIC) => 0x6b6e_696c_616d_6475,
            Some(AreaRegister::VERSIONS) => {
                let versions = Versions::NONE.with(Versions::LOWEST, 3);
                versions.with(Versions::HIGHEST, 3).bits()
            }
            Some(AreaRegister::SECTION) => SECTION,
            Some(AreaRegister::SHAPE) => {
                let shape = Shape::NONE.with(Shape::NODES, self.geometry.nodes);
                shape.with(Shape::SLOTS, slots).bits()
            }
            Some(AreaRegister::SESSION) => 5,
            Some(AreaRegister::RING(word)) => self.word_of_ring(word * 8, &mut chance),
            _ => chance.word(),
        })
    }

    fn write(&self, peer: u32, offset: usize, value: u64) -> Result {
        assert_eq!(peer, PEER);
        Self::check(offset, self.geometry.outbound(peer))?;
        self.written.set(self.written.get().wrapping_add(value));
        Ok(())
    }
}

/// For any handshake, the negotiated values are within bounds.
pub(crate) fn handshake(chance: &mut Chance, outcomes: &mut Outcomes) {
    let window = Hostile::new(chance);
    let hw = Hw(&window);
    let (slots, features) = (chance.half(), chance.word());
    let Ok(own) = Offer::own(hw, slots, features) else {
        panic!("this node sends no message");
    };
    let said = Handshake::read(hw, PEER);
    let outcome = match said {
        Ok(Some(handshake)) => {
            assert!(handshake.session != 0 && handshake.session != u32::MAX);
            match own.agree(&handshake.offer) {
                Ok(terms) => {
                    assert!(ring_of(terms.slots).is_ok() && terms.slots <= MAX_SLOTS);
                    assert_eq!(terms.features & !features, 0, "a feature of the peer alone");
                    "handshake: agreed".into()
                }
                Err(misfit) => format!("handshake: {misfit:?}"),
            }
        }
        Ok(None) => "handshake: none".into(),
        Err(error) => format!("handshake: {error:?}"),
    };
    outcomes.add(outcome);
    match own.agree(&own) {
        Ok(terms) => assert!(ring_of(terms.slots).is_ok() && ring_of(terms.own_slots).is_ok()),
        Err(misfit) => panic!("a node does not fit to itself: {misfit:?}"),
    }
}

/// For any words of the peer, no access is outside of the rings, and each message is one that can be.
pub(crate) fn rings(chance: &mut Chance, outcomes: &mut Outcomes) {
    let window = Hostile::new(chance);
    let wire = Channel {
        hw: Hw(&window),
        peer: PEER,
    };
    let (own_slots, slots) = (1 << chance.below(7), 1 << chance.below(7));
    window.slots.set(own_slots);
    let Ok(mut rings) = Rings::begin(&wire, own_slots, slots) else {
        panic!("the rings do not begin");
    };
    let (mut put, mut taken, mut there) = (0u64, 0u64, 0u64);
    for _ in 0..chance.below(100) {
        let next = if chance.one_in(4) { taken + 1 } else { taken };
        if chance.one_in(8) {
            there = put;
        }
        window.counts.set((next, there));
        if chance.one_in(4) {
            let looked = match chance.below(3) {
                0 => rings.has_message(&wire).map(drop),
                1 => rings.set_asleep(&wire, chance.one_in(2)),
                _ => rings.peer_is_idle(&wire).map(drop),
            };
            match looked {
                Ok(()) => outcomes.add("ring: looked"),
                Err(error) => assert_eq!(error, eproto()),
            }
        } else if chance.one_in(2) {
            match rings.put(&wire, &messages::message(chance), chance.word()) {
                Ok(_) => put += 1,
                Err(error) if error == EBUSY => outcomes.add("ring: full"),
                Err(error) if error == eproto() => outcomes.add("ring: link down for a count"),
                Err(error) => panic!("{error:?}"),
            }
        } else {
            match rings.take(&wire) {
                Ok((None, _)) => outcomes.add("ring: nothing came"),
                Ok((Some((message, turnaround)), _)) => {
                    taken += 1;
                    let told = if turnaround == 0 { "" } else { ", turnaround" };
                    outcomes.add(format!("ring: {}{told}", messages::name(&message)));
                }
                Err(error) => {
                    assert_eq!(error, eproto());
                    outcomes.add("ring: link down for a message");
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOL: &str = include_str!("../../../../Documentation/uldma/link.rst");

    /// The table of an area in the documentation has the words that the driver declares.
    #[test]
    fn words_are_those_of_the_documentation() {
        let Some((_, table)) = PROTOCOL.split_once("\nAn area:\n") else {
            panic!("no table of an area");
        };
        let lines = table.lines().skip_while(|line| line.is_empty());
        let listed: Vec<_> = lines
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("``")?.split_once("``"))
            .map(|(offset, _)| offset.to_string())
            .collect();
        let declared = AreaRegister::ALL.iter();
        let declared: Vec<_> = declared
            .map(|word| format!("{:#05x}", word.offset))
            .collect();
        assert_eq!(listed, declared);
    }
}
