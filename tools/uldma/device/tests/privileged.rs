// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queues of the driver, which may name every region, also of peers.

mod common;

use std::time::{Duration, Instant};

use common::rig::{at, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{pattern, Descriptor, ALL_RIGHTS, FREE, PAGE};
use uldma_device::abi::{descriptor, Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{
    ctx, reg, ContextControl, DescriptorFlags, Invalidation, PeerLink, RegionEntry, RegionFlags,
    OP_INVALIDATE,
};
use uldma_device::poll::Polled;

const SRC_OF_PEER: u32 = DescriptorFlags::SRC_OF_PEER.bits();
const DST_OF_PEER: u32 = DescriptorFlags::DST_OF_PEER.bits();
const LENGTH: u64 = 1 << 20;
const NEAR: u64 = FREE + 0x123;
const FAR: u64 = FREE + 0x789;

/// Does not pass while a test runs.
const LONG: Duration = Duration::from_secs(3600);

fn rig() -> Rig {
    rig_of(Speed::default())
}

/// The regions of [`Rig::regions`], and on both nodes a privileged queue that stays awake.
fn rig_of(speed: Speed) -> Rig {
    let mut rig = Rig::cold(Speed {
        poll: LONG,
        ..speed
    });
    for node in 0..2 {
        rig.probe(node);
        rig.set_method(node, THEIRS, Method::Queue);
        switch_on(&mut rig, node, ContextControl::PRIVILEGED);
    }
    rig.regions(LENGTH);
    rig
}

/// Switches the queue off and on.
fn switch_on(rig: &mut Rig, node: usize, more: ContextControl) {
    rig.set_ctx(node, THEIRS, ctx::CONTROL, ContextControl::NONE);
    let control = ContextControl::ENABLE | more;
    rig.set_ctx(node, THEIRS, ctx::CONTROL, control);
    assert_eq!(rig.get_ctx(node, THEIRS, ctx::CONTROL), control);
}

/// Fields that name a peer's region, in addition to its index: generation, node and generation of
/// the link.
fn named(asked: Descriptor, flag: u32, generation: u64, node: u32, link: u32) -> Descriptor {
    let peer = PeerLink::NONE.with(PeerLink::NODE, node);
    Descriptor {
        operand: generation,
        compare: peer.with(PeerLink::GENERATION, link).bits(),
        ..asked.flags(flag)
    }
}

/// A copy to region 3 of node 1.
fn push(from: (u32, u64), position: u64, length: u64) -> Descriptor {
    let asked = Descriptor::copy(from, (3, position), length);
    named(asked, DST_OF_PEER, 1, 1, 1)
}

/// A copy from region 3 of node 1.
fn pull(position: u64, to: (u32, u64), length: u64) -> Descriptor {
    let asked = Descriptor::copy((3, position), to, length);
    named(asked, SRC_OF_PEER, 1, 1, 1)
}

fn invalidation(region: u32) -> Descriptor {
    Descriptor {
        op: OP_INVALIDATE,
        source: (region, 0),
        ..Descriptor::NOP
    }
}

fn ask(rig: &Rig, node: usize, first: u64, asked: &[Descriptor]) {
    for (ticket, descriptor) in (first..).zip(asked) {
        rig.guests[node].submit(THEIRS, ticket, descriptor);
    }
}

fn run(rig: &mut Rig) {
    while rig.poll() == Polled::Found || rig.step() {}
}

fn end(rig: &Rig, node: usize, ticket: u64) -> (u64, Status) {
    let (found, bytes, status) = rig.guests[node].record(THEIRS, ticket);
    assert_eq!(found, ticket);
    (bytes, Status::ALL[status as usize])
}

/// Returns the results of descriptors of node 0.
fn ends(rig: &mut Rig, first: u64, asked: &[Descriptor]) -> Vec<(u64, Status)> {
    ask(rig, 0, first, asked);
    run(rig);
    let tickets = (first..).zip(asked);
    tickets.map(|(ticket, _)| end(rig, 0, ticket)).collect()
}

#[test]
fn copies_to_and_from_a_peer() {
    let mut rig = rig();
    let data = pattern(LENGTH as usize, 1);
    rig.guests[0].put(NEAR, &data);
    let asked = [
        push((1, 5), 9, 64),
        push((1, 100), 4096, 700_001),
        pull(4096, (2, 3), 700_001),
        pull(9, (2, 800_000), 64).flags(SRC_OF_PEER | descriptor::FENCE),
    ];
    let expected = [64, 700_001, 700_001, 64].map(|bytes| (bytes, Status::Ok));
    assert_eq!(ends(&mut rig, 1, &asked), expected);
    let length = 700_001;
    assert_eq!(rig.guests[1].get(FAR + 9, 64), &data[5..69]);
    assert_eq!(
        rig.guests[1].get(FAR + 4096, length),
        &data[100..][..length]
    );
    let back = FREE + (4 << 20) + 0x456;
    assert_eq!(rig.guests[0].get(back + 3, length), &data[100..][..length]);
    assert_eq!(rig.guests[0].get(back + 800_000, 64), &data[5..69]);
    let counters = &rig.model.report().nodes[0].counters;
    assert_eq!(counters.bytes_to_peer, 700_065);
    assert_eq!(counters.bytes_from_peer, 700_065);
}

#[test]
fn an_invalidation_does_not_wait_for_a_slow_engine() {
    for speed in [
        Speed {
            delay: LONG,
            ..Speed::default()
        },
        Speed {
            bandwidth: Some(1),
            ..Speed::default()
        },
    ] {
        // Alone in its queue, so that no thread of the engine is needed.
        let mut rig = rig_of(speed);
        ask(&rig, 0, 1, &[invalidation(1)]);
        assert_eq!(rig.poll(), Polled::Found);
        assert_eq!(rig.guests[0].completed(THEIRS), (1, 0), "{speed:?}");
        // And while a chunk of the other node is in flight.
        let mut rig = rig_of(speed);
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), LENGTH as u32), 1);
        let Ok(job) = rig.next(Instant::now() + 2 * LONG) else {
            panic!("nothing to do");
        };
        ask(&rig, 1, 1, &[invalidation(1)]);
        assert_eq!(rig.poll(), Polled::Found);
        assert_eq!(rig.guests[1].completed(THEIRS), (0, 0), "{speed:?}");
        let memories: Vec<_> = rig.memories.iter().collect();
        let outcome = job.run(&memories, &mut rig.scratch);
        rig.model.finish(&job, outcome, &memories);
        rig.run();
        assert_eq!(rig.guests[1].completed(THEIRS), (1, 0), "{speed:?}");
        assert_eq!(rig.guests[0].completed(OURS), (0, 0), "{speed:?}");
    }
}

