// SPDX-License-Identifier: MIT OR Apache-2.0

//! A bracket of the device: it looks a page entry up and accesses the frame (D1 to D6).
//!
//! Brackets are threads. They have no order among each other but that of the model's lock, below
//! which they begin and end. Stores of a bracket may be seen in any order except where it releases, and
//! its access is under way for a while before it arrives: that is weaker than posted writes, which
//! arrive in order. All accesses of one bracket use what its one look-up has found, as those of a batch
//! do.
//!
//! The accessed byte is not here: it decides only which entries are evicted, and the actor that
//! evicts does so in any state.

use crate::memory::{Location, Order};
use crate::mm::Page;
use crate::mutation::Mutation;
use crate::state::{Harm, State, BRACKETS};
use crate::step::{Name, Next, Steps};

/// What the transfer of a bracket does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Accesses.
    pub accesses: usize,
    /// They write.
    pub write: bool,
}

/// A step of a bracket, by its name in the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    /// Part of D1: takes a number.
    Number,
    /// D1: takes a number, and stores `begun`.
    Begin,
    /// D2.
    Fence,
    /// D3: loads the entry. The check that the word did not change makes it one load.
    LookUp,
    /// D4: stores the dirty byte if it is 0.
    Mark,
    /// D5: sends an access to the bus.
    Issue,
    /// D5: the access arrives, whatever has become of the device.
    Arrive,
    /// Part of D6: gives the number back.
    Ended,
    /// D6: gives the number back, and stores `oldest`.
    End,
}

/// The steps of each bracket, which a mutation changes.
#[derive(Clone, Debug)]
pub struct Program {
    ops: [Vec<Op>; BRACKETS],
    writes: [bool; BRACKETS],
    mutation: Option<Mutation>,
    iommu: bool,
}

impl Program {
    /// Returns the program of these transfers.
    ///
    /// Only what waits for accesses under way can tell when one was sent, so without (`quiesces`) it is
    /// sent when it arrives.
    pub fn new(
        transfers: [Transfer; BRACKETS],
        [iommu, quiesces]: [bool; 2],
        mutation: Option<Mutation>,
    ) -> Self {
        use Op::{Arrive, Begin, End, Ended, Fence, Issue, LookUp, Mark, Number};
        let ops = |number: usize| {
            let access: &[Op] = if quiesces {
                &[Issue, Arrive]
            } else {
                &[Arrive]
            };
            let accesses = access.repeat(transfers[number].accesses);
            let [begin, end] = match mutation {
                Some(Mutation::NoDeviceFence) => [vec![Begin, LookUp, Mark], vec![End]],
                Some(Mutation::BegunUnlocked) => {
                    [vec![Number, Begin, Fence, LookUp, Mark], vec![End]]
                }
                Some(Mutation::OldestUnlocked) => {
                    [vec![Begin, Fence, LookUp, Mark], vec![Ended, End]]
                }
                Some(Mutation::LookUpFirst) => [vec![LookUp, Begin, Fence, Mark], vec![End]],
                Some(Mutation::OwnNodeOnly) if number == 1 => [vec![LookUp, Mark], vec![]],
                Some(Mutation::OldestFirst) => [vec![Begin, Fence, LookUp, Mark, End], vec![]],
                Some(Mutation::DirtyStoredLast) => [vec![Begin, Fence, LookUp], vec![End, Mark]],
                _ => [vec![Begin, Fence, LookUp, Mark], vec![End]],
            };
            let mut ops = [begin, accesses, end].concat();
            if mutation == Some(Mutation::EndsEarly) {
                ops.pop();
                let first = ops.iter().take_while(|op| **op != Arrive).count();
                ops.insert(first + 1, End);
            }
            ops.retain(|op| *op != Mark || transfers[number].write);
            ops
        };
        Self {
            ops: [ops(0), ops(1)],
            writes: transfers.map(|transfer| transfer.write),
            mutation,
            iommu,
        }
    }
}

impl State {
    /// Takes a number.
    fn take_number(&mut self, thread: usize) {
        self.section(thread);
        self.device.begun += 1;
        self.device.brackets[thread].number = Some(self.device.begun);
    }

    /// Stores `begun`, with the model's lock.
    fn begin(&mut self, thread: usize, program: &Program) {
        if program.mutation == Some(Mutation::BegunUnlocked) {
            let own = self.device.brackets[thread].number.unwrap_or(0);
            self.touch(thread, Location::Begun, own, Order::Relaxed);
            return;
        }
        self.take_number(thread);
        let value = match program.mutation {
            Some(Mutation::OneWord) => self.memory.latest(Location::Begun) + 1,
            _ => self.device.begun,
        };
        self.touch(thread, Location::Begun, value, Order::Relaxed);
        self.device.lock = self.memory.view(thread);
    }

    /// Ends the number of a bracket, and finds the oldest that is open.
    fn end_number(&mut self, thread: usize, program: &Program) {
        self.section(thread);
        let own = self.device.brackets[thread].number.take();
        let brackets = self.device.brackets.iter();
        let oldest = brackets.filter_map(|bracket| bracket.number).min();
        self.device.brackets[thread].oldest = match program.mutation {
            Some(Mutation::LastEnded) => {
                let before = self.memory.latest(Location::Oldest);
                own.map(|own| before.max(own + 1))
            }
            _ => Some(oldest.unwrap_or(self.device.begun + 1)),
        };
    }

