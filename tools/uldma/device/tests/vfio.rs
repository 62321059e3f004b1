// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device over its sockets, with the client of the `vfio_user` crate in QEMU's place.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant};

use common::host::{start, start_nodes, wait_for, Host};
use common::rig::of_context;
use common::{pattern, Descriptor, BASE, FREE, PAGE};
use rustix::fs::FallocateFlags;
use tempfile::TempDir;
use uldma_device::abi::{Method, Status};
use uldma_device::control;
use uldma_device::engine::Speed;
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, DeviceStatus, EventCauses, BAR_CONTEXT, BAR_CONTROL,
    BAR_SHADOW, BAR_WINDOW, ID_MAGIC,
};
use uldma_device::method::Compare;
use uldma_device::node::Shape;

const SHAPE: Shape = Shape {
    contexts: 8,
    shadow_bits: 34,
    window_size: 1 << 20,
    methods: Method::ALL,
    compare: Compare::Full,
};
const SLICE: u64 = 1 << 31;
const MEMORY: u64 = 64 << 20;
/// What `st_blocks` counts.
const BLOCK: u64 = 512;

fn pair(speed: Speed) -> (TempDir, Host, Host) {
    let directory = TempDir::new().unwrap();
    start(directory.path(), SHAPE, speed);
    let first = Host::connect(&directory.path().join("a"), MEMORY);
    let second = Host::connect(&directory.path().join("b"), MEMORY);
    (directory, first, second)
}

#[test]
fn a_transfer_from_node_to_node() {
    let (_directory, mut first, mut second) = pair(Speed::default());
    first.probe(3);
    second.probe(4);
    first.interrupt(0);
    second.interrupt(0);
    assert_eq!(first.get(reg::EVENT), EventCauses::LINK);
    first.set(reg::EVENT, EventCauses::LINK);

    let length = 3 << 20;
    let data = pattern(length as usize, 1);
    first.guest.put(FREE, &data);
    first.guest.register(1, 3, 0, FREE, length);
    second.guest.register(9, 4, 64, FREE + (4 << 20), length);
    first.guest.import(2, 3, 2000, (1, 9), length);
    let ticket = first.initiate(SLICE, (0, 1), (2000 * PAGE, 2), length as u32);
    assert_eq!(ticket, 1);
    wait_for("completion", || first.guest.completed(1) == (1, 0));
    assert_eq!(second.guest.get(FREE + (4 << 20), data.len()), data);
    first.interrupt(0);
    assert_eq!(first.get(reg::EVENT), EventCauses::COMPLETION);

    for (register, count) in [
        (ctx::SHADOW_STORES, 1),
        (ctx::SHADOW_LOADS, 1),
        (ctx::INITIATIONS, 1),
        (ctx::REFUSED, 0),
        (ctx::BYTES, length),
    ] {
        assert_eq!(first.get(of_context(1, register)), count, "{register:?}");
    }

    first.set(reg::PEER_DOORBELL.at(1).unwrap(), 0x10);
    second.interrupt(0);
    assert_eq!(second.get(reg::DOORBELL), 0x10);
    first.set(reg::PEER_DOORBELL.at(1).unwrap(), 1);
    second.interrupt(1);
    assert_eq!(second.get(reg::DOORBELL), 0x11);
}

#[test]
fn a_storm_of_doorbells() {
    let directory = TempDir::new().unwrap();
    let device = start(directory.path(), SHAPE, Speed::default());
    let mut host = Host::connect(&directory.path().join("b"), MEMORY);
    host.probe(3);
    let storm = |on| control::set_fault(&device, Fault::Storm, Some(1), on).unwrap();
    storm(true);
    for _ in 0..100 {
        host.interrupt(1);
        host.set(reg::DOORBELL, u32::MAX);
    }
    storm(false);
    host.set(reg::DOORBELL, u32::MAX);
    assert_eq!(host.get(reg::DOORBELL), 0);
    let interrupts = device.with(|model, _| model.report().nodes[1].interrupts[1]);
    assert!(interrupts >= 100);
}

