// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks that are held between the look-up of their bus addresses and the access, and chunks that access
//! once more.

mod common;

use std::time::{Duration, Instant};

use common::rig::{at, Rig, OURS, SPACE, THEIRS};
use common::{pattern, Descriptor, Guest, FREE, PAGE};
use uldma_device::abi::{Method, Status};
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, DeviceStatus, Invalidation, PageEntry, BAR_CONTEXT,
    OP_INVALIDATE,
};

/// The first byte of region 2 in [`Rig::regions`].
const TARGET: u64 = FREE + (4 << 20) + 0x456;

fn held(rig: &Rig, node: usize) -> Vec<(usize, u64)> {
    let report = rig.model.report();
    let held = report.nodes[node].held.iter();
    held.map(|held| (held.context, held.ticket)).collect()
}

/// A copy from region 1 to another that stands still before its access.
fn copy_held(rig: &mut Rig, to: u32) -> Vec<u8> {
    rig.regions(PAGE);
    let data = pattern(64, 9);
    rig.guests[0].put(FREE + 0x123, &data);
    rig.hold(0, OURS, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(to, 0), 64), 1);
    rig.run();
    assert_eq!(held(rig, 0), [(OURS as usize, 1)]);
    data
}

fn bytes_of(guest: &Guest, address: u64) -> Vec<u8> {
    guest.get(address, 64)
}

#[test]
fn an_access_uses_what_was_looked_up_before() {
    let mut rig = Rig::new();
    let data = copy_held(&mut rig, 2);
    // The driver removes the entries without an invalidation.
    for page in 0..2 {
        rig.guests[0].put_page(500 + page, &PageEntry::default());
    }
    assert_eq!(bytes_of(&rig.guests[0], TARGET), [0; 64]);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!(bytes_of(&rig.guests[0], TARGET), data);
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    assert_eq!(held(&rig, 0), []);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 64),
        -(Status::NotValid as i64)
    );
}

#[test]
fn invalidations_wait_for_what_is_held() {
    let mut rig = Rig::new();
    copy_held(&mut rig, 2);
    rig.invalidate(0, Invalidation::REGION, 2);
    rig.invalidate(1, Invalidation::ALL, 0);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 1);
    assert_eq!(rig.model.report().nodes[0].invalidations_pending, 1);
    assert_eq!(
        rig.get(1, reg::INVALIDATE_PENDING),
        0,
        "it has no part in it"
    );
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    let busy = ContextControl::BUSY;
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), busy);
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::NONE);
    assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Aborted as u64);
}

#[test]
fn the_peer_waits_for_what_is_held_at_its_memory() {
    let mut rig = Rig::new();
    let data = copy_held(&mut rig, 4);
    rig.invalidate(1, Invalidation::REGION, 3);
    assert_eq!(rig.get(1, reg::INVALIDATE_PENDING), 1);
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!(rig.get(1, reg::INVALIDATE_PENDING), 0);
    assert_eq!(bytes_of(&rig.guests[1], FREE + 0x789), data);
}

#[test]
fn other_contexts_and_nodes_go_on() {
    let mut rig = Rig::new();
    copy_held(&mut rig, 2);
    rig.guests[0].register(8, SPACE + 1, 700, FREE + (6 << 20), PAGE);
    let (from, to) = ((700 * PAGE, 8), (700 * PAGE + 64, 8));
    assert_eq!(rig.initiate(0, THEIRS, from, to, 8), 1);
    rig.run();
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
    rig.guests[1].register(1, SPACE, 10, FREE, PAGE);
    let (from, to) = ((10 * PAGE, 1), (10 * PAGE + 64, 1));
    assert_eq!(rig.initiate(1, OURS, from, to, 8), 1);
    rig.run();
    assert_eq!(rig.guests[1].completed(OURS), (1, 0));
    // Holds the chunks of a whole node.
    rig.fault(1, Fault::Hold, true);
    assert_eq!(rig.initiate(1, OURS, from, to, 8), 2);
    rig.run();
    assert_eq!(held(&rig, 1), [(OURS as usize, 2)]);
    rig.fault(1, Fault::Hold, false);
    rig.run();
    assert_eq!(rig.guests[1].completed(OURS), (2, 0));
    assert_eq!(held(&rig, 0), [(OURS as usize, 1)]);
}

