// SPDX-License-Identifier: MIT OR Apache-2.0

//! Repeated passing of arguments ("user-level DMA" paper, section 3.3): a transfer starts only
//! after an unbroken sequence of accesses that repeats the same addresses. The machine of five
//! accesses is the paper's prototype (section 4.1, figure 8); the paper shows attacks on those of
//! three and four.
//!
//! One machine serves all processes and holds its state until the next access, however long that
//! takes. An access that does not fit resets the machine, and does not count as the first one of a
//! new sequence. The paper leaves two stores of different size words open; here the second one does
//! not fit.

use super::{Arguments, Machine, Reply, Request, ShadowRef};
use crate::abi::{Status, REPEATED_FAIL, REPEATED_OK1, REPEATED_OK2, REPEATED_OK3};
use crate::shadow::SizeWord;

/// Bits of two addresses that must be equal for the addresses to count as equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Compare {
    /// All bits.
    #[default]
    Full,
    /// Only bits 22 to 11, as in the paper's prototype: pages that are 8 MiB apart look equal.
    Prototype,
}

impl Compare {
    fn equal(self, one: ShadowRef, other: ShadowRef) -> bool {
        let mask = match self {
            Compare::Full => u64::MAX,
            Compare::Prototype => 0x7f_f800,
        };
        (one.address ^ other.address) & mask == 0
    }
}

/// One of the two registers that hold addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// DEST.
    Destination,
    /// SOURCE.
    Source,
}

/// A signal of the data path (section 4.1, figure 9), in order of occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// SEL and RW: the access begins, and is a load or a store.
    Selected {
        /// RW.
        load: bool,
    },
    /// DST_LD or SRC_LD: the address is kept.
    Latched(Operand),
    /// DS_SEL and EQUAL: the address is compared with the held one.
    Compared {
        /// DS_SEL.
        with: Operand,
        /// EQUAL.
        equal: bool,
    },
    /// STAT_SEL: the status is driven, which only loads see.
    Status(u64),
    /// RDY: the access ends.
    Ready,
}

/// One access of the sequence that starts a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Step {
    load: bool,
    operand: Operand,
    /// Value that a fitting load returns.
    code: u64,
}

const fn store_destination() -> Step {
    Step {
        load: false,
        operand: Operand::Destination,
        code: REPEATED_FAIL,
    }
}

const fn load_source(code: u64) -> Step {
    Step {
        load: true,
        operand: Operand::Source,
        code,
    }
}

const THREE: &[Step] = &[
    load_source(REPEATED_OK1),
    store_destination(),
    load_source(REPEATED_OK3),
];

const FOUR: &[Step] = &[
    store_destination(),
    load_source(REPEATED_OK1),
    store_destination(),
    load_source(REPEATED_OK3),
];

const FIVE: &[Step] = &[
    store_destination(),
    load_source(REPEATED_OK1),
    store_destination(),
    load_source(REPEATED_OK2),
    Step {
        load: true,
        operand: Operand::Destination,
        code: REPEATED_OK3,
    },
];

/// Arguments passed so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Passed {
    destination: Option<ShadowRef>,
    source: Option<ShadowRef>,
    word: Option<u64>,
    /// The contexts through whose pages the fitting accesses were made, in order.
    contexts: Vec<u32>,
}

/// Repeated passing by three, four or five accesses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Repeated {
    steps: &'static [Step],
    compare: Compare,
    rearming: bool,
    passed: Passed,
}

impl Repeated {
    fn new(steps: &'static [Step], compare: Compare) -> Self {
        Self {
            steps,
            compare,
            rearming: false,
            passed: Passed::default(),
        }
    }

    /// LD source, ST destination, LD source.
    pub fn three(compare: Compare) -> Self {
        Self::new(THREE, compare)
    }

    /// ST destination, LD source, and both again.
    pub fn four(compare: Compare) -> Self {
        Self::new(FOUR, compare)
    }

    /// ST destination, LD source, both again, and LD destination.
    pub fn five(compare: Compare) -> Self {
        Self::new(FIVE, compare)
    }

