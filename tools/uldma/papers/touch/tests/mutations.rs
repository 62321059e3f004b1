// SPDX-License-Identifier: MIT OR Apache-2.0

//! The search finds what each mutation of the protocol does.

use uldma_touch::mix::Mix;
use uldma_touch::mutation::Mutation;
use uldma_touch::search::search;
use uldma_touch::state::Harm;

#[test]
fn both_fences_are_needed() {
    let mix = Mix::named("batch").unwrap();
    for mutation in [Mutation::NoDeviceFence, Mutation::NoDriverFence] {
        let harm = search(mix, Some(mutation)).harm.map(|(harm, _)| harm);
        assert_eq!(harm, Some(Harm::Stray), "{mutation:?}");
    }
}
