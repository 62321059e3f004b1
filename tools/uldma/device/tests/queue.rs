// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of descriptors on the whole model.

mod common;

use std::time::{Duration, Instant};

use common::rig::{Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{pattern, Descriptor, FREE, PAGE};
use uldma_device::abi::{descriptor, Method, Status, STATUS_RECORDS};
use uldma_device::engine::Speed;
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, EventCauses, Invalidation, BAR_CONTEXT,
};
use uldma_device::poll::Polled;

/// The regions of [`Rig::regions`], and a queue of ours that has been set up.
fn rig_of(speed: Speed) -> Rig {
    let mut rig = Rig::cold(speed);
    rig.probe(0);
    rig.probe(1);
    rig.regions(1 << 20);
    rig.set_method(0, OURS, Method::Queue);
    rig.set(0, reg::EVENT, EventCauses::from_bits(u32::MAX));
    rig
}

fn rig() -> Rig {
    // Long enough that it does not pass while a test runs.
    rig_of(Speed {
        poll: Duration::from_secs(3600),
        ..Speed::default()
    })
}

/// Bus address of a byte of region 1, 2 or, at the peer, 3.
fn place(region: u32, position: u64) -> u64 {
    position
        + match region {
            1 => FREE + 0x123,
            2 => FREE + (4 << 20) + 0x456,
            _ => FREE + 0x789,
        }
}

/// Submits descriptors, from a ticket on, and executes them.
fn submit(rig: &mut Rig, first: u64, asked: &[Descriptor]) -> Vec<(u64, Status)> {
    for (ticket, descriptor) in (first..).zip(asked) {
        rig.guests[0].submit(OURS, ticket, descriptor);
    }
    while rig.poll() == Polled::Found || rig.step() {}
    (first..)
        .zip(asked)
        .map(|(ticket, _)| {
            let (found, bytes, status) = rig.guests[0].record(OURS, ticket);
            assert_eq!(found, ticket);
            (bytes, Status::ALL[status as usize])
        })
        .collect()
}

#[test]
fn copies_end_in_order() {
    let mut rig = rig();
    let data = pattern(1 << 20, 1);
    rig.guests[0].put(place(1, 0), &data);
    let length = 600_001;
    let asked = [
        Descriptor::copy((1, 5), (2, 7), 64),
        Descriptor::copy((1, 0), (4, 1), length),
        Descriptor::copy((2, 7), (2, 4096), 64).flags(descriptor::FENCE),
        Descriptor::NOP,
        Descriptor::copy((4, 1), (2, 8192), 100_000),
    ];
    assert_eq!(
        submit(&mut rig, 1, &asked),
        [
            (64, Status::Ok),
            (length, Status::Ok),
            (64, Status::Ok),
            (0, Status::Ok),
            (100_000, Status::Ok)
        ]
    );
    assert_eq!(rig.guests[0].completed(OURS), (5, 0));
    assert_eq!(rig.guests[0].get(place(2, 4096), 64), &data[5..69]);
    let far = rig.guests[1].get(place(3, 1), length as usize);
    assert_eq!(far, &data[..length as usize]);
    assert_eq!(rig.guests[0].get(place(2, 8192), 100_000), &data[..100_000]);
    assert_eq!(rig.get_ctx(0, OURS, ctx::TICKET), 5);
    assert_eq!(rig.get_ctx(0, OURS, ctx::BYTES), 64 + 64 + length + 100_000);
    let report = rig.model.report();
    let counters = &report.nodes[0].counters;
    assert_eq!(counters.bytes_to_peer, length);
    assert_eq!(counters.methods[&Method::Queue].initiations, 5);
}

#[test]
fn what_is_short_needs_no_engine() {
    let mut rig = rig();
    let data = pattern(64, 1);
    rig.guests[0].put(place(1, 0), &data);
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 64));
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    assert_eq!(rig.guests[0].get(place(2, 0), 64), data);
    assert_eq!(rig.poll(), Polled::Nothing);
}

