// SPDX-License-Identifier: MIT OR Apache-2.0

//! The search finds what each mutation of the protocol does.

use uldma_touch::mix::Mix;
use uldma_touch::mutation::Mutation;
use uldma_touch::search::search;

#[test]
fn each_mutation_does_harm() {
    for (mutation, name, expected) in Mutation::ALL {
        let mix = Mix::named(name).unwrap();
        let found = search(mix, Some(mutation)).harm;
        let Some((harm, way)) = found else {
            panic!("{mutation:?} does no harm in {name}");
        };
        println!("{mutation:?}, {name}: {harm:?} in {} steps", way.len());
        assert_eq!(harm, expected, "{mutation:?}, {name}");
    }
}

/// Between its fence and the lock that follows, an eviction does not know that the entry was filled,
/// and retracted by a notifier that could not wait: both states are called Retracted.
#[test]
fn an_eviction_needs_to_know_its_own_retraction() {
    let mix = Mix::named("eviction and reaper").unwrap();
    let (_, way) = search(mix, Some(Mutation::EvictsAnew)).harm.unwrap();
    let way: Vec<String> = way.iter().map(ToString::to_string).collect();
    let at = |text: &str| way.iter().position(|made| made.starts_with(text));
    assert!(at("eviction (1) sees that brackets have ended") < at("fill (2) stores the word"));
    assert!(at("fill (2) stores the word") < at("reaper (3) returns false"));
    assert!(at("reaper (3) returns false") < at("eviction (1) empties"));
    assert!(way
        .last()
        .is_some_and(|made| made.ends_with("accesses the frame")));
}
