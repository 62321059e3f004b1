// SPDX-License-Identifier: MIT OR Apache-2.0

//! What may become of the device at any time: it stops, goes on, is reset.

use crate::device::{Health, Reset};
use crate::memory::{Location, Order};
use crate::mutation::Mutation;
use crate::state::{Harm, State};
use crate::step::{Name, Next, Steps};

/// Adds the faults of a device that is `sick`, and the steps of its `reset`.
pub fn steps(
    state: &State,
    mutation: Option<Mutation>,
    (sick, reset): (bool, bool),
    next: &mut Vec<Next>,
) {
    // What is below the model's lock can be made by any thread of the model.
    let thread = 0;
    let device = &state.device;
    let mut steps = Steps::new(state, Name::Device, thread, next);
    if sick && !device.silent {
        match device.health {
            Health::Well => steps.may("stops", |state| state.device.health = Health::Stopped),
            Health::Stopped => {
                steps.may("goes on", |state| state.device.health = Health::Resumed);
            }
            Health::Resumed => {}
        }
    }
    if !reset || device.is_stopped() {
        return;
    }
    let forget_first = mutation == Some(Mutation::ForgetFirst);
    let store = |state: &mut State| {
        let view = state.device.lock;
        state.memory.join(thread, view);
        let oldest = state.device.begun + 1;
        state.touch(thread, Location::Oldest, oldest, Order::Release);
    };
    let forget = |state: &mut State| state.device.forgotten = true;
    let done = |state: &mut State| {
        state.device.reset = Reset::Done;
        let oldest = state.memory.latest(Location::Oldest);
        let two = mutation != Some(Mutation::OneWord);
        let wrong = two && !state.device.silent && oldest <= state.memory.latest(Location::Begun);
        wrong.then_some(Harm::Numbers)
    };
    match device.reset {
        Reset::None if !device.is_busy() => steps.may("is reset: ends all brackets", |state| {
            state.end_all();
            state.device.reset = Reset::Ended;
        }),
        Reset::Ended => steps.make("is reset: first half", |state| {
            if forget_first {
                forget(state);
            } else {
                store(state);
            }
            state.device.reset = Reset::Half;
            None
        }),
        Reset::Half => steps.make("is reset: second half", |state| {
            if forget_first {
                store(state);
            } else {
                forget(state);
            }
            done(state)
        }),
        Reset::Done if device.forgotten && mutation == Some(Mutation::NumbersAnew) => {
            steps.may("is enabled: stores begun and oldest", |state| {
                state.device.forgotten = false;
                state.touch(thread, Location::Begun, 0, Order::Release);
                state.touch(thread, Location::Oldest, 1, Order::Release);
            });
        }
        Reset::None | Reset::Done => {}
    }
}
