// SPDX-License-Identifier: MIT OR Apache-2.0

//! Eviction (CLOCK) takes a valid entry from the device to make room, without a wait below the lock.

use crate::actor::{At, Retraction, Stage};
use crate::driver::Run;
use crate::mutation::Mutation;
use crate::retraction;
use crate::state::{EntryState, State};
use crate::step::Steps;

/// Adds the steps of an eviction.
///
/// The entry is its victim only as long as it is in the retraction that the eviction has made: while
/// no lock is taken, a notifier may finish it, a fill use it, and another notifier retract it again.
pub fn steps(steps: &mut Steps<'_>, (run, actor): (&Run, usize)) {
    let state = steps.from();
    let own = &state.actors[actor];
    if own.at == At::Start {
        if state.is_free() && state.entry.state == EntryState::Valid {
            steps.may("chooses the entry", |state| {
                state.actors[actor].retraction = Retraction::new(run.mutation);
                state.actors[actor].at = At::Retract;
            });
        }
        return;
    }
    let thread = Run::thread(actor);
    let locks = matches!(own.retraction.stage, Stage::Retract | Stage::Finish);
    if own.at != At::Retract || (locks && !state.is_free()) {
        return;
    }
    let victim = match own.retraction.stage {
        Stage::Retract => state.entry.state == EntryState::Valid,
        Stage::Finish if run.has(Mutation::EvictsAnew) => {
            state.entry.state == EntryState::Retracted
        }
        Stage::Finish => state.entry.evicted,
        _ => true,
    };
    if !victim {
        steps.make("finds that the entry has changed", |state| {
            state.actors[actor].end();
            None
        });
        return;
    }
    let stage = own.retraction.stage;
    let then = |state: &mut State| match stage {
        Stage::Retract => {
            state.entry.evicted = true;
            state.unlock(thread)
        }
        Stage::Finish => {
            state.actors[actor].end();
            state.unlock(thread)
        }
        _ => None,
    };
    if locks {
        steps.locked(|steps| retraction::steps(steps, (run, actor), false, then));
    } else {
        retraction::steps(steps, (run, actor), false, then);
    }
}