#[test]
fn many_rounds() {
    let mut rig = rig();
    for round in 0..10 {
        let asked = [Descriptor::NOP; STATUS_RECORDS as usize];
        let ends = submit(&mut rig, 1 + round * STATUS_RECORDS, &asked);
        assert!(ends.iter().all(|end| *end == (0, Status::Ok)));
    }
    assert_eq!(rig.guests[0].completed(OURS), (640, 0));
    // A descriptor in another ticket's slot is not executed.
    rig.guests[0].submit(OURS, 641 + STATUS_RECORDS, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Nothing);
}

#[test]
fn atomics_here_and_there() {
    let mut rig = rig();
    // Region 1 starts at ...123, so its words are aligned at 5, 13, and so on.
    let (near, far) = (place(1, 5), place(3, 7));
    rig.guests[0].put64(near, 40);
    rig.guests[1].put64(far, 7);
    let asked = [
        Descriptor::add((1, 5), 2),
        Descriptor::swap((1, 5), 41, 0),
        Descriptor::swap((1, 5), 42, 9),
        Descriptor::add((1, 5), u64::MAX),
        Descriptor::add((4, 7), 1),
        Descriptor::swap((4, 7), 8, 100),
        Descriptor::add((1, 4), 1),
        Descriptor::add((1, (1 << 20) - 7), 1),
        Descriptor::add((7, 0), 1),
    ];
    let word = |word| (word, Status::Ok);
    assert_eq!(
        submit(&mut rig, 1, &asked),
        [
            word(40),
            word(42),
            word(42),
            word(9),
            word(7),
            word(8),
            (0, Status::NotAligned),
            (0, Status::Bounds),
            (0, Status::NotValid)
        ]
    );
    assert_eq!(rig.guests[0].get64(near), 8);
    assert_eq!(rig.guests[1].get64(far), 100);
    assert_eq!(rig.guests[0].completed(OURS), (9, 3));
}

#[test]
fn refusals_move_nothing() {
    let mut rig = rig();
    rig.guests[0].register(8, OTHER_SPACE, 700, FREE + (6 << 20), PAGE);
    let copy = Descriptor::copy;
    let mut reserved = Descriptor::NOP;
    reserved.op = 4;
    let asked = [
        copy((1, 0), (2, 0), 0),
        copy((0, 0), (2, 0), 8),
        copy((8, 0), (2, 0), 8),
        copy((1, 0), (8, 0), 8),
        copy((1, 1 << 20), (2, 0), 1),
        copy((1, u64::MAX), (2, 0), 8),
        copy((1, 0), (2, 0), u64::MAX),
        copy((4, 0), (4, 8), 8),
        copy((u32::MAX, 0), (2, 0), 8),
        Descriptor::NOP.flags(4),
        reserved,
    ];
    let ends = submit(&mut rig, 1, &asked);
    let statuses: Vec<_> = ends.into_iter().map(|(_, status)| status).collect();
    assert_eq!(
        statuses,
        [
            Status::BadSize,
            Status::NotValid,
            Status::NotOwner,
            Status::NotOwner,
            Status::Bounds,
            Status::Bounds,
            Status::Bounds,
            Status::NoRight,
            Status::NotValid,
            Status::NotValid,
            Status::NotValid,
        ]
    );
    assert_eq!(rig.get_ctx(0, OURS, ctx::BYTES), 0);
    assert_eq!(rig.get_ctx(0, OURS, ctx::INITIATIONS), 0);
}

#[test]
fn links() {
    let mut rig = rig();
    let bad = Descriptor::copy((1, 0), (2, 0), 0).flags(descriptor::LINK);
    let good = Descriptor::copy((1, 0), (2, 0), 8);
    let asked = [
        good.flags(descriptor::LINK),
        bad,
        good.flags(descriptor::LINK),
        good,
        good,
        bad,
    ];
    let ends = submit(&mut rig, 1, &asked);
    assert_eq!(
        ends,
        [
            (8, Status::Ok),
            (0, Status::BadSize),
            (0, Status::Aborted),
            (0, Status::Aborted),
            (8, Status::Ok),
            (0, Status::BadSize)
        ]
    );
    let after = submit(&mut rig, 7, &[Descriptor::NOP, good]);
    assert_eq!(after, [(0, Status::Aborted), (8, Status::Ok)]);
}

