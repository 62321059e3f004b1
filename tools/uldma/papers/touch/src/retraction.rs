// SPDX-License-Identifier: MIT OR Apache-2.0

//! Taking the entry from the device: retraction, fence, and what only the fence permits.
//!
//! Notifiers, fills and eviction share these steps, unbinding the last ones. They are N2 to N6 of the
//! design. The invalidation by queue is not among them: it ends by the same condition as the words
//! do, and so adds no way to end.

use crate::actor::{Retraction, Stage};
use crate::driver::Run;
use crate::memory::{Location, Order};
use crate::mutation::Mutation;
use crate::state::{Harm, State};
use crate::step::Steps;

impl Retraction {
    /// Returns the first step.
    pub fn new(mutation: Option<Mutation>) -> Self {
        Self {
            stage: match mutation {
                Some(Mutation::BegunFirst) => Stage::Begun,
                _ => Stage::Retract,
            },
            ..Self::default()
        }
    }

    /// Returns the steps of a device that is switched off without a retraction.
    pub fn quiesce(mutation: Option<Mutation>) -> Self {
        Self {
            stage: quiesce(mutation),
            ..Self::default()
        }
    }
}

/// Returns the first step of quiescing.
fn quiesce(mutation: Option<Mutation>) -> Stage {
    match mutation {
        Some(Mutation::OffFirst) => Stage::Off,
        _ => Stage::Clear,
    }
}

/// Returns the step that follows, where there is no choice.
fn after(stage: Stage, mutation: Option<Mutation>) -> Stage {
    match (stage, mutation) {
        (Stage::Retract, Some(Mutation::NoDriverFence)) => Stage::Begun,
        (Stage::Retract, _) => Stage::Barrier,
        (Stage::Barrier, Some(Mutation::BegunFirst)) => Stage::Wait,
        (Stage::Barrier, _) => Stage::Begun,
        (Stage::Begun, Some(Mutation::BegunFirst)) => Stage::Retract,
        (Stage::Begun, _) => Stage::Wait,
        (Stage::Clear, Some(Mutation::NoDrain)) => Stage::Off,
        (Stage::Clear, _) => Stage::Drain,
        (Stage::Drain, Some(Mutation::OffFirst)) => Stage::Finish,
        (Stage::Drain, _) => Stage::Off,
        (Stage::Off, Some(Mutation::OffFirst)) => Stage::Clear,
        (Stage::Wait | Stage::Off, _) => Stage::Finish,
        (Stage::Finish | Stage::Fenced, _) => Stage::Fenced,
    }
}

impl State {
    fn retraction(&mut self, actor: usize) -> &mut Retraction {
        &mut self.actors[actor].retraction
    }

    fn go_on(&mut self, actor: usize, mutation: Option<Mutation>) {
        let retraction = self.retraction(actor);
        retraction.stage = after(retraction.stage, mutation);
    }
}

/// Adds the next steps of the retraction that an actor makes; the actor has the lock of the area where
/// the stage needs it. A `patient` one never switches the device off. `then` continues after each.
pub fn steps(
    steps: &mut Steps<'_>,
    (run, actor): (&Run, usize),
    patient: bool,
    then: impl Fn(&mut State) -> Option<Harm>,
) {
    let mutation = run.mutation;
    let thread = Run::thread(actor);
    let from = steps.from();
    let own = &from.actors[actor].retraction;
    let go_on = |state: &mut State| {
        state.go_on(actor, mutation);
        then(state)
    };
    let dirty = (Location::Dirty, Order::Relaxed);
    match own.stage {
        Stage::Retract if mutation == Some(Mutation::DirtyReadFirst) => {
            steps.load(
                "retracts, and loads the dirty byte",
                dirty,
                |state, value| {
                    state.retract(thread);
                    state.retraction(actor).dirty = Some(value);
                    go_on(state)
                },
            );
        }
        Stage::Retract => steps.make("retracts the entry", |state| {
            state.retract(thread);
            if mutation == Some(Mutation::UnmapFirst) {
                state.unmap();
            }
            go_on(state)
        }),
        Stage::Barrier => steps.make("makes a fence", |state| {
            state.memory.fence(thread);
            go_on(state)
        }),
        Stage::Begun => {
            let begun = (Location::Begun, Order::Relaxed);
            steps.load("loads begun", begun, |state, value| {
                state.retraction(actor).begun = value;
                go_on(state)
            });
        }
        Stage::Wait => wait(steps, own.begun, mutation, go_on),
        Stage::Clear => steps.make("clears bus mastering", |state| {
            state.silence();
            go_on(state)
        }),
        Stage::Drain if from.device.is_busy() => {}
        Stage::Drain => steps.make("reads that no access is under way", |state| {
            state.drain(thread);
            go_on(state)
        }),
        Stage::Off => steps.make("stores off", |state| {
            let order = match mutation {
                Some(Mutation::OffRelaxed) => Order::Relaxed,
                _ => Order::Release,
            };
            state.store(thread, Location::Off, 1, order);
            go_on(state)
        }),
        Stage::Finish => {
            let early = own.dirty;
            steps.load("empties the entry", dirty, |state, value| {
                let harm = state.empty(thread, early.unwrap_or(value) == 1);
                harm.or(go_on(state))
            });
        }
        Stage::Fenced => {}
    }
    // A slow device is waited for; what has stopped is given up after a while.
    let gives_up = !patient && mutation != Some(Mutation::NoPatience);
    if gives_up && own.stage == Stage::Wait && from.device.is_stopped() {
        steps.make("has no patience left", |state| {
            state.retraction(actor).stage = match mutation {
                Some(Mutation::ReturnsOnSick) => Stage::Finish,
                _ => quiesce(mutation),
            };
            None
        });
    }
}

/// Adds the ends of the wait for brackets that were begun.
fn wait(
    steps: &mut Steps<'_>,
    begun: u8,
    mutation: Option<Mutation>,
    go_on: impl Fn(&mut State) -> Option<Harm>,
) {
    let go_on = |state: &mut State, _| go_on(state);
    let order = match mutation {
        Some(Mutation::WaitRelaxed) => Order::Relaxed,
        _ => Order::Acquire,
    };
    let location = match mutation {
        Some(Mutation::OneWord) => Location::Begun,
        _ => Location::Oldest,
    };
    let ended = |value: u8| match mutation {
        Some(Mutation::OneWord) => begun % 2 == 0 || value != begun,
        Some(Mutation::TooOld) => value >= begun,
        _ => value > begun,
    };
    steps.poll(
        "sees that brackets have ended",
        (location, order),
        ended,
        go_on,
    );
    let off = (Location::Off, Order::Acquire);
    steps.poll("sees off", off, |value| value == 1, go_on);
}
