// SPDX-License-Identifier: MIT OR Apache-2.0

//! Everything that happens around transfers: link, reset, invalidation, interrupts, faults.

mod common;

use std::time::{Duration, Instant};

use common::rig::{at, refused, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{page_entry, pattern, ALL_RIGHTS, FREE, PAGE, PAGE_RIGHTS};
use uldma_device::abi::Status;
use uldma_device::engine::Speed;
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, DeviceStatus, EventCauses, Invalidation, RegionEntry,
    RegionFlags, ID_MAGIC, SCRATCHPADS, VERSION,
};

#[test]
fn probing_reads_identity_and_sizes() {
    let mut rig = Rig::cold(Speed::default());
    assert_eq!(rig.get(1, reg::ID), ID_MAGIC);
    assert_eq!(rig.get(1, reg::NODE), 1);
    assert_eq!(rig.get(0, reg::CONTEXTS), 4);
    assert_eq!(rig.get(0, reg::SHADOW_SHIFT), 28);
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::READY);
    assert_eq!(rig.get(1, reg::VERSION), VERSION);
    assert_eq!(rig.get(0, reg::NODES), 2);
    assert_eq!(rig.get(0, reg::LINKS), 0);
    assert_eq!(rig.get(1, reg::WINDOW_SIZE), 32 * 1024);
}

#[test]
fn page_shift_is_fixed_while_enabled() {
    let mut rig = Rig::cold(Speed::default());
    for (value, kept) in [(16, 16), (17, 16), (11, 16), (13, 13)] {
        rig.set(0, reg::PAGE_SHIFT, value);
        assert_eq!(rig.get(0, reg::PAGE_SHIFT), kept);
    }
    rig.set(0, reg::CONTROL, Control::ENABLE);
    rig.set(0, reg::PAGE_SHIFT, 12);
    assert_eq!(rig.get(0, reg::PAGE_SHIFT), 13);
}

#[test]
fn link_goes_down_and_stale_imports_stay_down() {
    let mut rig = Rig::new();
    rig.regions(1 << 20);
    assert_eq!(
        rig.get(1, reg::STATUS),
        DeviceStatus::READY | DeviceStatus::LINK_UP
    );
    assert_eq!(rig.get(0, reg::LINKS), 0b10);
    assert_eq!(rig.get(0, reg::LINK_GENERATION.at(1).unwrap()), 1);
    assert_eq!(rig.get(1, reg::LINK_GENERATION.at(0).unwrap()), 1);
    assert_eq!(
        rig.get(0, reg::EVENT) & EventCauses::LINK,
        EventCauses::LINK
    );
    rig.set(0, reg::EVENT, EventCauses::LINK);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 1 << 20), 1);
    assert!(rig.step());
    rig.set(1, reg::CONTROL, Control::NONE);
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::READY);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::LINK);
    let (_, bytes, end) = rig.guests[0].record(OURS, 1);
    assert_eq!((bytes, end), (256 * 1024, Status::LinkDown as u64));
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(4, 0), 8),
        refused(Status::LinkDown)
    );
    rig.set(1, reg::CONTROL, Control::ENABLE);
    assert_eq!(rig.get(0, reg::LINK_GENERATION.at(1).unwrap()), 2);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(4, 0), 8),
        refused(Status::LinkDown),
        "an import of the generation before"
    );
    rig.plug(false);
    assert_eq!(rig.get(1, reg::STATUS), DeviceStatus::READY);
}

#[test]
fn a_peer_that_leaves_takes_its_transfers_along() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 2);
    let memories: Vec<_> = rig.memories.iter().collect();
    rig.model.detach(1, &memories);
    rig.run();
    assert_eq!(rig.guests[0].record(OURS, 1).2, Status::LinkDown as u64);
    assert_eq!(rig.guests[0].record(OURS, 2).2, Status::Ok as u64);
    // The other host is switched on again.
    rig.model.attach(1);
    rig.model.config_store(1, 4, &[0x06, 0]);
    rig.probe(1);
    assert_eq!(rig.get(0, reg::LINK_GENERATION.at(1).unwrap()), 2);
}

