// SPDX-License-Identifier: MIT OR Apache-2.0

//! The effect of a write buffer on the accesses that start a transfer (the paper, section 4.3 and
//! footnote 7): what arrives at the device with and without barriers.
//!
//! The buffer of a combining mapping keeps stores until it is full or a barrier is executed, merges
//! a store with a buffered one to the same address, lets loads overtake stores, and answers loads
//! of an address that it holds; a second load from an address may return the result of the first
//! one. An uncached mapping has no buffer. No processor that Linux runs on does that to uncached
//! memory, and an emulator does not do it at all, so this simulation shows it.

use std::fmt::Write;

use uldma_device::layout::Key;
use uldma_device::method::{
    Compare, ExtendedShadow, ExtendedShadowShared, FetchAdd, Flash, FlashSingle, KeyBased, Machine,
    Repeated, Reply, Shrimp1, Shrimp2, Shrimp2Abort, SingleStore,
};

use crate::methods::{Expect, Method};
use crate::world::{Access, Process, Word};

/// How accesses travel to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// An uncached mapping: one by one.
    Uncached,
    /// A combining mapping, and a barrier before each access.
    Barriers,
    /// A combining mapping alone.
    Combining,
}

impl Path {
    /// All, the ablation last.
    pub const ALL: [Path; 3] = [Self::Uncached, Self::Barriers, Self::Combining];
}

/// What became of the accesses of one initiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Number of accesses of the program.
    pub made: usize,
    /// Number of those that the device saw.
    pub arrived: usize,
    /// True if the transfer was started, and the program read the values that are due.
    pub started: bool,
}

/// A processor with a write buffer, in front of the device.
struct Processor<M> {
    machine: M,
    method: Method,
    /// Buffered stores.
    stores: Vec<(Access, Word)>,
    /// Results of loads since the last barrier.
    loaded: Vec<(Access, Reply)>,
    arrived: usize,
    started: bool,
}

/// Returns the address of an access, as the load from there.
fn address(access: Access) -> Access {
    match access {
        Access::Store(page, _) | Access::Load(page) => Access::Load(page),
        Access::PageStore(_) | Access::PageLoad => Access::PageLoad,
    }
}

impl<M: Machine> Processor<M> {
    /// Passes an access to the device.
    fn arrive(&mut self, access: Access) -> Reply {
        self.arrived += 1;
        let context = Process::Victim.context();
        let reply = match access {
            Access::Store(page, word) => {
                let word = self.method.encode(word);
                self.machine.store(context, page.named(), Some(word))
            }
            Access::Load(page) => self.machine.load(context, page.named(), true),
            Access::PageStore(word) => {
                let word = self.method.encode(word);
                self.machine.page_store(context, Some(word))
            }
            Access::PageLoad => self.machine.page_load(context),
        };
        self.started |= matches!(reply, Reply::Start(_));
        reply
    }

    fn barrier(&mut self) {
        for (at, word) in std::mem::take(&mut self.stores) {
            self.arrive(match at {
                Access::Load(page) => Access::Store(page, word),
                _ => Access::PageStore(word),
            });
        }
        self.loaded.clear();
    }

    fn store(&mut self, at: Access, word: Word) {
        match self.stores.iter_mut().find(|(kept, _)| *kept == at) {
            Some((_, kept)) => *kept = word,
            None => self.stores.push((at, word)),
        }
    }

    /// Returns the value that the program reads; none if the buffer answers with what was stored.
    fn load(&mut self, at: Access) -> Option<Reply> {
        if self.stores.iter().any(|(kept, _)| *kept == at) {
            return None;
        }
        if let Some((_, kept)) = self.loaded.iter().find(|(kept, _)| *kept == at) {
            return Some(*kept);
        }
        let reply = self.arrive(at);
        self.loaded.push((at, reply));
        Some(reply)
    }
}