#[test]
fn queued_work_is_held_too() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    rig.set_method(0, OURS, Method::Queue);
    rig.hold(0, OURS, true);
    rig.guests[0].submit(OURS, 1, &Descriptor::copy((1, 0), (2, 0), 64));
    rig.guests[0].submit(OURS, 2, &Descriptor::add((2, 0x3aa), 1));
    rig.store(0, BAR_CONTEXT, u64::from(OURS) * PAGE, 8, 0);
    rig.poll();
    for ticket in 1..=2 {
        rig.run();
        assert_eq!(held(&rig, 0), [(OURS as usize, ticket)]);
        rig.hold(0, OURS, false);
        assert!(rig.step());
        rig.hold(0, OURS, true);
        assert_eq!(rig.guests[0].completed(OURS), (ticket, 0));
    }
    assert_eq!(rig.guests[0].get64(TARGET + 0x3aa), 1);
}

#[test]
fn queued_invalidations_wait_for_what_is_held() {
    let mut rig = Rig::new();
    copy_held(&mut rig, 2);
    rig.set_method(0, THEIRS, Method::Queue);
    let control = ContextControl::ENABLE | ContextControl::PRIVILEGED;
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    rig.set_ctx(0, THEIRS, ctx::CONTROL, control);
    let invalidation = Descriptor {
        op: OP_INVALIDATE,
        source: (2, 0),
        ..Descriptor::NOP
    };
    rig.guests[0].submit(THEIRS, 1, &invalidation);
    rig.store(0, BAR_CONTEXT, u64::from(THEIRS) * PAGE, 8, 0);
    rig.poll();
    rig.run();
    let pending = |rig: &Rig| {
        let report = &rig.model.report().nodes[0];
        (report.invalidations_pending, report.invalidations_queued)
    };
    assert_eq!(pending(&rig), (0, 1));
    assert_eq!(rig.guests[0].completed(THEIRS), (0, 0));
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!(pending(&rig), (0, 0));
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
}

#[test]
fn a_function_reset_drops_what_is_held() {
    for node in [0, 1] {
        let mut rig = Rig::new();
        copy_held(&mut rig, 4);
        let memories: Vec<_> = rig.memories.iter().collect();
        rig.model.reset_function(node, &memories);
        assert_eq!(held(&rig, 0), []);
        rig.hold(0, OURS, false);
        rig.run();
        assert_eq!(bytes_of(&rig.guests[1], FREE + 0x789), [0; 64]);
        rig.model.config_store(node, 4, &[0x06, 0]);
        assert_eq!(rig.get(node, reg::STATUS), DeviceStatus::READY);
    }
}

#[test]
fn a_register_reset_waits_and_bus_mastering_ends_it() {
    let mut rig = Rig::new();
    copy_held(&mut rig, 2);
    rig.set(0, reg::CONTROL, Control::RESET);
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::NONE);
    rig.model.config_store(0, 4, &[0x02, 0]);
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::READY);
    assert_eq!(bytes_of(&rig.guests[0], TARGET), [0; 64]);
}

/// Moves the engine's next chunk at some time. The error is when there is one.
fn step_at(rig: &mut Rig, now: Instant) -> Result<(), Option<Instant>> {
    let job = rig.next(now)?;
    let memories: Vec<_> = rig.memories.iter().collect();
    let progress = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, progress, &memories);
    Ok(())
}

#[test]
fn a_late_device_accesses_what_it_has_told_to_have_left() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let data = pattern(64, 9);
    rig.guests[0].put(FREE + 0x123, &data);
    rig.fault(0, Fault::Late, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 64), 1);
    let now = Instant::now();
    let again = now + Duration::from_millis(1);
    assert_eq!(step_at(&mut rig, now), Ok(()));
    assert_eq!(step_at(&mut rig, now), Ok(()));
    assert_eq!(step_at(&mut rig, now), Err(Some(again)));
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    rig.guests[0].put_page(500, &PageEntry::default());
    rig.invalidate(0, Invalidation::REGION, 2);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    // Now it is the memory of others.
    rig.guests[0].put(TARGET, &[0; 64]);
    assert_eq!(step_at(&mut rig, again), Ok(()));
    assert_eq!(bytes_of(&rig.guests[0], TARGET), data);
    assert_eq!(step_at(&mut rig, again), Err(None));
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
}