#[test]
fn sleep_and_wakeup() {
    let limit = Duration::from_micros(500);
    let mut rig = rig_of(Speed {
        poll: limit,
        ..Speed::default()
    });
    assert_eq!(rig.poll(), Polled::Nothing);
    assert_eq!(rig.guests[0].wakeup(OURS), 0);
    std::thread::sleep(limit);
    assert_eq!(rig.poll(), Polled::Asleep);
    assert_eq!(rig.guests[0].wakeup(OURS), 1);
    rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Asleep, "it does not look");
    let _ = rig.model.take_wake_poller();
    rig.store(0, BAR_CONTEXT, u64::from(OURS) * PAGE + 0x10, 4, 0);
    assert!(rig.model.take_wake_poller());
    assert_eq!(rig.guests[0].wakeup(OURS), 0);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    // The time counts from the last find.
    assert_eq!(rig.poll(), Polled::Nothing);
    std::thread::sleep(limit);
    rig.guests[0].submit(OURS, 2, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.poll(), Polled::Nothing);
    // A context of another method does not wake anything.
    rig.store(0, BAR_CONTEXT, u64::from(THEIRS) * PAGE, 8, 0);
    assert_eq!(rig.guests[0].wakeup(THEIRS), 0);
}

#[test]
fn without_patience_each_look_may_be_the_last() {
    let mut rig = rig_of(Speed::default());
    rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.poll(), Polled::Asleep);
    assert_eq!(rig.guests[0].wakeup(OURS), 1);
}

/// All ways to end a queue. After each, the context's pages are neither read nor written: they
/// could belong to another process.
#[test]
fn pages_of_a_queue_that_was_ended_are_not_touched() {
    type End = fn(&mut Rig);
    let ends: [(&str, End); 6] = [
        ("disable", |rig| {
            rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE)
        }),
        ("node off", |rig| rig.set(0, reg::CONTROL, Control::NONE)),
        ("reset", |rig| {
            rig.set(0, reg::CONTROL, Control::RESET);
        }),
        ("bus master off", |rig| {
            rig.model.config_store(0, 4, &[0x02, 0]);
        }),
        ("function reset", |rig| {
            let memories: Vec<_> = rig.memories.iter().collect();
            rig.model.reset_function(0, &memories);
        }),
        ("client gone", |rig| {
            let memories: Vec<_> = rig.memories.iter().collect();
            rig.model.detach(0, &memories);
        }),
    ];
    for (name, end) in ends {
        let mut rig = rig_of(Speed::default());
        rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
        assert_eq!(rig.poll(), Polled::Found, "{name}");
        end(&mut rig);
        let status = rig.guests[0].status_page(OURS);
        rig.guests[0].put(status, &[0xa5; PAGE as usize]);
        rig.guests[0].submit(OURS, 2, &Descriptor::add((1, 5), 1));
        assert_eq!(rig.poll(), Polled::Asleep, "{name}");
        rig.store(0, BAR_CONTEXT, u64::from(OURS) * PAGE, 8, 0);
        assert_eq!(rig.poll(), Polled::Asleep, "{name}");
        let page = rig.guests[0].get(status, PAGE as usize);
        assert_eq!(page, [0xa5; PAGE as usize], "{name}");
        assert_eq!(rig.guests[0].get64(place(1, 5)), 0, "{name}");
    }
}

#[test]
fn disabling_aborts_what_the_engine_has() {
    let mut rig = rig();
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 1 << 20));
    rig.guests[0].submit(OURS, 2, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Found);
    let Ok(job) = rig.next(Instant::now()) else {
        panic!("nothing to do");
    };
    // More descriptors arrive while a chunk is being moved.
    rig.guests[0].submit(OURS, 3, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Found);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    let busy = ContextControl::BUSY;
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), busy);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    let memories: Vec<_> = rig.memories.iter().collect();
    let outcome = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, outcome, &memories);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::NONE);
    assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Aborted as u64);
    assert_eq!(rig.guests[0].completed(OURS), (3, 1));
}