#[test]
fn what_is_short_needs_no_engine() {
    let mut rig = rig();
    rig.guests[0].put(NEAR, &[7; 64]);
    ask(&rig, 0, 1, &[push((1, 0), 0, 64), invalidation(1)]);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.poll(), Polled::Nothing);
    assert_eq!(rig.guests[0].completed(THEIRS), (2, 0));
    assert_eq!(rig.guests[1].get(FAR, 64), [7; 64]);
}

#[test]
fn regions_of_every_space() {
    let mut rig = rig();
    rig.guests[0].register(8, 77, 700, FREE + (6 << 20), PAGE);
    let asked = [
        Descriptor::copy((8, 0), (1, 0), 8),
        Descriptor::copy((1, 0), (4, 0), 8),
        Descriptor::add((8, 8), 1),
    ];
    let fine = [8, 8, 0].map(|bytes| (bytes, Status::Ok));
    assert_eq!(ends(&mut rig, 1, &asked), fine);
    // Without the privilege the same queue is refused. The privilege can be set only while the
    // context is enabled.
    switch_on(&mut rig, 0, ContextControl::NONE);
    let all = ContextControl::ENABLE | ContextControl::PRIVILEGED;
    rig.set_ctx(0, THEIRS, ctx::CONTROL, all);
    let enabled = ContextControl::ENABLE;
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::CONTROL), enabled);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::SPACE), OTHER_SPACE);
    let refused = ends(&mut rig, 4, &asked);
    assert_eq!(refused, [(0, Status::NotOwner); 3]);
    let privileged = [
        push((1, 0), 0, 8),
        pull(0, (1, 0), 8),
        invalidation(1),
        invalidation(8),
    ];
    let refused = ends(&mut rig, 7, &privileged);
    assert_eq!(refused, [(0, Status::NotValid); 4]);
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::CONTROL), ContextControl::NONE);
}

