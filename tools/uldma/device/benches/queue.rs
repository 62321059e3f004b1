// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures the descriptors per second of one queue of the model; the same thread fills the queue
//! and makes the model poll it. Prints JSON, in the form of `uldma-bench`.

// To panic is how a benchmark fails.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::sync::atomic::Ordering;
use std::time::Instant;

use common::rig::{Rig, OURS};
use common::Descriptor;
use serde_json::json;
use uldma_device::abi::{descriptor, Method, Status, STATUS_RECORDS};
use uldma_device::memory::{GuestMemory, Right};
use uldma_device::poll::Polled;
use vm_memory::{Bytes, VolatileSlice};

const ROUNDS: u64 = 5_000;
const REPEATS: usize = 11;

/// Descriptors per second, in a run of rounds that fill the whole queue. The program that fills it stores
/// all words of the descriptors that have to change: the tickets.
fn rate(rig: &mut Rig, ring: &VolatileSlice<'_>, first: u64) -> f64 {
    let memories: Vec<&GuestMemory> = rig.memories.iter().collect();
    let now = Instant::now();
    let (model, scratch) = (&mut rig.model, &mut rig.scratch);
    let began = Instant::now();
    for round in 0..ROUNDS {
        for number in 0..STATUS_RECORDS {
            let ticket = first + round * STATUS_RECORDS + number;
            let place = (ticket % STATUS_RECORDS * descriptor::SIZE + descriptor::TICKET) as usize;
            ring.store(ticket, place, Ordering::Release).unwrap();
        }
        assert_eq!(model.poll(now, &memories, scratch), Polled::Found);
    }
    (ROUNDS * STATUS_RECORDS) as f64 / began.elapsed().as_secs_f64()
}

/// The median of several runs of one kind of descriptor.
fn median(asked: &Descriptor) -> f64 {
    let mut rig = Rig::new();
    rig.regions(1 << 20);
    rig.set_method(0, OURS, Method::Queue);
    for place in 0..STATUS_RECORDS {
        // All fields but the ticket.
        rig.guests[0].submit(OURS, place + STATUS_RECORDS, asked);
        let word = rig.guests[0].descriptors(OURS) + place * descriptor::SIZE;
        rig.guests[0].put64(word, 0);
    }
    let memory = rig.guests[0].memory();
    let page = rig.guests[0].descriptors(OURS);
    let ring = memory.slice(page, 4096, Right::Write).unwrap();
    let mut first = 1;
    let mut rates: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let rate = rate(&mut rig, &ring, first);
            first += ROUNDS * STATUS_RECORDS;
            rate
        })
        .collect();
    assert_eq!(rig.guests[0].completed(OURS), (first - 1, 0));
    assert_eq!(rig.guests[0].record(OURS, first - 1).2, Status::Ok as u64);
    rates.sort_by(f64::total_cmp);
    rates[REPEATS / 2]
}

fn main() {
    let figures: Vec<_> = [
        ("model.queue.rate", Descriptor::NOP),
        (
            "model.queue.rate.copy-64",
            Descriptor::copy((1, 0), (2, 0), 64),
        ),
        ("model.queue.rate.fetch-add", Descriptor::add((1, 5), 1)),
    ]
    .into_iter()
    .map(|(name, asked)| {
        json!({
            "name": name,
            "value": median(&asked),
            "unit": "1/s",
            "floor": null,
            "rival": null,
            "ratio": null,
        })
    })
    .collect();
    println!("{}", serde_json::to_string_pretty(&figures).unwrap());
}
