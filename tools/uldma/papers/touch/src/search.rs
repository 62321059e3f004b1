// SPDX-License-Identifier: MIT OR Apache-2.0

//! The search: all states of a mix, nearest first, until there is harm.

use std::collections::{HashSet, VecDeque};

use crate::actor::At;
use crate::driver::Run;
use crate::mix::Mix;
use crate::mutation::Mutation;
use crate::state::{Harm, State, ACTORS, BRACKETS};
use crate::step::{Move, Name, Next};
use crate::{bracket, fault};

/// Result of a search.
#[derive(Clone, Debug, Default)]
pub struct Findings {
    /// The harm that takes the fewest steps, and these.
    pub harm: Option<(Harm, Vec<Move>)>,
    /// Different states.
    pub states: usize,
    /// States in which all actors have ended.
    pub ends: usize,
}

/// Tries every order of all steps of a mix, up to the first harm.
pub fn search(mix: &Mix, mutation: Option<Mutation>) -> Findings {
    let (run, mut first) = mix.run(mutation);
    first.forget();
    let mut seen = HashSet::from([first.clone()]);
    // For each state that was found: the one before it, and the step between them.
    let mut found: Vec<Option<(usize, Move)>> = vec![None];
    let mut open = VecDeque::from([(0, first)]);
    let mut findings = Findings::default();
    let mut next = Vec::new();
    while let Some((at, state)) = open.pop_front() {
        next.clear();
        steps(&run, &state, &mut next);
        if state.actors.iter().all(|actor| actor.at == At::Done) {
            findings.ends += 1;
        } else if is_stuck(&state, &next) {
            findings.harm = Some((Harm::Stuck, way(&found, at, None)));
            break;
        }
        let harmful = next.iter().find_map(|next| Some((next.harm?, next.made)));
        if let Some((harm, made)) = harmful {
            findings.harm = Some((harm, way(&found, at, Some(made))));
            break;
        }
        for Next {
            made, mut state, ..
        } in next.drain(..)
        {
            state.forget();
            if !seen.contains(&state) {
                seen.insert(state.clone());
                open.push_back((found.len(), state));
                found.push(Some((at, made)));
            }
        }
    }
    findings.states = found.len();
    findings
}

/// Adds the steps of all participants.
fn steps(run: &Run, state: &State, next: &mut Vec<Next>) {
    for bracket in 0..BRACKETS {
        bracket::steps(state, &run.program, bracket, next);
    }
    fault::steps(state, run.mutation, (run.sick, run.reset), next);
    for actor in 0..ACTORS {
        run.steps(state, actor, next);
    }
}

/// Returns true if an actor is under way, and nothing goes on by itself: not what an actor begins, nor
/// what is a decision, a fault, or a load of an old store.
fn is_stuck(state: &State, next: &[Next]) -> bool {
    let begins = |made: &Move| match made.name {
        Name::Actor(actor, _) => state.actors[actor].at == At::Start,
        _ => false,
    };
    let mut actors = state.actors.iter();
    let waits = actors.any(|actor| !matches!(actor.at, At::Start | At::Done));
    waits
        && next
            .iter()
            .all(|next| next.made.optional || begins(&next.made))
}

/// Returns the steps that lead to a state, and then to `last`.
fn way(found: &[Option<(usize, Move)>], mut at: usize, last: Option<Move>) -> Vec<Move> {
    let mut way = Vec::from_iter(last);
    while let Some(Some((before, made))) = found.get(at) {
        way.push(*made);
        at = *before;
    }
    way.reverse();
    way
}
