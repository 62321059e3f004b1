// SPDX-License-Identifier: MIT OR Apache-2.0

//! The argument latch of a context: one store passes destination and size, the load after it
//! passes the source and starts the transfer ("user-level DMA" paper, section 3.2, figure 4; each
//! context has its own latch, so that interleaved processes both succeed).

use crate::abi::Status;
use crate::shadow::SizeWord;

/// One side as a shadow access names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Index in the page table.
    pub entry: u32,
    /// Byte in the page; a multiple of 8.
    pub offset: u32,
}

/// All arguments of a transfer, as passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Where to read.
    pub source: Named,
    /// Where to write.
    pub destination: Named,
    /// How much, and the rest of both addresses.
    pub word: SizeWord,
}

/// The half-passed arguments of one context.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latch {
    passed: Option<(Named, SizeWord)>,
}

/// Whether an access to shadow space has a form that passes arguments.
pub fn well_formed(address: u64, width: usize) -> bool {
    matches!(width, 4 | 8) && address % 8 == 0
}

impl Latch {
    /// A store: keeps `destination` and the size word in place of what was there. A malformed store
    /// (`word` is `None`) leaves nothing behind.
    pub fn store(&mut self, destination: Named, word: Option<u64>) -> Result<(), Status> {
        self.passed = word.map(|word| (destination, SizeWord::unpack(word)));
        match self.passed {
            Some(_) => Ok(()),
            None => Err(Status::BadAccess),
        }
    }

    /// A load: takes what is there, whether it starts something or not.
    pub fn load(&mut self, source: Named, well_formed: bool) -> Result<Arguments, Status> {
        let passed = self.passed.take();
        if !well_formed {
            return Err(Status::BadAccess);
        }
        let (destination, word) = passed.ok_or(Status::NoArgs)?;
        Ok(Arguments {
            source,
            destination,
            word,
        })
    }

    /// Forgets half-passed arguments.
    pub fn clear(&mut self) {
        self.passed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug)]
    enum Access {
        Store {
            context: usize,
            entry: u32,
            word: u64,
            good: bool,
        },
        Load {
            context: usize,
            entry: u32,
            good: bool,
        },
    }

    fn access() -> impl Strategy<Value = Access> {
        prop_oneof![
            (0usize..2, 0u32..4, any::<u64>(), prop::bool::weighted(0.9)).prop_map(
                |(context, entry, word, good)| Access::Store {
                    context,
                    entry,
                    word,
                    good
                }
            ),
            (0usize..2, 0u32..4, prop::bool::weighted(0.9)).prop_map(|(context, entry, good)| {
                Access::Load {
                    context,
                    entry,
                    good,
                }
            }),
        ]
    }

    fn named(entry: u32) -> Named {
        Named { entry, offset: 8 }
    }

    /// What the latch must answer, from the history alone: a load starts a transfer if and only if
    /// the access before it in the same context was a well-formed store.
    fn reference(history: &[Access], context: usize) -> Option<(u32, u64)> {
        let last = history.iter().rev().find(|access| match access {
            Access::Store { context: c, .. } | Access::Load { context: c, .. } => *c == context,
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
            let mut latches = [Latch::default(); 2];
            for (position, access) in accesses.iter().enumerate() {
                match *access {
                    Access::Store { context, entry, word, good } => {
                        let result = latches[context].store(named(entry), good.then_some(word));
                        prop_assert_eq!(result.is_ok(), good);
                    }
                    Access::Load { context, entry, good } => {
                        let expected = match (good, reference(&accesses[..position], context)) {
                            (false, _) => Err(Status::BadAccess),
                            (true, None) => Err(Status::NoArgs),
                            (true, Some((destination, word))) => Ok(Arguments {
                                source: named(entry),
                                destination: named(destination),
                                word: SizeWord::unpack(word),
                            }),
                        };
                        prop_assert_eq!(latches[context].load(named(entry), good), expected);
                    }
                }
            }
        }
    }

    #[test]
    fn forms_of_access() {
        assert!(well_formed(0x1000, 8) && well_formed(0x1008, 4));
        for (address, width) in [(0x1004, 4), (0x1004, 8), (0x1000, 2), (0x1000, 1), (0, 16)] {
            assert!(!well_formed(address, width), "{address:#x}/{width}");
        }
    }
}