fn run<M: Machine>(method: Method, mut machine: M, path: Path) -> Outcome {
    machine.running(0, Some(Process::Victim.context()));
    let mut processor = Processor {
        machine,
        method,
        stores: Vec::new(),
        loaded: Vec::new(),
        arrived: 0,
        started: false,
    };
    let program = method.program();
    let mut as_expected = true;
    for (access, expected) in &program {
        let at = address(*access);
        if path != Path::Combining {
            processor.barrier();
        }
        let reply = match access {
            Access::Store(_, word) | Access::PageStore(word) => {
                processor.store(at, *word);
                continue;
            }
            Access::Load(_) | Access::PageLoad => processor.load(at),
        };
        as_expected &= match expected {
            Expect::Nothing => true,
            Expect::Code(code) => reply == Some(Reply::Code(*code)),
            Expect::Start => matches!(reply, Some(Reply::Start(_))),
        };
    }
    // The buffer is emptied some time later.
    processor.barrier();
    Outcome {
        made: program.len(),
        arrived: processor.arrived,
        started: processor.started && as_expected,
    }
}

/// Makes the accesses of a method once; none for a method that passes its arguments in memory or in
/// the kernel.
pub fn initiate(method: Method, path: Path) -> Option<Outcome> {
    let full = Compare::Full;
    Some(match method {
        Method::Kernel | Method::Queue => return None,
        Method::ExtendedShadow => run(method, ExtendedShadow::default(), path),
        Method::ExtendedShadowShared => run(method, ExtendedShadowShared::default(), path),
        Method::Key => {
            let mut machine = KeyBased::default();
            let key = Key::from_bits(method.encode(Word::Key(Process::Victim)));
            machine.assign(Process::Victim.context(), key);
            run(method, machine, path)
        }
        Method::SingleStore => run(method, SingleStore, path),
        Method::Repeated3 => run(method, Repeated::three(full), path),
        Method::Repeated4 => run(method, Repeated::four(full), path),
        Method::Repeated5 => run(method, Repeated::five(full), path),
        Method::Shrimp1 => run(method, Shrimp1, path),
        Method::Shrimp2Abort => run(method, Shrimp2Abort::default(), path),
        Method::Flash => run(method, Flash::default(), path),
        Method::FetchAdd => run(method, FetchAdd, path),
        Method::Pal | Method::Shrimp2 => run(method, Shrimp2::default(), path),
        Method::FlashSingle => run(method, FlashSingle::default(), path),
    })
}

/// The file `Documentation/uldma/initiation-barriers.rst`.
pub fn document() -> String {
    let mut text = String::from(
        ".. SPDX-License-Identifier: GPL-2.0\n\
         .. Generated by uldma-interleave; do not edit.\n\n\
         .. list-table:: Accesses that arrive at the device, and whether the transfer starts\n   \
         :header-rows: 1\n\n   \
         * - method\n     - accesses\n     - uncached\n     - combining, barriers\n     \
         - combining, no barriers\n",
    );
    for method in Method::ALL {
        let outcomes = Path::ALL.map(|path| initiate(method, path));
        let Some(first) = outcomes.first().copied().flatten() else {
            continue;
        };
        let _ = writeln!(text, "   * - {}\n     - {}", method.name(), first.made);
        for outcome in outcomes.iter().flatten() {
            let word = if outcome.started {
                "starts"
            } else {
                "**fails**"
            };
            let _ = writeln!(text, "     - {}, {word}", outcome.arrived);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-082: each access arrives, and the transfer starts.
    #[test]
    fn barriers_and_uncached_mappings_keep_accesses_apart() {
        for method in Method::ALL {
            for path in [Path::Uncached, Path::Barriers] {
                let Some(outcome) = initiate(method, path) else {
                    continue;
                };
                assert_eq!(outcome.arrived, outcome.made, "{method:?} {path:?}");
                assert!(outcome.started, "{method:?} {path:?}");
            }
        }
    }

    /// Both stores are one, the second load is the first one's, and the last is answered by the
    /// buffer.
    #[test]
    fn a_write_buffer_merges_what_is_repeated() {
        let outcome = initiate(Method::Repeated5, Path::Combining);
        let expected = Outcome {
            made: 5,
            arrived: 2,
            started: false,
        };
        assert_eq!(outcome, Some(expected));
    }

    /// A method is independent of barriers if and only if it has one access.
    #[test]
    fn a_load_overtakes_the_store_before_it() {
        for method in Method::ALL {
            if let Some(outcome) = initiate(method, Path::Combining) {
                assert_eq!(outcome.started, outcome.made == 1, "{method:?}");
            }
        }
    }

    #[test]
    fn the_documentation_has_this_table() {
        let file = "../../../../Documentation/uldma/initiation-barriers.rst";
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            text == document(),
            "again: cargo run -p uldma-interleave -- barriers > {}",
            path.display()
        );
    }
}
