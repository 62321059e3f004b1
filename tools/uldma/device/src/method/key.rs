// SPDX-License-Identifier: MIT OR Apache-2.0

//! Key-based initiation ("user-level DMA" paper, section 3.1, figure 3): a store of a key to a
//! shadow address passes the address to the context that the key names. The size is stored to the
//! context page, and a load from there starts the transfer.
//!
//! The paper leaves some cases open. Here the first key passes the destination and the second one
//! the source; a third one starts a new sequence with a destination, and clears the size. A load
//! from the page while the arguments are incomplete is refused, and clears them.

use std::collections::BTreeMap;

use super::{Arguments, Machine, Reply, Request, ShadowRef};
use crate::abi::Status;
use crate::layout::{Key, KEY_CONTEXTS, MAX_BAD_KEYS};
use crate::shadow::SizeWord;

const BAD_KEY: Reply = Reply::Refused(Status::BadKey);

/// Arguments that a context has passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Registers {
    destination: Option<ShadowRef>,
    source: Option<ShadowRef>,
    word: Option<u64>,
}

/// The keys of all contexts, and the arguments passed by them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeyBased {
    /// Keys by context; 0 for no key.
    keys: [Key; KEY_CONTEXTS as usize],
    registers: [Registers; KEY_CONTEXTS as usize],
    /// Number of wrong keys, by the context through whose pages they were passed.
    bad: BTreeMap<u32, u32>,
}

/// Compares two keys in a time that does not depend on where they differ.
fn equal(one: Key, other: Key) -> bool {
    let difference = std::hint::black_box(one.bits() ^ other.bits());
    std::hint::black_box((difference | difference.wrapping_neg()) >> 63) == 0
}

impl KeyBased {
    /// Sets the key of a context, and clears its arguments and its count of wrong keys. A key that
    /// does not name the context, or has no secret, counts as no key.
    pub fn assign(&mut self, context: u32, key: Key) {
        self.forget(context);
        if key.get(Key::CONTEXT) == context && key.get(Key::SECRET) != 0 {
            if let Some(place) = self.keys.get_mut(context as usize) {
                *place = key;
            }
        }
    }

    /// Returns the number of wrong keys that were passed through the context's shadow pages.
    pub fn bad_keys(&self, context: u32) -> u32 {
        self.bad.get(&context).copied().unwrap_or(0)
    }

    fn is_locked_out(&self, context: u32) -> bool {
        self.bad_keys(context) >= MAX_BAD_KEYS
    }
}

