// SPDX-License-Identifier: MIT OR Apache-2.0

//! Unbinding: the device is quiesced, `off` is stored, and then the area is torn down.

use crate::actor::{At, Retraction, Stage};
use crate::driver::Run;
use crate::retraction;
use crate::state::{EntryState, State};
use crate::step::Steps;

/// Adds the steps of unbinding. Those that switch the device off are the ones that a notifier without
/// patience makes, so both may make them at the same time, and each of them does all.
pub fn steps(steps: &mut Steps<'_>, (run, actor): (&Run, usize)) {
    let state = steps.from();
    let own = &state.actors[actor];
    let thread = Run::thread(actor);
    let then = |_: &mut State| None;
    match (own.at, own.retraction.stage) {
        (At::Start, _) => steps.make("begins", |state| {
            state.actors[actor].retraction = Retraction::quiesce(run.mutation);
            state.actors[actor].at = At::Retract;
            None
        }),
        (At::Retract, Stage::Finish) if !state.is_free() => {}
        (At::Retract, Stage::Finish) if state.entry.state == EntryState::Empty => {
            steps.make("finds the entry empty", |state| {
                state.actors[actor].end();
                None
            });
        }
        (At::Retract, Stage::Finish) => steps.locked(|steps| {
            retraction::steps(steps, (run, actor), true, |state| {
                state.actors[actor].end();
                state.unlock(thread)
            });
        }),
        (At::Retract, _) => retraction::steps(steps, (run, actor), true, then),
        _ => {}
    }
}
