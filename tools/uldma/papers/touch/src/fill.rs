// SPDX-License-Identifier: MIT OR Apache-2.0

//! A fill looks up what the address maps, and publishes an entry with it (F3 to F7).

use crate::actor::{At, Retraction, Stage};
use crate::driver::Run;
use crate::memory::{Location, Order};
use crate::mm::Page;
use crate::mutation::Mutation;
use crate::retraction;
use crate::state::{EntryState, Harm, State};
use crate::step::Steps;

/// Adds the steps of a fill.
///
/// A fill that finds another sequence looks the mapping up again. That is what a fill does which begins
/// then, so this one ends.
pub fn steps(steps: &mut Steps<'_>, (run, actor): (&Run, usize), write: bool) {
    let thread = Run::thread(actor);
    let state = steps.from();
    let own = &state.actors[actor];
    let sequence = (Location::Sequence, Order::Relaxed);
    match own.at {
        At::Start => steps.load("loads the sequence", sequence, |state, value| {
            let own = &mut state.actors[actor];
            own.sequence = value;
            let waits = value % 2 == 1 && value == state.mm.sequence;
            own.at = if waits {
                At::Invalidating
            } else {
                At::Snapshot
            };
            None
        }),
        At::Invalidating if state.mm.sequence == own.sequence => {}
        At::Invalidating => steps.make("sees the end of the invalidation", |state| {
            state.actors[actor].at = At::Snapshot;
            None
        }),
        At::Snapshot => steps.make("looks the mapping up", |state| {
            state.actors[actor].found = Some(state.mm.fault(write));
            state.actors[actor].at = match run.mutation {
                Some(Mutation::ReadRetryOutside) => At::Sequence,
                _ => At::Lock,
            };
            None
        }),
        At::Sequence => steps.load("loads the sequence again", sequence, |state, value| {
            if value == state.actors[actor].sequence {
                state.actors[actor].at = At::Lock;
            } else {
                state.actors[actor].end();
            }
            None
        }),
        At::Lock if state.is_free() => {
            let checks = !run.has(Mutation::ReadRetryOutside) && !run.has(Mutation::NoReadRetry);
            let text = "takes the lock, and loads the sequence";
            steps.locked(|steps| {
                steps.load(text, sequence, |state, value| {
                    check(state, (run, actor), checks.then_some(value))
                });
            });
        }
        At::Retract => retraction::steps(steps, (run, actor), false, |state| {
            if state.actors[actor].retraction.stage == Stage::Fenced {
                publish(state, run, actor);
            }
            None
        }),
        At::Rest => steps.make("stores the rest of the entry", |state| {
            let harm = own.found.and_then(|page| rest(state, thread, page));
            if run.has(Mutation::WordFirst) {
                return harm.or(done(state, actor));
            }
            state.actors[actor].at = At::Word;
            harm
        }),
        At::Word => steps.make("stores the word", |state| {
            let word = own.found.map_or(0, Page::word);
            state.store(thread, Location::Word, word, Order::Release);
            if run.has(Mutation::WordFirst) {
                state.actors[actor].at = At::Rest;
                return None;
            }
            done(state, actor)
        }),
        _ => {}
    }
}

/// Releases the lock and answers.
fn done(state: &mut State, actor: usize) -> Option<Harm> {
    state.actors[actor].end();
    state.unlock(Run::thread(actor))
}

/// Decides what to do with the entry, by its state and the `sequence` that was loaded.
fn check(state: &mut State, (run, actor): (&Run, usize), sequence: Option<u8>) -> Option<Harm> {
    let own = &state.actors[actor];
    let found = own.found;
    // A fill that could miss `off` does.
    let thread = Run::thread(actor);
    if state.memory.sees_latest(thread, Location::Off) && state.memory.latest(Location::Off) == 1 {
        return done(state, actor);
    }
    if sequence.is_some_and(|sequence| sequence != own.sequence) {
        return done(state, actor);
    }
    let retracts = match state.entry.state {
        EntryState::Empty => false,
        EntryState::Retracted => !run.has(Mutation::PublishRetracted),
        // It may be written now.
        EntryState::Valid if state.entry.page != found => true,
        EntryState::Valid => return done(state, actor),
    };
    if retracts {
        state.actors[actor].retraction = Retraction::new(run.mutation);
        state.actors[actor].at = At::Retract;
    } else {
        publish(state, run, actor);
    }
    None
}

/// Goes on to the stores of the entry.
fn publish(state: &mut State, run: &Run, actor: usize) {
    let own = &mut state.actors[actor];
    own.retraction = Retraction::default();
    own.at = match run.mutation {
        Some(Mutation::WordFirst) => At::Word,
        _ => At::Rest,
    };
}

/// Maps the page for DMA, and stores all of the entry but the word.
fn rest(state: &mut State, thread: usize, page: Page) -> Option<Harm> {
    state.store(thread, Location::Space, 1, Order::Relaxed);
    state.store(thread, Location::Dirty, 0, Order::Relaxed);
    state.keep(page)
}