#[test]
fn the_window_is_one_memory() {
    let (_directory, mut first, mut second) = pair(Speed::default());
    let section = first.get(reg::WINDOW_SIZE);
    assert_eq!(section, SHAPE.window_size / 2);
    let region = first.client.region(BAR_WINDOW).unwrap();
    assert_eq!(region.sparse_areas.len(), 1);
    assert_eq!(region.sparse_areas[0].size, SHAPE.window_size);
    let file = region.file_offset.as_ref().unwrap().file();
    file.write_all_at(b"direct", section).unwrap();
    let mut data = [0; 6];
    second
        .client
        .region_read(BAR_WINDOW, section, &mut data)
        .unwrap();
    assert_eq!(&data, b"direct");
    second.store(BAR_WINDOW, section + 8, 8, 77);
    let mut word = [0; 8];
    file.read_exact_at(&mut word, section + 8).unwrap();
    assert_eq!(u64::from_le_bytes(word), 77);
    assert_eq!(second.load(BAR_WINDOW, SHAPE.window_size, 8), u64::MAX);
    second.store(BAR_WINDOW, u64::MAX - 3, 8, 1);
    for bar in [BAR_CONTROL, BAR_SHADOW] {
        assert!(first.client.region(bar).unwrap().file_offset.is_none());
    }
}

#[test]
fn a_host_that_leaves_and_comes_back() {
    let (directory, mut first, mut second) = pair(Speed::default());
    first.probe(3);
    second.probe(4);
    assert_eq!(first.get(reg::LINK_GENERATION.at(1).unwrap()), 1);
    first.guest.register(1, 3, 0, FREE, PAGE);
    second.guest.register(9, 4, 0, FREE, PAGE);
    first.guest.import(2, 3, 2000, (1, 9), PAGE);
    drop(second);
    wait_for("link down", || {
        first.get(reg::STATUS) == DeviceStatus::READY
    });
    let answer = first.initiate(SLICE, (0, 1), (2000 * PAGE, 2), 8);
    assert_eq!(answer, Status::LinkDown.negated());
    let mut second = Host::connect(&directory.path().join("b"), MEMORY);
    assert_eq!(second.get(reg::CONTROL), Control::NONE);
    second.probe(4);
    assert_eq!(first.get(reg::LINK_GENERATION.at(1).unwrap()), 2);
    assert_eq!(
        first.get(reg::STATUS),
        DeviceStatus::READY | DeviceStatus::LINK_UP
    );
}

#[test]
fn a_node_reaches_its_section_and_its_lanes() {
    let names = ["a", "b", "c"];
    let directory = TempDir::new().unwrap();
    let device = start_nodes(directory.path(), SHAPE, &names, Speed::default());
    let connect = |name| Host::connect(&directory.path().join(name), MEMORY);
    let [mut first, mut second, mut third] = names.map(connect);
    let section = SHAPE.window_size / 4;
    let lane = section / 2;
    assert_eq!(first.get(reg::WINDOW_SIZE), section);
    let areas = |host: &Host| {
        let areas = &host.client.region(BAR_WINDOW).unwrap().sparse_areas;
        let areas = areas.iter().map(|area| (area.offset, area.size));
        areas.collect::<Vec<_>>()
    };
    assert_eq!(
        areas(&first),
        [(0, section + lane), (2 * section, lane)],
        "the first lane of the others"
    );
    assert_eq!(
        areas(&second),
        [(0, lane), (section, section), (2 * section + lane, lane)]
    );
    assert_eq!(
        areas(&third),
        [(lane, lane), (section + lane, lane + section)]
    );

    // What the first writes for the second.
    let place = section + 8;
    first.store(BAR_WINDOW, place, 8, 77);
    assert_eq!(second.load(BAR_WINDOW, place, 8), 77);
    assert_eq!(third.load(BAR_WINDOW, place, 8), u64::MAX);
    third.store(BAR_WINDOW, place, 8, 99);
    assert_eq!(second.load(BAR_WINDOW, place, 8), 77);
    // Half of it is of another.
    third.store(BAR_WINDOW, section + lane - 4, 8, u64::MAX >> 1);
    assert_eq!(second.load(BAR_WINDOW, section + lane - 4, 8), 0);
    let foreign = |node: usize| {
        let report = device.with(|model, _| model.report());
        report.nodes[node].counters.window_foreign
    };
    assert_eq!([0, 1, 2].map(foreign), [0, 0, 3]);
}
#[test]
fn a_function_reset() {
    let (_directory, mut first, mut second) = pair(Speed::default());
    first.probe(3);
    second.probe(4);
    first.client.reset().unwrap();
    assert_eq!(first.get(reg::ID), u32::MAX, "decodes nothing");
    first.command(&[0x06, 0]);
    assert_eq!(first.get(reg::ID), ID_MAGIC);
    assert_eq!(first.get(reg::CONTROL), Control::NONE);
    assert_eq!(second.get(reg::STATUS), DeviceStatus::READY);
    first.probe(3);
    assert_eq!(
        second.get(reg::STATUS),
        DeviceStatus::READY | DeviceStatus::LINK_UP
    );
}