#[test]
fn invalidation_aborts_what_it_names_and_nothing_else() {
    for kind in [Invalidation::REGION, Invalidation::SPACE, Invalidation::ALL] {
        let mut rig = Rig::new();
        rig.regions(PAGE);
        rig.guests[0].register(8, OTHER_SPACE, 700, FREE + (6 << 20), PAGE);
        let other = ((700 * PAGE, 8), (700 * PAGE + 64, 8));
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
        assert_eq!(rig.initiate(0, THEIRS, other.0, other.1, 8), 1);
        let index = if kind == Invalidation::SPACE {
            SPACE
        } else {
            2
        };
        rig.invalidate(0, kind, index);
        assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
        rig.run();
        assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Aborted as u64);
        let expected = if kind == Invalidation::ALL {
            Status::Aborted
        } else {
            Status::Ok
        };
        assert_eq!(rig.guests[0].record(THEIRS, 1).2, expected as u64);
    }
}

#[test]
fn invalidation_reaches_imports_at_the_peer() {
    for (kind, index) in [
        (Invalidation::REGION, 3),
        (Invalidation::SPACE, OTHER_SPACE),
    ] {
        let mut rig = Rig::new();
        rig.regions(PAGE);
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 2);
        rig.invalidate(1, kind, index);
        rig.run();
        assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Revoked as u64);
        assert_eq!(rig.guests[0].record(OURS, 2).2, Status::Ok as u64);
    }
}

#[test]
fn invalidation_waits_for_the_chunk_in_flight() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    let Ok(job) = rig.next(Instant::now()) else {
        panic!("nothing to do");
    };
    rig.invalidate(0, Invalidation::REGION, 1);
    rig.invalidate(0, Invalidation::REGION, 1);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 2);
    rig.set(1, reg::CONTROL, Control::RESET);
    assert_eq!(
        rig.get(1, reg::STATUS),
        DeviceStatus::NONE,
        "a reset waits as well"
    );
    let memories: Vec<_> = rig.memories.iter().collect();
    let outcome = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, outcome, &memories);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    assert_eq!(rig.get(1, reg::STATUS), DeviceStatus::READY);
    assert_eq!(
        rig.guests[0].record(OURS, 1),
        (1, 8, Status::Aborted as u64)
    );
}

#[test]
fn a_region_that_changes_under_a_transfer_aborts_it() {
    for flags in [RegionFlags::NONE, ALL_RIGHTS] {
        let mut rig = Rig::new();
        rig.regions(1 << 20);
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 1 << 20), 1);
        assert!(rig.step());
        let entry = RegionEntry {
            flags,
            space: SPACE,
            length: 1 << 20,
            generation: 2,
            run_count: 1,
            first_page: 10,
            ..RegionEntry::default()
        };
        rig.guests[0].put_region(1, &entry);
        rig.run();
        let (_, bytes, end) = rig.guests[0].record(OURS, 1);
        assert_eq!((bytes, end), (256 * 1024, Status::Aborted as u64));
    }
}

#[test]
fn contexts_take_turns() {
    let mut rig = Rig::new();
    rig.regions(1 << 20);
    rig.guests[0].register(8, OTHER_SPACE, 2000, FREE + (6 << 20), PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 1 << 20), 1);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 1 << 20), 2);
    let theirs = rig.initiate(0, THEIRS, (2000 * PAGE, 8), (2000 * PAGE + 64, 8), 8);
    assert_eq!(theirs, 1);
    assert!(rig.step() && rig.step());
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    let mut chunks = 1;
    while rig.step() {
        chunks += 1;
    }
    assert_eq!((chunks, rig.guests[0].completed(OURS)), (8, (2, 0)));
}

#[test]
fn interrupts_of_completions() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    rig.set(0, reg::EVENT, EventCauses::from_bits(u32::MAX));
    let raised = |rig: &Rig| rig.model.report().nodes[0].interrupts[0];
    let before = raised(&rig);
    let transfer = |rig: &mut Rig| {
        assert!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8) > 0);
        rig.run();
    };
    transfer(&mut rig);
    assert_eq!(raised(&rig), before, "no interrupt was requested");
    rig.set_ctx(0, OURS, ctx::ARM, 0);
    assert_eq!(raised(&rig), before + 1, "it has happened already");
    rig.set_ctx(0, OURS, ctx::ARM, 2);
    transfer(&mut rig);
    assert_eq!(raised(&rig), before + 1);
    transfer(&mut rig);
    assert_eq!(raised(&rig), before + 2);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::COMPLETION);
    let always = ContextControl::ENABLE | ContextControl::INTERRUPT_ALWAYS;
    rig.set_ctx(0, OURS, ctx::CONTROL, always);
    transfer(&mut rig);
    transfer(&mut rig);
    assert_eq!(raised(&rig), before + 4);
}

