// SPDX-License-Identifier: MIT OR Apache-2.0

//! The mm changes a mapping: invalidation begins, the notifier runs (N0 to N7), the mapping changes.

use crate::actor::{At, Retraction, Stage};
use crate::driver::Run;
use crate::memory::{Location, Order};
use crate::mm::Event;
use crate::mutation::Mutation;
use crate::retraction;
use crate::state::{EntryState, Harm, State};
use crate::step::Steps;

/// Adds the steps of a notifier that may block, or may not.
pub fn steps(steps: &mut Steps<'_>, (run, actor): (&Run, usize), event: Event, blockable: bool) {
    let thread = Run::thread(actor);
    let state = steps.from();
    let own = &state.actors[actor];
    match own.at {
        At::Start => steps.make("begins an invalidation", |state| {
            let sequence = state.mm.begin();
            state.actors[actor].sequence = sequence;
            state.actors[actor].at = At::Sequence;
            None
        }),
        At::Sequence => steps.make("stores the sequence", |state| {
            let sequence = state.actors[actor].sequence;
            state.store(thread, Location::Sequence, sequence, Order::Relaxed);
            state.actors[actor].at = At::Lock;
            None
        }),
        At::Lock if state.is_free() => steps.make("takes the lock", |state| {
            state.lock(thread);
            if state.entry.state == EntryState::Empty {
                return give_back(state, actor);
            }
            state.actors[actor].retraction = Retraction::new(run.mutation);
            state.actors[actor].at = At::Retract;
            None
        }),
        At::Lock if !blockable => steps.make("does not get the lock", |state| {
            state.actors[actor].at = At::Refused;
            None
        }),
        At::Retract => retract(steps, (run, actor), blockable),
        At::Change => steps.make("changes the mapping", |state| {
            state.mm.change(event);
            state.actors[actor].end();
            None
        }),
        At::Refused => steps.make("leaves the mapping", |state| {
            state.mm.end();
            state.actors[actor].end();
            None
        }),
        _ => {}
    }
}

fn retract(steps: &mut Steps<'_>, (run, actor): (&Run, usize), blockable: bool) {
    let thread = Run::thread(actor);
    let waits = steps.from().actors[actor].retraction.stage == Stage::Wait;
    let done = |state: &mut State| match state.actors[actor].retraction.stage {
        Stage::Fenced => give_back(state, actor),
        _ => None,
    };
    retraction::steps(steps, (run, actor), !blockable, done);
    if blockable || !waits {
        return;
    }
    if run.has(Mutation::FalseEmpties) {
        let dirty = (Location::Dirty, Order::Relaxed);
        steps.load(
            "returns false, and empties the entry",
            dirty,
            |state, dirty| {
                let harm = state.empty(thread, dirty == 1);
                state.actors[actor].at = At::Refused;
                harm.or(state.unlock(thread))
            },
        );
    } else {
        steps.make("returns false", |state| {
            state.actors[actor].at = At::Refused;
            state.unlock(thread)
        });
    }
}

/// Releases the lock and returns true.
fn give_back(state: &mut State, actor: usize) -> Option<Harm> {
    state.mm.notified();
    state.actors[actor].retraction = Retraction::default();
    state.actors[actor].at = At::Change;
    state.unlock(Run::thread(actor))
}