    /// Stores `oldest`, with the model's lock.
    fn end(&mut self, thread: usize, program: &Program) {
        let unlocked = program.mutation == Some(Mutation::OldestUnlocked);
        if !unlocked {
            self.end_number(thread, program);
        }
        let oldest = self.device.brackets[thread].oldest.take();
        let (location, value) = match program.mutation {
            Some(Mutation::OneWord) => (Location::Begun, self.memory.latest(Location::Begun) + 1),
            _ => (Location::Oldest, oldest.unwrap_or(0)),
        };
        let order = match program.mutation {
            Some(Mutation::OldestRelaxed) => Order::Relaxed,
            _ => Order::Release,
        };
        self.touch(thread, location, value, order);
        if !unlocked {
            self.device.lock = self.memory.view(thread);
        }
    }

    /// Goes on to the next step of a bracket; without a page there is nothing to access.
    fn advance(&mut self, thread: usize, program: &Program, skip: bool) {
        let bracket = &mut self.device.brackets[thread];
        let ops = &program.ops[thread];
        bracket.made += 1;
        if skip {
            let rest = ops.iter().skip(usize::from(bracket.made));
            let skipped = rest.take_while(|op| matches!(op, Op::Mark | Op::Issue | Op::Arrive));
            bracket.made += u8::try_from(skipped.count()).unwrap_or(u8::MAX);
            // Nothing is left to mark.
            if bracket.number.is_none() && ops.get(usize::from(bracket.made)) == Some(&Op::Begin) {
                bracket.made = u8::MAX;
            }
        }
        let ended = ops.len() <= usize::from(bracket.made);
        if ended || (self.device.silent && !bracket.under_way) {
            self.close(thread);
        }
    }
}

/// Adds the steps of a bracket.
pub fn steps(state: &State, program: &Program, thread: usize, next: &mut Vec<Next>) {
    let bracket = &state.device.brackets[thread];
    let ops = &program.ops[thread];
    let Some(op) = ops
        .get(usize::from(bracket.made))
        .filter(|_| !bracket.ended)
    else {
        return;
    };
    if state.device.is_stopped() && *op != Op::Arrive {
        return;
    }
    let mut steps = Steps::new(state, Name::Bracket(thread), thread, next);
    let write = program.writes[thread];
    match op {
        Op::Number => steps.may("takes a number", |state| {
            state.take_number(thread);
            state.advance(thread, program, false);
        }),
        Op::Begin if bracket.made == 0 => steps.may("stores begun", |state| {
            state.begin(thread, program);
            state.advance(thread, program, false);
        }),
        Op::Begin => steps.make("stores begun", |state| {
            state.begin(thread, program);
            state.advance(thread, program, false);
            None
        }),
        Op::Fence => steps.make("makes a fence", |state| {
            state.memory.fence(thread);
            state.advance(thread, program, false);
            None
        }),
        Op::LookUp => look_up(&mut steps, thread, program, write),
        Op::Mark => mark(&mut steps, thread, program),
        Op::Issue => steps.make("sends an access", |state| {
            state.device.brackets[thread].under_way = true;
            state.advance(thread, program, false);
            None
        }),
        Op::Arrive => steps.make("accesses the frame", |state| {
            state.device.brackets[thread].under_way = false;
            let page = state.device.brackets[thread].found;
            let used = page.map(|page| Page { write, ..page });
            let harm = used.and_then(|page| state.access(thread, page, program.iommu));
            state.advance(thread, program, false);
            harm
        }),
        Op::Ended => steps.make("gives its number back", |state| {
            state.end_number(thread, program);
            state.advance(thread, program, false);
            None
        }),
        Op::End => steps.make("stores oldest", |state| {
            state.end(thread, program);
            state.advance(thread, program, false);
            None
        }),
    }
}

fn look_up(steps: &mut Steps<'_>, thread: usize, program: &Program, write: bool) {
    let order = match program.mutation {
        Some(Mutation::LookUpRelaxed) => Order::Relaxed,
        _ => Order::Acquire,
    };
    let usable = |word| Page::named_by(word).filter(|page| page.write || !write);
    steps.load(
        "looks the page up",
        (Location::Word, order),
        |state, word| {
            let page = usable(word);
            state.device.brackets[thread].found = page;
            let mut spaces = state.memory.choices(thread, Location::Space);
            let mut harm = None;
            if page.is_some() {
                // Any choice that is wrong is one too many.
                let torn = spaces.any(|choice| {
                    let mut memory = state.memory.clone();
                    memory.load(thread, Location::Space, choice, Order::Relaxed) == 0
                });
                harm = torn.then_some(Harm::Torn);
            }
            state.advance(thread, program, page.is_none());
            harm
        },
    );
}

fn mark(steps: &mut Steps<'_>, thread: usize, program: &Program) {
    let found = steps.from().device.brackets[thread].found;
    if found.is_none() {
        steps.make("has nothing to mark", |state| {
            state.advance(thread, program, false);
            None
        });
        return;
    }
    if program.mutation == Some(Mutation::WordModified) {
        steps.make("stores the word again, and the dirty byte", |state| {
            let word = state.device.brackets[thread].found.map_or(0, Page::word);
            state.store(thread, Location::Word, word, Order::Relaxed);
            state.store(thread, Location::Dirty, 1, Order::Relaxed);
            state.advance(thread, program, false);
            None
        });
        return;
    }
    let at = (Location::Dirty, Order::Relaxed);
    steps.load("marks the page dirty", at, |state, dirty| {
        if dirty == 0 {
            state.store(thread, Location::Dirty, 1, Order::Relaxed);
        }
        state.advance(thread, program, false);
        None
    });
}