#[test]
fn doorbells_and_scratchpads() {
    let mut rig = Rig::cold(Speed::default());
    rig.probe(0);
    rig.set(0, reg::SCRATCHPAD.at(1).unwrap(), 42);
    let far = reg::PEER_SCRATCHPAD.at(SCRATCHPADS).unwrap();
    let ring = reg::PEER_DOORBELL.at(1).unwrap();
    assert_eq!(rig.get(0, far), u32::MAX);
    rig.set(0, ring, 1);
    rig.probe(1);
    assert_eq!(rig.get(1, reg::PEER_SCRATCHPAD.at(1).unwrap()), 42);
    assert_eq!(rig.get(1, reg::DOORBELL), 0, "rung while the link was down");
    rig.set(1, reg::DOORBELL_MASK, 0b10);
    rig.set(0, ring, 0b10);
    assert_eq!(rig.model.report().nodes[1].interrupts[1], 0);
    rig.set(0, ring, 0b01);
    assert_eq!(rig.get(1, reg::DOORBELL), 0b11);
    assert_eq!(rig.model.report().nodes[1].interrupts[1], 1);
    rig.set(1, reg::DOORBELL, 0b01);
    assert_eq!(
        rig.get(1, reg::EVENT) & EventCauses::DOORBELL,
        EventCauses::NONE
    );
    rig.set(1, reg::DOORBELL_MASK, 0);
    assert_eq!(rig.model.report().nodes[1].interrupts[1], 1);
    assert_ne!(
        rig.get(1, reg::EVENT) & EventCauses::DOORBELL,
        EventCauses::NONE
    );
    assert_eq!(rig.get(1, reg::DOORBELL), 0b10);
}

#[test]
fn without_bus_mastering_or_memory_decoding_nothing_moves() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    rig.model.config_store(0, 4, &[0x02, 0]);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 8),
        refused(Status::BusError)
    );
    rig.run();
    assert_eq!(
        rig.guests[0].completed(OURS),
        (0, 0),
        "not even a completion"
    );
    assert_eq!(
        rig.get(0, reg::EVENT) & EventCauses::ERROR,
        EventCauses::ERROR
    );
    rig.model.config_store(0, 4, &[0x04, 0]);
    assert_eq!(rig.get(0, reg::ID), u32::MAX);
    rig.set(0, reg::CONTROL, Control::NONE);
    rig.model.config_store(0, 4, &[0x06, 0]);
    assert_eq!(rig.get(0, reg::CONTROL), Control::ENABLE);
}

#[test]
fn addresses_that_do_not_answer() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    rig.guests[0].put_page(
        600,
        &page_entry(PAGE_RIGHTS.with_address(0xdead_f000), SPACE, 0),
    );
    assert_eq!(rig.initiate(0, OURS, (600 * PAGE, 0), at(2, 0), 8), 1);
    rig.run();
    assert_eq!(
        rig.guests[0].record(OURS, 1),
        (1, 0, Status::BusError as u64)
    );
    assert_eq!(
        rig.get(0, reg::EVENT) & EventCauses::ERROR,
        EventCauses::ERROR
    );
    for directory in [0, 0x1000, 0x1001, u64::MAX] {
        rig.set(0, reg::PAGE_DIRECTORY, directory);
        let expected = if directory == 0 {
            Status::NotValid
        } else {
            Status::BusError
        };
        assert_eq!(
            rig.initiate(0, OURS, at(1, 0), at(2, 0), 8),
            refused(expected)
        );
    }
}