/// Begins a transfer into memory of its own, at `address`, so that the tables stay where they are.
/// Returns that memory when the first bytes have come.
fn begin(host: &mut Host, address: u64, moved: u64) -> File {
    begin_into(host, common::memfd(moved), address, moved)
}

/// As [`begin`], into this memory.
fn begin_into(host: &mut Host, target: File, address: u64, moved: u64) -> File {
    host.client
        .dma_map(0, address, moved, target.as_raw_fd())
        .unwrap();
    host.guest.put(FREE, &pattern(moved as usize, 2));
    host.guest.register(1, 3, 0, FREE, moved);
    host.guest.register(2, 3, 8192, address, moved);
    let ticket = host.initiate(SLICE, (0, 1), (8192 * PAGE, 2), moved as u32);
    assert_eq!(ticket, 1);
    let mut byte = [0];
    wait_for("first byte", || {
        target.read_exact_at(&mut byte, 64).unwrap();
        byte != [0]
    });
    target
}

#[test]
fn nothing_is_moved_after_an_unmap() {
    let (_directory, mut first, _second) = pair(Speed::default());
    first.probe(3);
    let moved = 32 << 20;
    let address = BASE + MEMORY;
    let target = begin(&mut first, address, moved);
    first.client.dma_unmap(address, moved).unwrap();
    // A hole reads as zero; what the device still wrote would fill it again.
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&target, hole, 0, moved).unwrap();
    wait_for("completion", || first.guest.completed(1).0 == 1);
    let (_, bytes, end) = first.guest.record(1, 1);
    if bytes < moved {
        assert_eq!(end, Status::BusError as u64);
    }
    let mut after = vec![1; moved as usize];
    target.read_exact_at(&mut after, 0).unwrap();
    assert!(after.iter().all(|byte| *byte == 0));
}

/// A page that the device is the first to touch is charged to the cgroup of its process, so QEMU allocates
/// the memory of a guest before (`prealloc=on`, security.rst).
#[test]
fn memory_that_is_there_is_not_allocated_by_the_device() {
    let moved = 4 << 20;
    for is_there in [false, true] {
        let (_directory, mut first, _second) = pair(Speed::default());
        first.probe(3);
        let target = common::memfd(moved);
        if is_there {
            rustix::fs::fallocate(&target, FallocateFlags::empty(), 0, moved).unwrap();
        }
        let before = target.metadata().unwrap().blocks();
        let target = begin_into(&mut first, target, BASE + MEMORY, moved);
        wait_for("completion", || first.guest.completed(1) == (1, 0));
        let after = target.metadata().unwrap().blocks();
        assert_eq!(after, moved / BLOCK);
        assert_eq!(before, if is_there { after } else { 0 });
    }
}