/// A descriptor names a region of its node by the index alone. So an invalidation does not concern
/// what the device has not read, and a driver waits for that before another region gets the index.
#[test]
fn regions_are_found_when_a_descriptor_is_read() {
    let mut rig = rig();
    let other = FREE + (6 << 20);
    rig.guests[0].put(NEAR, &[7; 64]);
    rig.guests[0].put(other, &[9; 64]);
    ask(&rig, 0, 1, &[push((1, 0), 0, 64)]);
    rig.guests[0].put_region(1, &RegionEntry::default());
    rig.invalidate(0, Invalidation::REGION, 1);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::TICKET), 0);
    rig.guests[0].register(1, 77, 700, other, PAGE);
    run(&mut rig);
    assert_eq!(end(&rig, 0, 1), (64, Status::Ok));
    assert_eq!(rig.guests[1].get(FAR, 64), [9; 64]);
    // By the rule: retract, wait until it is read, and only then register.
    ask(&rig, 0, 2, &[push((1, 0), 64, 64)]);
    rig.guests[0].put_region(1, &RegionEntry::default());
    run(&mut rig);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::TICKET), 2);
    rig.guests[0].register(1, 77, 700, other, PAGE);
    run(&mut rig);
    assert_eq!(end(&rig, 0, 2), (0, Status::NotValid));
    assert_ne!(rig.guests[1].get(FAR + 64, 64), [9; 64]);
}

#[test]
fn descriptors_that_make_no_sense() {
    let mut rig = rig();
    let both = SRC_OF_PEER | DST_OF_PEER;
    let far = |flag, generation, node, link| {
        named(
            Descriptor::copy((3, 0), (3, 0), 8),
            flag,
            generation,
            node,
            link,
        )
    };
    rig.guests[0].register(3, SPACE, 800, FREE + (6 << 20), PAGE);
    let cases = [
        (far(both, 1, 1, 1), Status::NotValid),
        (push((1, 0), 0, 8).flags(DST_OF_PEER | 4), Status::NotValid),
        (
            Descriptor::add((3, 0), 1).flags(DST_OF_PEER),
            Status::NotValid,
        ),
        (Descriptor::NOP.flags(SRC_OF_PEER), Status::NotValid),
        (invalidation(1).flags(SRC_OF_PEER), Status::NotValid),
        (push((1, 0), 0, 0), Status::BadSize),
        (pull(0, (1, 0), 0), Status::BadSize),
        (push((9, 0), 0, 8), Status::NotValid),
        (push((1, LENGTH - 7), 0, 8), Status::Bounds),
        (push((1, 0), LENGTH - 7, 8), Status::Remote),
        (push((1, 0), u64::MAX, 8), Status::Remote),
        (pull(LENGTH, (1, 0), 1), Status::Remote),
        // An import is a peer's, too.
        (push((4, 0), 0, 8), Status::NoRight),
        (pull(0, (4, 0), 8), Status::NoRight),
        // Another generation of the region, of the link, and nodes that cannot be reached.
        (far(DST_OF_PEER, 2, 1, 1), Status::Revoked),
        (far(SRC_OF_PEER, 2, 1, 1), Status::Revoked),
        (far(DST_OF_PEER, 1, 1, 0), Status::LinkDown),
        (far(SRC_OF_PEER, 1, 1, 2), Status::LinkDown),
        (far(SRC_OF_PEER, 1, 0, 1), Status::LinkDown),
        (far(SRC_OF_PEER, 1, 2, 1), Status::LinkDown),
        (far(DST_OF_PEER, 1, 0xffff_ffff, 1), Status::LinkDown),
    ];
    for (ticket, (asked, status)) in (1..).zip(cases) {
        let found = ends(&mut rig, ticket, &[asked]);
        assert_eq!(found, [(0, status)], "case {ticket}");
    }
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::BYTES), 0);
}

#[test]
fn the_peer_has_to_export() {
    let mut rig = rig();
    let good = RegionEntry {
        flags: ALL_RIGHTS,
        space: OTHER_SPACE,
        offset: 0x789,
        length: LENGTH,
        generation: 1,
        run_count: 1,
        first_page: 77,
        ..RegionEntry::default()
    };
    let cases = [
        (ALL_RIGHTS, [Status::Ok; 2]),
        (RegionFlags::NONE, [Status::Revoked; 2]),
        (ALL_RIGHTS.without(RegionFlags::VALID), [Status::Revoked; 2]),
        (
            ALL_RIGHTS.without(RegionFlags::EXPORT_WRITE),
            [Status::Remote, Status::Ok],
        ),
        (
            ALL_RIGHTS.without(RegionFlags::EXPORT_READ),
            [Status::Ok, Status::Remote],
        ),
        (ALL_RIGHTS | RegionFlags::REMOTE, [Status::Remote; 2]),
    ];
    for (number, (flags, expected)) in (0..).zip(cases) {
        rig.guests[1].put_region(3, &RegionEntry { flags, ..good });
        let asked = [push((1, 0), 0, 8), pull(0, (1, 0), 8)];
        let found = ends(&mut rig, 1 + 2 * number, &asked);
        let statuses: Vec<_> = found.into_iter().map(|(_, status)| status).collect();
        assert_eq!(statuses, expected, "{flags:?}");
    }
}

