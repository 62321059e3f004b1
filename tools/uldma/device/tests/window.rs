// SPDX-License-Identifier: MIT OR Apache-2.0

//! Regions in the node's own section of the window.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::endpoint::{buffer, data, message, post, received, rig, run, send, sent};
use common::rig::{at, Rig, OTHER_SPACE, OURS, SPACE};
use common::{import_from, pattern, Descriptor, FREE, PAGE};
use uldma_device::abi::{Method, Status};
use uldma_device::layout::{reg, Invalidation, RegionEntry, RegionFlags};

/// The region in the window of node 0, and of node 1.
const OUT: u32 = 20;
const IN: u32 = 21;
const START: u64 = 0x1238;
const LENGTH: u64 = 3 * PAGE;

fn entry(space: u32, offset: u64, length: u64) -> RegionEntry {
    RegionEntry {
        flags: common::ALL_RIGHTS | RegionFlags::WINDOW,
        space,
        offset,
        length,
        generation: 1,
        ..RegionEntry::default()
    }
}

/// The endpoints of [`rig`], each with a region in the window of its node.
fn windows() -> Rig {
    let rig = rig();
    rig.guests[0].put_region(OUT, &entry(SPACE, START, LENGTH));
    rig.guests[1].put_region(IN, &entry(OTHER_SPACE, START, LENGTH));
    rig
}

fn from_window(position: u64, length: u64) -> Descriptor {
    Descriptor {
        source: (OUT, position),
        ..message(0, length)
    }
}

fn to_window(position: u64, length: u64) -> Descriptor {
    Descriptor {
        destination: (IN, position),
        ..buffer(0, length)
    }
}

/// The bytes that node 0 has moved, that were read from the window, and that were written to it.
fn counted(rig: &Rig) -> (u64, u64, u64) {
    let report = rig.model.report();
    let counters = &report.nodes[0].counters;
    let (from, to) = (counters.bytes_from_window, counters.bytes_to_window);
    (counters.bytes_to_peer, from, to)
}

/// The window, if only these bytes of a node's section are not zero.
fn window_with(rig: &Rig, node: u64, offset: u64, data: &[u8]) -> Vec<u8> {
    let mut window = vec![0; 2 * rig.section as usize];
    let start = (node * rig.section + offset) as usize;
    window[start..][..data.len()].copy_from_slice(data);
    window
}

#[test]
fn messages_go_from_the_window_to_memory() {
    let mut rig = windows();
    let data = pattern(LENGTH as usize, 5);
    rig.put_window(0, START, &data);
    post(&rig, 1, buffer(7, LENGTH));
    send(&rig, 1, from_window(11, LENGTH - 11));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (LENGTH - 11, Status::Ok));
    let found = rig.guests[1].get(FREE + 0x789 + 7, data.len() - 11);
    assert_eq!(found, &data[11..]);
    assert_eq!(counted(&rig), (LENGTH - 11, LENGTH - 11, 0));
    assert_eq!(rig.window(), window_with(&rig, 0, START, &data));
}

#[test]
fn messages_go_from_memory_to_the_window() {
    let mut rig = windows();
    let data = data(&rig, LENGTH);
    post(&rig, 1, to_window(8, LENGTH - 8));
    send(&rig, 1, message(1, LENGTH - 9));
    run(&mut rig);
    assert_eq!(received(&rig, 1), (LENGTH - 9, Status::Ok, 0));
    assert_eq!(counted(&rig), (LENGTH - 9, 0, LENGTH - 9));
    let expected = &data[1..][..LENGTH as usize - 9];
    assert_eq!(rig.window(), window_with(&rig, 1, START + 8, expected));
}

#[test]
fn messages_go_from_window_to_window() {
    let mut rig = windows();
    let data = pattern(100, 9);
    rig.put_window(0, START, &data);
    post(&rig, 1, to_window(0, 100));
    send(&rig, 1, from_window(0, 100));
    run(&mut rig);
    assert_eq!(received(&rig, 1), (100, Status::Ok, 0));
    assert_eq!(counted(&rig), (100, 100, 100));
    let window = rig.window();
    let place = (rig.section + START) as usize;
    assert_eq!(window[place..][..100], data);
    assert_eq!(window[START as usize..][..100], data);
}