#[test]
fn invalidation_aborts_what_was_taken() {
    let mut rig = rig_of(Speed {
        delay: Duration::from_secs(3600),
        poll: Duration::from_secs(3600),
        ..Speed::default()
    });
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 8));
    rig.guests[0].submit(OURS, 2, &Descriptor::add((2, 2), 1));
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0), "it is slow");
    rig.invalidate(0, Invalidation::REGION, 2);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    assert_eq!(rig.guests[0].completed(OURS), (2, 2));
    assert_eq!(rig.guests[0].record(OURS, 2).2, Status::Aborted as u64);
    rig.guests[0].submit(OURS, 3, &Descriptor::add((4, 7), 1));
    assert_eq!(rig.poll(), Polled::Found);
    rig.invalidate(1, Invalidation::SPACE, OTHER_SPACE);
    assert_eq!(rig.guests[0].record(OURS, 3).2, Status::Revoked as u64);
}

#[test]
fn pages_that_do_not_answer() {
    let mut rig = rig_of(Speed::default());
    for (register, bad) in [(ctx::QUEUE, 0x1000), (ctx::STATUS_PAGE, 0x1000)] {
        rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
        let good = rig.get_ctx(0, OURS, register);
        rig.set_ctx(0, OURS, register, bad);
        rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::ENABLE);
        assert_eq!(rig.poll(), Polled::Asleep);
        assert_eq!(rig.get(0, reg::EVENT), EventCauses::ERROR);
        rig.set(0, reg::EVENT, EventCauses::from_bits(u32::MAX));
        assert_eq!(rig.poll(), Polled::Asleep);
        assert_eq!(rig.get(0, reg::EVENT), EventCauses::NONE, "told once");
        rig.set_ctx(0, OURS, register, good);
    }
}

#[test]
fn faulty_devices() {
    let mut rig = rig();
    let data = pattern(64, 1);
    rig.guests[0].put(place(1, 0), &data);
    rig.fault(0, Fault::Corrupt, true);
    let ends = submit(&mut rig, 1, &[Descriptor::copy((1, 0), (2, 0), 64)]);
    assert_eq!(ends, [(64, Status::Ok)]);
    assert_ne!(rig.guests[0].get(place(2, 0), 64), data);
    rig.fault(0, Fault::BusError, true);
    let ends = submit(&mut rig, 2, &[Descriptor::add((1, 5), 1)]);
    assert_eq!(ends, [(0, Status::BusError)]);
    rig.fault(0, Fault::BusError, false);
    rig.fault(0, Fault::Stall, true);
    rig.guests[0].submit(OURS, 3, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Asleep);
    rig.fault(0, Fault::Stall, false);
    assert!(rig.model.take_wake_poller());
    assert_eq!(rig.poll(), Polled::Found);
}

#[test]
fn a_full_queue_lets_the_device_sleep() {
    let mut rig = rig_of(Speed::default());
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 1 << 20));
    for ticket in 2..=64 {
        rig.guests[0].submit(OURS, ticket, &Descriptor::NOP);
    }
    assert_eq!(rig.poll(), Polled::Found);
    rig.guests[0].submit(OURS, 65, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Asleep);
    assert_eq!(rig.guests[0].wakeup(OURS), 1);
}

/// A program that breaks the rules harms only itself.
#[test]
fn places_that_are_used_again_too_early() {
    let mut rig = rig();
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 1 << 20));
    for ticket in 2..=64 {
        rig.guests[0].submit(OURS, ticket, &Descriptor::NOP);
    }
    assert_eq!(rig.poll(), Polled::Found);
    rig.guests[0].submit(OURS, 65, &Descriptor::NOP);
    assert_eq!(rig.poll(), Polled::Nothing, "all places are taken");
    rig.run();
    assert_eq!(rig.guests[0].completed(OURS), (64, 0));
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.guests[0].completed(OURS), (65, 0));
}

#[test]
fn interrupts_come_for_queues() {
    let mut rig = rig();
    assert_eq!(rig.get_ctx(0, OURS, ctx::SPACE), SPACE);
    rig.set_ctx(0, OURS, ctx::ARM, 1);
    submit(&mut rig, 1, &[Descriptor::NOP]);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::NONE);
    submit(&mut rig, 2, &[Descriptor::NOP; 3]);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::COMPLETION);
}