#[test]
fn what_ends_a_copy_between_its_chunks() {
    type End = fn(&mut Rig);
    let cases: [(End, Status); 5] = [
        (|rig| rig.plug(false), Status::LinkDown),
        (
            |rig| rig.invalidate(1, Invalidation::REGION, 3),
            Status::Revoked,
        ),
        (
            |rig| rig.invalidate(1, Invalidation::SPACE, OTHER_SPACE),
            Status::Revoked,
        ),
        (
            |rig| rig.invalidate(0, Invalidation::REGION, 1),
            Status::Aborted,
        ),
        (
            |rig| rig.guests[1].put_region(3, &RegionEntry::default()),
            Status::Revoked,
        ),
    ];
    for (number, (stop, status)) in cases.into_iter().enumerate() {
        let mut rig = rig();
        ask(&rig, 0, 1, &[push((1, 0), 0, LENGTH)]);
        assert_eq!(rig.poll(), Polled::Found);
        assert!(rig.step());
        stop(&mut rig);
        run(&mut rig);
        assert_eq!(end(&rig, 0, 1), (256 << 10, status), "case {number}");
    }
    // The state of the other node's context of the same number does not matter.
    let mut rig = rig();
    ask(&rig, 0, 1, &[push((1, 0), 0, LENGTH)]);
    assert_eq!(rig.poll(), Polled::Found);
    rig.invalidate(0, Invalidation::REGION, 3);
    rig.invalidate(0, Invalidation::SPACE, OTHER_SPACE);
    rig.invalidate(1, Invalidation::REGION, 1);
    run(&mut rig);
    assert_eq!(end(&rig, 0, 1), (LENGTH, Status::Ok));
}

#[test]
fn invalidation_ends_an_import_copy_in_flight() {
    let mut rig = rig();
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), LENGTH as u32), 1);
    let Ok(job) = rig.next(Instant::now()) else {
        panic!("nothing to do");
    };
    ask(&rig, 1, 1, &[invalidation(3), Descriptor::NOP]);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.guests[1].completed(THEIRS), (0, 0), "it is in flight");
    let memories: Vec<_> = rig.memories.iter().collect();
    let outcome = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, outcome, &memories);
    while rig.guests[1].completed(THEIRS).0 == 0 {
        assert!(rig.step(), "the invalidation does not end");
    }
    let before = rig.guests[1].get(FAR + (512 << 10), 64);
    run(&mut rig);
    let (_, _, status) = rig.guests[0].record(OURS, 1);
    assert_eq!(status, Status::Revoked as u64);
    assert_eq!(rig.guests[1].get(FAR + (512 << 10), 64), before);
    assert_eq!(rig.guests[1].completed(THEIRS), (2, 0));
}

#[test]
fn invalidation_at_once_ends_what_is_queued() {
    let mut rig = rig();
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 2);
    ask(&rig, 1, 1, &[invalidation(3), invalidation(1)]);
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(rig.poll(), Polled::Found, "one at a time");
    assert_eq!(rig.guests[1].completed(THEIRS), (2, 0));
    assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Revoked as u64);
    run(&mut rig);
    assert_eq!(rig.guests[0].record(OURS, 2).2, Status::Ok as u64);
    assert_eq!(rig.model.report().nodes[1].counters.invalidations, 2);
    assert_eq!(rig.get(1, reg::INVALIDATE_PENDING), 0);
}

#[test]
fn invalidation_takes_its_turn() {
    let mut rig = rig();
    let asked = [
        push((1, 0), 0, LENGTH),
        invalidation(1),
        push((1, 0), 0, LENGTH),
        invalidation(1).flags(descriptor::LINK),
        Descriptor::NOP,
    ];
    let expected = [LENGTH, 0, LENGTH, 0, 0].map(|bytes| (bytes, Status::Ok));
    assert_eq!(ends(&mut rig, 1, &asked), expected);
    // A descriptor whose predecessor fails is not executed, and ends when the queue is switched
    // off.
    let refused = [push((9, 0), 0, 8).flags(DST_OF_PEER | descriptor::LINK)];
    ask(&rig, 0, 6, &[refused[0], invalidation(1)]);
    run(&mut rig);
    assert_eq!(end(&rig, 0, 7), (0, Status::Aborted));
    ask(&rig, 0, 8, &[push((1, 0), 0, LENGTH), invalidation(1)]);
    assert_eq!(rig.poll(), Polled::Found);
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::CONTROL), ContextControl::NONE);
    assert_eq!(end(&rig, 0, 9), (0, Status::Aborted));
    assert_eq!(rig.model.report().nodes[0].counters.invalidations, 2);
}