    /// Differs from the paper's machine: a store that does not fit counts as the first one of a new
    /// sequence. The error rates under time slicing distinguish the two.
    pub fn rearming(mut self) -> Self {
        self.rearming = true;
        self
    }

    /// Accesses passed so far: the state, S0 to S4.
    pub fn state(&self) -> usize {
        self.passed.contexts.len()
    }

    /// Handles a store, and records the signals of the data path.
    pub fn observed_store(
        &mut self,
        context: u32,
        at: ShadowRef,
        word: Option<u64>,
        observe: &mut dyn FnMut(Signal),
    ) -> Reply {
        observe(Signal::Selected { load: false });
        let fits = word.is_some() && self.step(context, at, word, false, observe).is_some();
        if !fits {
            self.passed = Passed::default();
            if self.rearming && word.is_some() {
                // Fits unless the sequence begins with a load.
                let _ = self.step(context, at, word, false, observe);
            }
        }
        observe(Signal::Ready);
        match word {
            Some(_) => Reply::Nothing,
            None => Reply::Refused(Status::BadAccess),
        }
    }

    /// Handles a load, and records the signals of the data path.
    pub fn observed_load(
        &mut self,
        context: u32,
        at: ShadowRef,
        well_formed: bool,
        observe: &mut dyn FnMut(Signal),
    ) -> Reply {
        observe(Signal::Selected { load: true });
        let step = if well_formed {
            self.step(context, at, None, true, observe)
        } else {
            None
        };
        let code = step.map_or(REPEATED_FAIL, |step| step.code);
        observe(Signal::Status(code));
        observe(Signal::Ready);
        if step.is_none() {
            self.passed = Passed::default();
        }
        if !well_formed {
            return Reply::Refused(Status::BadAccess);
        }
        if self.state() < self.steps.len() {
            return Reply::Code(code);
        }
        let passed = std::mem::take(&mut self.passed);
        match (passed.destination, passed.source, passed.word) {
            (Some(destination), Some(source), Some(word)) => {
                Reply::Start(Request::Copy(Arguments {
                    source,
                    destination,
                    word: SizeWord::unpack(word),
                }))
            }
            _ => Reply::Code(REPEATED_FAIL),
        }
    }

    /// Accepts an access if it is the next one of the sequence.
    fn step(
        &mut self,
        context: u32,
        at: ShadowRef,
        word: Option<u64>,
        load: bool,
        observe: &mut dyn FnMut(Signal),
    ) -> Option<Step> {
        let step = *self.steps.get(self.state())?;
        if step.load != load {
            return None;
        }
        let register = match step.operand {
            Operand::Destination => &mut self.passed.destination,
            Operand::Source => &mut self.passed.source,
        };
        match register {
            None => {
                *register = Some(at);
                observe(Signal::Latched(step.operand));
            }
            Some(kept) => {
                let equal = self.compare.equal(*kept, at);
                observe(Signal::Compared {
                    with: step.operand,
                    equal,
                });
                if !equal {
                    return None;
                }
            }
        }
        if !load {
            if self.passed.word.is_some_and(|kept| Some(kept) != word) {
                return None;
            }
            self.passed.word = word;
        }
        self.passed.contexts.push(context);
        Some(step)
    }
}

impl Machine for Repeated {
    fn store(&mut self, context: u32, at: ShadowRef, word: Option<u64>) -> Reply {
        self.observed_store(context, at, word, &mut |_| ())
    }

    fn load(&mut self, context: u32, at: ShadowRef, well_formed: bool) -> Reply {
        self.observed_load(context, at, well_formed, &mut |_| ())
    }

    fn forget(&mut self, context: u32) {
        if self.passed.contexts.contains(&context) {
            self.passed = Passed::default();
        }
    }

    fn started(&self, ticket: u64) -> u64 {
        (ticket << crate::abi::REPEATED_TICKET_SHIFT) | REPEATED_OK3
    }
}

#[cfg(test)]
mod tests;
