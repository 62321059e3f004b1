// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-touch`: prints the states and harms of each mix, and for each mutation its shortest way to
//! harm.

use std::time::Instant;

use uldma_touch::mix::Mix;
use uldma_touch::mutation::Mutation;
use uldma_touch::search::search;

fn main() {
    for mix in &Mix::ALL {
        let began = Instant::now();
        let found = search(mix, None);
        let seconds = began.elapsed().as_secs_f32();
        let harm = found.harm.as_ref().map(|(harm, _)| harm);
        println!(
            "{}: {} states, harm: {harm:?} ({seconds:.1} s)",
            mix.name, found.states
        );
        for made in found.harm.iter().flat_map(|(_, way)| way) {
            println!("    {made}");
        }
    }
    for (mutation, name, _) in Mutation::ALL {
        let found = Mix::named(name).and_then(|mix| search(mix, Some(mutation)).harm);
        match found {
            Some((harm, way)) => {
                println!("{mutation:?}, {name}: {harm:?}");
                way.iter().for_each(|made| println!("    {made}"));
            }
            None => println!("{mutation:?}, {name}: no harm"),
        }
    }
}
