// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocol does no harm in any mix, and every actor comes to its end.

use uldma_touch::mix::Mix;
use uldma_touch::search::search;

#[test]
fn no_order_of_the_protocol_does_harm() {
    for mix in &Mix::ALL {
        let found = search(mix, None);
        println!("{}: {} states", mix.name, found.states);
        if let Some((harm, way)) = found.harm {
            let way: Vec<String> = way.iter().map(ToString::to_string).collect();
            panic!("{}: {harm:?} by {way:#?}", mix.name);
        }
        assert!(found.ends > 0, "{}", mix.name);
    }
}
