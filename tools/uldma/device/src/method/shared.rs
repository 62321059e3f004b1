// SPDX-License-Identifier: MIT OR Apache-2.0

//! One latch for all contexts, with and without a check of the contexts of store and load.

use super::latch::Latch;
use super::{Machine, Reply, ShadowRef};
use crate::abi::Status;

/// The latch, and the context whose store it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct SharedLatch {
    latch: Latch,
    owner: Option<u32>,
}

impl SharedLatch {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        self.owner = word.map(|_| context);
        self.latch.store(at, word)
    }

    fn load(&mut self, at: ShadowRef, well_formed: bool) -> Reply {
        self.owner = None;
        self.latch.load(at, well_formed)
    }

    fn forget(&mut self, context: u32) {
        if self.owner == Some(context) {
            *self = Self::default();
        }
    }
}

/// Extended shadow addressing without registers for each context ("user-level DMA" paper, section
/// 3.2): if store and load have different contexts, no transfer starts, and the load returns an
/// error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ExtendedShadowShared {
    shared: SharedLatch,
}

impl Machine for ExtendedShadowShared {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        self.shared.store(context, at, word)
    }

    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        let mixed = self.shared.owner.is_some_and(|owner| owner != context);
        let reply = self.shared.load(at, well_formed);
        if mixed && well_formed {
            Reply::Refused(Status::Mixed)
        } else {
            reply
        }
    }

    fn forget(&mut self, context: u32) {
        self.shared.forget(context);
    }
}

/// SHRIMP-2 (the paper, section 2.5, figure 2), without its change of the context switch: the load
/// starts a transfer with the arguments of the last store by any context. PAL code (section 2.7)
/// drives the same machine by two uninterrupted accesses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Shrimp2 {
    shared: SharedLatch,
}

impl Machine for Shrimp2 {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        self.shared.store(context, at, word)
    }

    fn load(&mut self, _context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        self.shared.load(at, well_formed)
    }

    fn forget(&mut self, context: u32) {
        self.shared.forget(context);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arguments, Request};
    use super::*;
    use crate::shadow::SizeWord;
    use crate::testing::interleavings;

    const VICTIM: u32 = 1;
    const MALLORY: u32 = 2;
    const A: ShadowRef = page(10);
    const B: ShadowRef = page(11);
    const C: ShadowRef = page(12);

    const fn page(entry: u32) -> ShadowRef {
        ShadowRef {
            entry,
            offset: 0,
            address: entry as u64 * 4096,
        }
    }

    fn copy(source: ShadowRef, destination: ShadowRef, word: u64) -> Reply {
        Reply::Start(Request::Copy(Arguments {
            source,
            destination,
            word: SizeWord::unpack(word),
        }))
    }

    /// D-026: V:ST B, M:LD C starts C to B.
    #[test]
    fn shrimp_2_mixes_arguments() {
        let mut machine = Shrimp2::default();
        assert_eq!(machine.store(VICTIM, B, Some(8)), Reply::Nothing);
        assert_eq!(machine.load(MALLORY, C, true), copy(C, B, 8));
        assert_eq!(
            machine.load(VICTIM, A, true),
            Reply::Refused(Status::NoArgs)
        );
        assert_eq!(machine.started(7), 7);
    }

    #[test]
    fn shrimp_2_forgets_who_is_off() {
        let mut machine = Shrimp2::default();
        machine.store(VICTIM, B, Some(8));
        machine.forget(MALLORY);
        assert_eq!(machine.clone().load(MALLORY, C, true), copy(C, B, 8));
        machine.forget(VICTIM);
        assert_eq!(machine, Shrimp2::default());
    }

    /// D-049, both outcomes.
    #[test]
    fn extended_shadow_shared_starts_nothing_mixed() {
        let mut machine = ExtendedShadowShared::default();
        machine.store(VICTIM, B, Some(8));
        assert_eq!(machine.clone().load(VICTIM, A, true), copy(A, B, 8));
        assert_eq!(
            machine.load(MALLORY, C, true),
            Reply::Refused(Status::Mixed)
        );
        assert_eq!(
            machine.load(VICTIM, A, true),
            Reply::Refused(Status::NoArgs),
            "it is cleared"
        );
        machine.store(VICTIM, B, Some(8));
        machine.store(MALLORY, C, None);
        assert_eq!(
            machine.load(VICTIM, A, true),
            Reply::Refused(Status::NoArgs)
        );
        machine.store(VICTIM, B, Some(8));
        assert_eq!(
            machine.load(MALLORY, C, false),
            Reply::Refused(Status::BadAccess)
        );
    }

    /// In every order of two processes' stores and loads, what is started is one process's own.
    #[test]
    fn extended_shadow_shared_in_every_order() {
        let mut starts = 0;
        for order in interleavings(2, 2) {
            let mut machine = ExtendedShadowShared::default();
            let mut stored = [false; 2];
            for second in order {
                let (context, from, to) = if second {
                    (MALLORY, C, page(13))
                } else {
                    (VICTIM, A, B)
                };
                if std::mem::replace(&mut stored[usize::from(second)], true) {
                    let reply = machine.load(context, from, true);
                    let own = reply == copy(from, to, 8);
                    assert!(own || matches!(reply, Reply::Refused(_)), "{reply:?}");
                    starts += u32::from(own);
                } else {
                    machine.store(context, to, Some(8));
                }
            }
        }
        // Both where one comes after the other, and one where a pair is inside of the other.
        assert_eq!(starts, 2 * 2 + 2);
    }
}