/// The end of bus mastering meets the engine at another place of a chunk each time.
#[test]
fn nothing_is_moved_without_bus_mastering() {
    for round in 0..20 {
        let (_directory, mut first, mut second) = pair(Speed::default());
        first.probe(3);
        second.probe(4);
        let moved = 8 << 20;
        let target = begin(&mut first, BASE + MEMORY, moved);
        first.command(&[0x02, 0]);
        // What the device still wrote would fill it again.
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&target, hole, 0, moved).unwrap();
        // By the same engine, after the chunk that it was moving.
        second.guest.register(9, 4, 64, FREE, 2 * PAGE);
        second.initiate(SLICE, (64 * PAGE, 9), (65 * PAGE, 9), PAGE as u32);
        wait_for("the other node", || second.guest.completed(1).0 == 1);
        let mut after = vec![1; moved as usize];
        target.read_exact_at(&mut after, 0).unwrap();
        assert!(after.iter().all(|byte| *byte == 0), "round {round}");
    }
}

#[test]
fn accesses_of_any_width_and_place() {
    let (_directory, mut first, _second) = pair(Speed::default());
    first.probe(3);
    for region in 0..9 {
        for offset in [0, 1, 4, 0x58, 0x1004, 0x7fff, 0xfffc, SLICE, u64::MAX - 2] {
            for width in [0, 1, 2, 3, 4, 8, 12, 64] {
                let mut data = vec![0x5a; width];
                first.client.region_write(region, offset, &data).unwrap();
                first.client.region_read(region, offset, &mut data).unwrap();
            }
        }
    }
    first.command(&[0x06, 0]);
    assert_eq!(first.get(reg::ID), ID_MAGIC);
}

/// A queue of descriptors that is switched on and off, polled by the device's own thread, during a
/// long transfer by another context.
#[test]
fn a_queue_sleeps_and_wakes() {
    let poll = Duration::from_micros(200);
    let (_directory, mut first, _second) = pair(Speed {
        poll,
        ..Speed::default()
    });
    first.probe(3);
    first.guest.register(1, 3, 0, FREE, 16 << 20);
    first
        .guest
        .register(2, 3, 5000, FREE + (16 << 20), 16 << 20);
    let (status, descriptors) = (first.guest.status_page(2), first.guest.descriptors(2));
    first.set(of_context(2, ctx::STATUS_PAGE), status);
    first.set(of_context(2, ctx::QUEUE), descriptors);
    first.set(of_context(2, ctx::SPACE), 3);
    first.set(of_context(2, ctx::METHODS), Method::Queue.bit());
    first.set(of_context(2, ctx::CONTROL), ContextControl::ENABLE);

    let long = first.initiate(SLICE, (0, 1), (5000 * PAGE, 2), 16 << 20);
    assert_eq!(long, 1);
    let counter = FREE + (4 << 20);
    for ticket in 1..=500 {
        if ticket % 50 == 0 {
            wait_for("sleep", || first.guest.wakeup(2) == 1);
        }
        let add = Descriptor::add((1, 4 << 20), 1);
        first.guest.submit(2, ticket, &add);
        if first.guest.wakeup(2) == 1 {
            first.store(BAR_CONTEXT, 2 * PAGE, 8, 0);
        }
        wait_for("completion", || first.guest.completed(2) == (ticket, 0));
    }
    wait_for("the long one", || first.guest.completed(1) == (1, 0));
    assert_eq!(first.guest.get64(counter), 500);

    // The queue is off, and its page belongs to another context.
    first.set(of_context(2, ctx::CONTROL), ContextControl::NONE);
    assert_eq!(first.get(of_context(2, ctx::CONTROL)), ContextControl::NONE);
    first.guest.put(status, &[0; PAGE as usize]);
    first
        .guest
        .submit(2, 501, &Descriptor::add((1, 4 << 20), 1));
    first.store(BAR_CONTEXT, 2 * PAGE, 8, 0);
    std::thread::sleep(20 * poll);
    assert_eq!(first.guest.get64(counter), 500);
    assert_eq!(first.guest.get(status, PAGE as usize), [0; PAGE as usize]);
}

#[test]
fn accesses_take_their_time() {
    let access = Duration::from_millis(3);
    let (_directory, mut first, _second) = pair(Speed {
        access,
        ..Speed::default()
    });
    let began = Instant::now();
    assert_eq!(first.get(reg::ID), ID_MAGIC);
    first.set(reg::DOORBELL_MASK, 0);
    assert!(began.elapsed() >= 2 * access);
}