impl Machine for KeyBased {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        if self.is_locked_out(context) {
            return BAD_KEY;
        }
        let Some(key) = word.map(Key::from_bits) else {
            return Reply::Refused(Status::BadAccess);
        };
        let number = key.get(Key::CONTEXT) as usize;
        let stored = self.keys.get(number).copied().unwrap_or_default();
        // A context without a key has 0, which is not a valid key.
        let right = equal(stored, key) & !stored.is_empty();
        let registers = self.registers.get_mut(number).filter(|_| right);
        let Some(registers) = registers else {
            let bad = self.bad.entry(context).or_default();
            *bad = bad.saturating_add(1);
            return BAD_KEY;
        };
        if registers.destination.is_some() && registers.source.is_none() {
            registers.source = Some(at);
        } else {
            let begun = registers.destination.is_some();
            registers.destination = Some(at);
            registers.source = None;
            if begun {
                registers.word = None;
            }
        }
        Reply::Nothing
    }

    fn load(&mut self, _context: u32, _at: ShadowRef, well_formed: bool) -> Reply {
        Reply::Refused(if well_formed {
            Status::NoArgs
        } else {
            Status::BadAccess
        })
    }

    fn page_store(&mut self, context: u32, word: Option<u64>) -> Reply {
        let Some(registers) = self.registers.get_mut(context as usize) else {
            return BAD_KEY;
        };
        registers.word = word;
        match word {
            Some(_) => Reply::Nothing,
            None => Reply::Refused(Status::BadAccess),
        }
    }

    fn page_load(&mut self, context: u32) -> Reply {
        if self.is_locked_out(context) {
            return BAD_KEY;
        }
        let registers = self.registers.get_mut(context as usize);
        match registers.map(std::mem::take).unwrap_or_default() {
            Registers {
                destination: Some(destination),
                source: Some(source),
                word: Some(word),
            } => Reply::Start(Request::Copy(Arguments {
                source,
                destination,
                word: SizeWord::unpack(word),
            })),
            Registers {
                destination: None,
                source: None,
                word: None,
            } => Reply::Nothing,
            _ => Reply::Refused(Status::NoArgs),
        }
    }

    /// Also removes the key.
    fn forget(&mut self, context: u32) {
        if let Some(key) = self.keys.get_mut(context as usize) {
            *key = Key::NONE;
        }
        if let Some(registers) = self.registers.get_mut(context as usize) {
            *registers = Registers::default();
        }
        self.bad.remove(&context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleavings;
    use proptest::prelude::*;

    const KEYS: [u64; 2] = [0x1234_5678_9abc_def1, 0x0fed_cba9_8765_4322];

    fn machine() -> KeyBased {
        let mut machine = KeyBased::default();
        for key in KEYS {
            machine.assign((key & 15) as u32, Key::from_bits(key));
        }
        machine
    }

    fn page(entry: u32) -> ShadowRef {
        ShadowRef::of_entry(entry, 0)
    }

    fn copy(source: u32, destination: u32, word: u64) -> Reply {
        Reply::Start(Request::Copy(Arguments {
            source: page(source),
            destination: page(destination),
            word: SizeWord::unpack(word),
        }))
    }

    /// D-042: two processes, four accesses each, in all 70 orders: both succeed, with their own.
    #[test]
    fn both_of_two_processes_succeed_in_every_order() {
        let orders = interleavings(4, 4);
        assert_eq!(orders.len(), 70);
        for order in orders {
            let mut machine = machine();
            let mut steps = [0; 2];
            for second in order {
                let who = usize::from(second);
                let context = who as u32 + 1;
                let (from, to) = (page(20 + context), page(10 + context));
                let reply = match steps[who] {
                    0 => machine.store(context, to, Some(KEYS[who])),
                    1 => machine.store(context, from, Some(KEYS[who])),
                    2 => machine.page_store(context, Some(context.into())),
                    _ => machine.page_load(context),
                };
                let expected = match steps[who] {
                    0..=2 => Reply::Nothing,
                    _ => copy(20 + context, 10 + context, context.into()),
                };
                assert_eq!(reply, expected);
                steps[who] += 1;
            }
        }
    }

    /// D-036, D-041: a wrong key changes nothing of what others passed, and too many end service.
    #[test]
    fn wrong_keys() {
        let mut machine = machine();
        machine.store(1, page(11), Some(KEYS[0]));
        let before = machine.registers;
        for count in 1..=MAX_BAD_KEYS {
            // A guess, the key of a context that has none, and no secret at all.
            let guess = [KEYS[0] ^ (1 << 40), 0x7777_0003, 1][count as usize % 3];
            assert_eq!(machine.store(2, page(12), Some(guess)), BAD_KEY);
            assert_eq!(machine.bad_keys(2), count);
        }
        assert_eq!(machine.store(2, page(12), Some(KEYS[1])), BAD_KEY);
        assert_eq!(machine.store(2, page(12), Some(KEYS[0])), BAD_KEY);
        assert_eq!(machine.page_load(2), BAD_KEY);
        assert_eq!(machine.bad_keys(2), MAX_BAD_KEYS, "it counts no further");
        assert_eq!(machine.registers, before);
        assert_eq!(machine.bad_keys(1), 0);
        machine.assign(2, Key::from_bits(KEYS[1]));
        assert_eq!(machine.store(2, page(12), Some(KEYS[1])), Reply::Nothing);
    }

    /// A key passes addresses to its own context, whichever process stores it.
    #[test]
    fn the_key_names_the_context() {
        let mut machine = machine();
        machine.store(2, page(11), Some(KEYS[0]));
        machine.store(7, page(21), Some(KEYS[0]));
        machine.page_store(2, Some(4));
        assert_eq!(machine.page_load(2), Reply::Refused(Status::NoArgs));
        machine.page_store(1, Some(8));
        assert_eq!(machine.page_load(1), copy(21, 11, 8));
    }

    /// D-043.
    #[test]
    fn half_passed_arguments() {
        let mut machine = machine();
        let key = Some(KEYS[0]);
        assert_eq!(machine.page_load(1), Reply::Nothing, "bytes to go");
        machine.store(1, page(11), key);
        assert_eq!(machine.page_load(1), Reply::Refused(Status::NoArgs));
        assert_eq!(machine.page_load(1), Reply::Nothing, "it was cleared");
        // A size that comes early is as good.
        machine.page_store(1, Some(8));
        machine.store(1, page(11), key);
        machine.store(1, page(21), key);
        assert_eq!(machine.clone().page_load(1), copy(21, 11, 8));
        machine.store(1, page(12), key);
        assert_eq!(
            machine.clone().page_load(1),
            Reply::Refused(Status::NoArgs),
            "the third key starts a new sequence"
        );
        machine.store(1, page(22), key);
        machine.page_store(1, Some(16));
        assert_eq!(machine.clone().page_load(1), copy(22, 12, 16));
        let bad = Reply::Refused(Status::BadAccess);
        assert_eq!(machine.page_store(1, None), bad);
        assert_eq!(machine.page_load(1), Reply::Refused(Status::NoArgs));
        assert_eq!(machine.store(1, page(1), None), bad);
        assert_eq!(machine.load(1, page(1), false), bad);
        let no_args = Reply::Refused(Status::NoArgs);
        assert_eq!(machine.load(1, page(1), true), no_args);
    }

    #[test]
    fn keys_that_are_none() {
        let mut machine = KeyBased::default();
        for (context, key) in [(1, 0x5552), (1, 1), (0, 0), (16, 0x5550), (300, 0x555c)] {
            machine.assign(context, Key::from_bits(key));
            assert_eq!(machine.keys, [Key::NONE; 16], "{context} {key:#x}");
        }
        assert_eq!(machine.page_store(16, Some(8)), BAD_KEY);
        assert_eq!(machine.page_load(16), Reply::Nothing);
        machine.assign(1, Key::from_bits(KEYS[0]));
        machine.forget(1);
        assert_eq!(machine.store(1, page(1), Some(KEYS[0])), BAD_KEY);
    }

    #[derive(Clone, Copy, Debug)]
    enum Access {
        Key(usize, u32),
        Guess(u64),
        Size(usize, u64),
        Start(usize),
    }

    fn access() -> impl Strategy<Value = Access> {
        prop_oneof![
            4 => (0usize..2, 0u32..9).prop_map(|(who, entry)| Access::Key(who, entry)),
            1 => any::<u64>().prop_map(Access::Guess),
            2 => (0usize..2, 0u64..9).prop_map(|(who, word)| Access::Size(who, word)),
            2 => (0usize..2).prop_map(Access::Start),
        ]
    }

    proptest! {
        /// Compares with a reference that depends on the history of one context alone.
        #[test]
        fn contexts_are_independent(accesses in prop::collection::vec(access(), 0..80)) {
            let mut machine = machine();
            let mut named = [const { Vec::new() }; 2];
            let mut sizes = [None; 2];
            for access in accesses {
                match access {
                    Access::Key(who, entry) => {
                        let reply = machine.store(9, page(entry), Some(KEYS[who]));
                        if machine.is_locked_out(9) {
                            prop_assert_eq!(reply, BAD_KEY);
                            continue;
                        }
                        prop_assert_eq!(reply, Reply::Nothing);
                        if named[who].len() == 2 {
                            named[who].clear();
                            sizes[who] = None;
                        }
                        named[who].push(entry);
                    }
                    Access::Guess(key) => {
                        let known = KEYS.contains(&key);
                        prop_assert!(known || machine.store(9, page(0), Some(key)) == BAD_KEY);
                    }
                    Access::Size(who, word) => {
                        machine.page_store(who as u32 + 1, Some(word));
                        sizes[who] = Some(word);
                    }
                    Access::Start(who) => {
                        let expected = match (named[who].as_slice(), sizes[who]) {
                            ([to, from], Some(word)) => copy(*from, *to, word),
                            ([], None) => Reply::Nothing,
                            _ => Reply::Refused(Status::NoArgs),
                        };
                        prop_assert_eq!(machine.page_load(who as u32 + 1), expected);
                        named[who].clear();
                        sizes[who] = None;
                    }
                }
            }
        }
    }
}