#[test]
fn reset_ends_everything_without_completions() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    let Ok(job) = rig.next(Instant::now()) else {
        panic!("nothing to do");
    };
    rig.set(0, reg::CONTROL, Control::RESET);
    rig.set(0, reg::CONTROL, Control::ENABLE);
    assert_eq!(rig.get(0, reg::CONTROL), Control::NONE, "not ready");
    let memories: Vec<_> = rig.memories.iter().collect();
    let outcome = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, outcome, &memories);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::READY);
    assert_eq!(rig.get(0, reg::PAGE_DIRECTORY), 0);
    assert_eq!(rig.get(1, reg::STATUS), DeviceStatus::READY, "link is down");
    rig.probe(0);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    rig.run();
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
}

#[test]
fn a_stalled_engine_ends_nothing() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    rig.fault(0, Fault::Stall, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    rig.run();
    rig.invalidate(0, Invalidation::ALL, 0);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 1);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::BUSY);
    rig.fault(0, Fault::Stall, false);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::NONE);
    rig.fault(0, Fault::Stall, true);
    rig.set(0, reg::CONTROL, Control::RESET);
    assert_eq!(rig.get(0, reg::STATUS), DeviceStatus::NONE);
}

#[test]
fn other_faults() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let data = pattern(64, 5);
    rig.guests[0].put(FREE + 0x123, &data);
    rig.fault(0, Fault::Corrupt, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 64), 1);
    rig.run();
    let copy = rig.guests[0].get(FREE + (4 << 20) + 0x456, 64);
    let flipped: u32 = copy
        .iter()
        .zip(&data)
        .map(|(a, b)| (a ^ b).count_ones())
        .sum();
    assert_eq!(flipped, 1);
    rig.fault(0, Fault::BusError, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 64), 2);
    rig.run();
    assert_eq!(rig.guests[0].record(OURS, 2).2, Status::BusError as u64);
    rig.fault(0, Fault::ForgeCompletion, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 64), 3);
    rig.run();
    assert!(rig.guests[0].completed(OURS).0 > 1 << 40);
    rig.fault(0, Fault::BadId, true);
    assert_ne!(rig.get(0, reg::ID), ID_MAGIC);
    let raised = rig.model.report().nodes[0].interrupts[0];
    rig.fault(0, Fault::DropInterrupt, true);
    rig.fault(0, Fault::Gone, true);
    assert_eq!(rig.get(0, reg::ID), u32::MAX);
    assert_eq!(rig.get(1, reg::STATUS), DeviceStatus::READY);
    let mut config = [0; 4];
    rig.model.config_load(0, 0, &mut config);
    assert_eq!(config, [0xff; 4]);
    assert_eq!(rig.model.report().nodes[0].interrupts[0], raised);
    rig.fault(0, Fault::Gone, false);
    assert_eq!(rig.get(0, reg::ID), u32::MAX, "nothing is decoded yet");
}

#[test]
fn delay_holds_a_transfer_back() {
    let mut rig = Rig::cold(Speed {
        delay: Duration::from_secs(3600),
        ..Speed::default()
    });
    rig.probe(0);
    rig.regions(PAGE);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    assert!(matches!(rig.next(Instant::now()), Err(Some(_))));
    rig.invalidate(0, Invalidation::ALL, 0);
    assert_eq!(rig.guests[0].record(OURS, 1).2, Status::Aborted as u64);
}

#[test]
fn counters_go_on_from_whatever_a_guest_has_written() {
    use uldma_device::abi::status_page;
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let page = rig.guests[0].status_page(OURS);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    for counter in [
        status_page::COMPLETED,
        status_page::FAILED,
        status_page::REFUSED,
    ] {
        rig.guests[0].put64(page + counter, u64::MAX);
    }
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::ENABLE);
    // The ticket after the last one looks like an error to the load, but the engine continues.
    rig.initiate(0, OURS, at(1, 0), at(2, 0), 8);
    rig.run();
    assert_eq!(rig.get_ctx(0, OURS, ctx::TICKET), 0);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 8), 1);
    rig.invalidate(0, Invalidation::ALL, 0);
    rig.run();
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    assert!(rig.initiate(0, OURS, at(1, 0), (0, 0), 8) < 0);
    assert_eq!(rig.guests[0].refused(OURS), 0);
}
