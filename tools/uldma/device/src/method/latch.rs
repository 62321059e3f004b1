// SPDX-License-Identifier: MIT OR Apache-2.0

//! Extended shadow addressing: the shadow address names the context, and each context has its own
//! latch ("user-level DMA" paper, section 3.2, figure 4). A store passes destination and size; the
//! following load passes the source and starts the transfer. Interleaved processes both succeed.

use std::collections::BTreeMap;

use super::{Arguments, Machine, Reply, Request, ShadowRef};
use crate::abi::Status;
use crate::shadow::SizeWord;

/// Half-passed arguments: destination and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Latch {
    passed: Option<(ShadowRef, SizeWord)>,
}

impl Latch {
    /// Handles a store: replaces the latched arguments by `destination` and the size word. A
    /// malformed store (`word` is `None`) empties the latch.
    pub(super) fn store(&mut self, destination: ShadowRef, word: Option<u64>) -> Reply {
        self.passed = word.map(|word| (destination, SizeWord::unpack(word)));
        match self.passed {
            Some(_) => Reply::Nothing,
            None => Reply::Refused(Status::BadAccess),
        }
    }

    /// Handles a load: empties the latch, even if it starts no transfer.
    pub(super) fn load(&mut self, source: ShadowRef, well_formed: bool) -> Reply {
        let passed = self.passed.take();
        if !well_formed {
            return Reply::Refused(Status::BadAccess);
        }
        match passed {
            Some((destination, word)) => Reply::Start(Request::Copy(Arguments {
                source,
                destination,
                word,
            })),
            None => Reply::Refused(Status::NoArgs),
        }
    }
}

/// A latch for each context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtendedShadow {
    latches: BTreeMap<u32, Latch>,
}

impl Machine for ExtendedShadow {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        self.latches.entry(context).or_default().store(at, word)
    }

    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        self.latches
            .entry(context)
            .or_default()
            .load(at, well_formed)
    }

    fn forget(&mut self, context: u32) {
        self.latches.remove(&context);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::interleavings;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Access {
        Store {
            context: u32,
            entry: u32,
            word: u64,
            good: bool,
        },
        Load {
            context: u32,
            entry: u32,
            good: bool,
        },
        Forget {
            context: u32,
        },
    }

    fn access() -> impl Strategy<Value = Access> {
        prop_oneof![
            9 => (0u32..2, 0u32..4, any::<u64>(), prop::bool::weighted(0.9)).prop_map(
                |(context, entry, word, good)| Access::Store {
                    context,
                    entry,
                    word,
                    good
                }
            ),
            9 => (0u32..2, 0u32..4, prop::bool::weighted(0.9)).prop_map(|(context, entry, good)| {
                Access::Load {
                    context,
                    entry,
                    good,
                }
            }),
            1 => (0u32..2).prop_map(|context| Access::Forget { context }),
        ]
    }

    fn named(entry: u32) -> ShadowRef {
        ShadowRef::of_entry(entry, 8)
    }

    /// Returns the expected reply, from the history alone: a load starts a transfer if and only if
    /// the access before it in the same context was a well-formed store.
    fn reference(history: &[Access], context: u32) -> Option<(u32, u64)> {
        let last = history.iter().rev().find(|access| match access {
            Access::Store { context: c, .. }
            | Access::Load { context: c, .. }
            | Access::Forget { context: c } => *c == context,
        })?;
        match *last {
            Access::Store {
                entry,
                word,
                good: true,
                ..
            } => Some((entry, word)),
            _ => None,
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_reference_and_never_mixes_contexts(
            accesses in prop::collection::vec(access(), 0..60)
        ) {
            let mut machine = ExtendedShadow::default();
            for (position, access) in accesses.iter().enumerate() {
                match *access {
                    Access::Store { context, entry, word, good } => {
                        let reply = machine.store(context, named(entry), good.then_some(word));
                        prop_assert_eq!(reply == Reply::Nothing, good);
                    }
                    Access::Load { context, entry, good } => {
                        let expected = match (good, reference(&accesses[..position], context)) {
                            (false, _) => Reply::Refused(Status::BadAccess),
                            (true, None) => Reply::Refused(Status::NoArgs),
                            (true, Some((destination, word))) => {
                                Reply::Start(Request::Copy(Arguments {
                                    source: named(entry),
                                    destination: named(destination),
                                    word: SizeWord::unpack(word),
                                }))
                            }
                        };
                        prop_assert_eq!(machine.load(context, named(entry), good), expected);
                    }
                    Access::Forget { context } => machine.forget(context),
                }
            }
        }
    }

    /// Two processes, each with its store and its load: all six orders (D-048).
    #[test]
    fn both_of_two_processes_succeed_in_every_order() {
        let orders = interleavings(2, 2);
        assert_eq!(orders.len(), 6);
        for order in orders {
            let mut machine = ExtendedShadow::default();
            let mut passed = [false; 2];
            for second in order {
                let context = u32::from(second);
                let stored = &mut passed[usize::from(second)];
                if *stored {
                    let expected = Reply::Start(Request::Copy(Arguments {
                        source: named(context),
                        destination: named(10 + context),
                        word: SizeWord::unpack(context.into()),
                    }));
                    assert_eq!(machine.load(context, named(context), true), expected);
                } else {
                    let word = Some(context.into());
                    let reply = machine.store(context, named(10 + context), word);
                    assert_eq!(reply, Reply::Nothing);
                    *stored = true;
                }
            }
        }
    }
}