#[test]
fn copies_and_words_of_a_queue_reach_the_window() {
    let mut rig = windows();
    rig.put_window(0, START, &41u64.to_le_bytes());
    send(&rig, 1, Descriptor::add((OUT, 0), 1));
    send(&rig, 2, Descriptor::copy((OUT, 0), (2, 0), 8));
    // To the peer's memory, through an import.
    send(&rig, 3, Descriptor::copy((OUT, 0), (4, 0), 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (41, Status::Ok));
    assert_eq!(sent(&rig, 2), (8, Status::Ok));
    assert_eq!(sent(&rig, 3), (8, Status::Ok));
    let place = FREE + (4 << 20) + 0x456;
    assert_eq!(rig.guests[0].get(place, 8), 42u64.to_le_bytes());
    assert_eq!(rig.guests[1].get(FREE + 0x789, 8), 42u64.to_le_bytes());
}

#[test]
fn a_sender_names_its_own_part_only() {
    let mut rig = windows();
    post(&rig, 1, buffer(0, 8));
    let section = rig.section;
    let of = |space, offset, length, flags| RegionEntry {
        flags: entry(0, 0, 0).flags | flags,
        ..entry(space, offset, length)
    };
    let none = RegionFlags::NONE;
    let mut write_only = entry(SPACE, START, LENGTH);
    write_only.flags = write_only.flags.without(RegionFlags::READ);
    for (ticket, (region, position, expected)) in (1..).zip([
        (entry(OTHER_SPACE, START, LENGTH), 0, Status::NotOwner),
        (write_only, 0, Status::NoRight),
        (entry(SPACE, START, LENGTH), LENGTH - 7, Status::Bounds),
        (entry(SPACE, START, LENGTH), u64::MAX, Status::Bounds),
        // Beyond the section is that of a peer.
        (of(SPACE, section, 8, none), 0, Status::NotValid),
        (of(SPACE, section - 8, 9, none), 0, Status::NotValid),
        (of(SPACE, u64::MAX, 8, none), 0, Status::NotValid),
        // No entry is of both kinds.
        (of(SPACE, 0, 8, import_from(1)), 0, Status::NotValid),
    ]) {
        rig.guests[0].put_region(OUT, &region);
        send(&rig, ticket, from_window(position, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, expected), "{region:?}");
    }
    // All of the section.
    rig.guests[0].put_region(OUT, &entry(SPACE, 0, section));
    send(&rig, 9, from_window(section - 8, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 9), (8, Status::Ok));
}

#[test]
fn a_receiver_offers_its_own_part_only() {
    let mut rig = windows();
    let section = rig.section;
    let mut read_only = entry(OTHER_SPACE, START, LENGTH);
    read_only.flags = read_only.flags.without(RegionFlags::WRITE);
    for (ticket, (region, length, expected)) in (1..).zip([
        (entry(SPACE, START, LENGTH), 8, Status::NotOwner),
        (read_only, 8, Status::NoRight),
        (entry(OTHER_SPACE, START, 8), 9, Status::Bounds),
        (entry(OTHER_SPACE, section - 8, 9), 8, Status::NotValid),
        (entry(OTHER_SPACE, section, 8), 8, Status::NotValid),
    ]) {
        rig.guests[1].put_region(IN, &region);
        post(&rig, ticket, to_window(0, length));
        send(&rig, ticket, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, Status::Remote), "{region:?}");
        assert_eq!(received(&rig, ticket), (0, expected, 0), "{region:?}");
    }
    assert_eq!(rig.window(), vec![0; 2 * section as usize]);
}

#[test]
fn no_peer_and_no_page_names_the_window() {
    let mut rig = windows();
    // The entry has the rights of an export, which do not count here.
    rig.guests[0].put_region(
        4,
        &RegionEntry {
            flags: import_from(1),
            space: SPACE,
            length: LENGTH,
            generation: 7,
            run_count: 1,
            first_page: 1000,
            peer_region: IN,
            link_generation: 1,
            peer_generation: 1,
            ..RegionEntry::default()
        },
    );
    send(&rig, 1, Descriptor::copy((1, 0), (4, 0), 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (0, Status::Remote));
    // A page entry is in no region of the window, whatever runs that has.
    let mut region = entry(SPACE, START, LENGTH);
    (region.run_count, region.first_page) = (1, 10);
    rig.guests[0].put_region(1, &region);
    rig.set_method(0, OURS, Method::ExtendedShadow);
    let refused = rig.initiate(0, OURS, at(1, 0), at(2, 0), 8);
    assert_eq!(refused, Status::NotValid.negated());
}

#[test]
fn a_region_that_ends_ends_its_message() {
    for (node, region) in [(0, OUT), (1, IN)] {
        let mut rig = windows();
        post(&rig, 1, to_window(0, 5000));
        send(&rig, 1, from_window(0, 5000));
        rig.put_window(0, START, &[1; 5000]);
        rig.hold(0, OURS, true);
        run(&mut rig);
        let gone = RegionEntry {
            flags: RegionFlags::NONE,
            ..entry(SPACE, START, LENGTH)
        };
        rig.guests[node].put_region(region, &gone);
        rig.invalidate(node, Invalidation::REGION, region);
        assert_eq!(rig.get(node, reg::INVALIDATE_PENDING), 1);
        rig.hold(0, OURS, false);
        run(&mut rig);
        assert_eq!(rig.get(node, reg::INVALIDATE_PENDING), 0);
        assert_eq!(sent(&rig, 1).1, Status::Aborted);
        // The next one finds no region.
        post(&rig, 2, to_window(0, 8));
        send(&rig, 2, from_window(0, 8));
        let before = rig.window();
        run(&mut rig);
        let expected = [Status::NotValid, Status::Remote][node];
        assert_eq!(sent(&rig, 2), (0, expected));
        assert_eq!(rig.window(), before);
    }
}
