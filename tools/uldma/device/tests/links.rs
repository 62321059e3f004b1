// SPDX-License-Identifier: MIT OR Apache-2.0

//! More than two nodes: each pair has its own link.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::rig::{refused, Rig, OURS, SHAPE, SPACE};
use common::{pattern, FREE, PAGE};
use uldma_device::abi::Status;
use uldma_device::engine::Speed;
use uldma_device::fault::Fault;
use uldma_device::layout::{
    reg, Control, DeviceStatus, EventCauses, Invalidation, RegionEntry, RegionFlags, BAR_CONTROL,
    CONTEXT_BLOCKS, MAX_NODES, SCRATCHPADS,
};

const NODES: usize = 3;
const LENGTH: u64 = 1 << 20;
/// First byte of region 1 and of the exported region 3, on each node.
const NEAR: u64 = FREE + 0x123;
const FAR: u64 = FREE + (4 << 20) + 0x456;

/// Region that is the import of region 3 of a node, and its first page entry.
fn import_of(node: usize) -> (u32, u32) {
    (10 + node as u32, 1000 + 400 * node as u32)
}

/// Three nodes; each has its own region 1, exports a region 3 and imports those of the others.
fn rig() -> Rig {
    let mut rig = Rig::of_nodes(NODES, SHAPE, Speed::default());
    for node in 0..NODES {
        rig.probe(node);
        rig.guests[node].register(1, SPACE, 10, NEAR, LENGTH);
        rig.guests[node].register(3, SPACE, 500, FAR, LENGTH);
        for peer in (0..NODES).filter(|peer| *peer != node) {
            let (region, entry) = import_of(peer);
            rig.guests[node].import(region, SPACE, entry, (peer as u32, 3), LENGTH);
        }
    }
    rig
}

/// Starts a copy of the first bytes of region 1 to a peer's region 3.
fn push(rig: &mut Rig, node: usize, peer: usize, bytes: u32) -> i64 {
    let (region, entry) = import_of(peer);
    let to = (u64::from(entry) * PAGE, region);
    rig.initiate(node, OURS, (10 * PAGE + 0x123, 1), to, bytes)
}

fn end(rig: &Rig, node: usize, ticket: u64) -> Status {
    Status::ALL[rig.guests[node].record(OURS, ticket).2 as usize]
}

fn links(rig: &mut Rig) -> [u32; NODES] {
    [0, 1, 2].map(|node| rig.get(node, reg::LINKS))
}

fn cut(rig: &mut Rig, one: usize, other: usize) {
    rig.set_link(one, other, false);
}

#[test]
fn nodes_come_one_by_one() {
    let mut rig = Rig::of_nodes(NODES, SHAPE, Speed::default());
    assert_eq!(rig.get(2, reg::NODE), 2);
    assert_eq!(rig.get(2, reg::NODES), 3);
    assert_eq!(rig.get(2, reg::WINDOW_SIZE), SHAPE.window_size / 4);
    let ready = DeviceStatus::READY;
    let up = DeviceStatus::READY | DeviceStatus::LINK_UP;
    for (node, expected, statuses) in [
        (1, [0, 0, 0], [ready; 3]),
        (0, [2, 1, 0], [up, up, ready]),
        (2, [6, 5, 3], [up; 3]),
    ] {
        rig.probe(node);
        assert_eq!(links(&mut rig), expected);
        let found = [0, 1, 2].map(|node| rig.get(node, reg::STATUS));
        assert_eq!(found, statuses);
    }
    let generations: Vec<_> = (0..MAX_NODES)
        .map(|peer| rig.get(1, reg::LINK_GENERATION.at(peer).unwrap()))
        .collect();
    assert_eq!(generations, [1, 0, 1, 0, 0, 0, 0, 0]);
}

#[test]
fn eight_nodes() {
    let mut rig = Rig::of_nodes(MAX_NODES, SHAPE, Speed::default());
    for node in 0..MAX_NODES {
        rig.probe(node);
    }
    for node in 0..MAX_NODES {
        assert_eq!(rig.get(node, reg::LINKS), 0xff & !(1 << node));
        assert_eq!(rig.get(node, reg::WINDOW_SIZE), SHAPE.window_size / 8);
    }
    rig.set(0, reg::PEER_DOORBELL.at(7).unwrap(), 1);
    rig.set(7, reg::SCRATCHPAD.at(7).unwrap(), 77);
    assert_eq!(rig.get(7, reg::DOORBELL), 1);
    let last = reg::PEER_SCRATCHPAD
        .at(MAX_NODES * SCRATCHPADS - 1)
        .unwrap();
    assert_eq!(rig.get(0, last), 77);
}

#[test]
fn doorbells_and_scratchpads_of_each_pair() {
    let mut rig = rig();
    for node in 0..NODES {
        rig.set(node, reg::SCRATCHPAD.at(1).unwrap(), 100 + node as u32);
        for peer in 0..MAX_NODES {
            rig.set(node, reg::PEER_DOORBELL.at(peer).unwrap(), 1 << node);
        }
    }
    for node in 0..NODES {
        // No node rings at itself.
        assert_eq!(rig.get(node, reg::DOORBELL), 0b111 & !(1 << node));
        for peer in 0..MAX_NODES {
            let expected = match peer {
                peer if peer == node || peer >= NODES => u32::MAX,
                peer => 100 + peer as u32,
            };
            let place = reg::PEER_SCRATCHPAD.at(peer * SCRATCHPADS + 1).unwrap();
            assert_eq!(rig.get(node, place), expected, "{node} {peer}");
        }
        let report = rig.model.report();
        let counters = &report.nodes[node].counters;
        assert_eq!((counters.doorbells, counters.doorbells_dropped), (2, 6));
        // Bit 0, which only the first node rang, has its own vector.
        assert_eq!(report.nodes[node].interrupts[1], u64::from(node != 0));
        assert_ne!(
            rig.get(node, reg::EVENT) & EventCauses::DOORBELL,
            EventCauses::NONE
        );
    }
}

#[test]
fn transfers_between_each_pair() {
    let mut rig = rig();
    for node in 0..NODES {
        for (ticket, peer) in (1..).zip((0..NODES).filter(|peer| *peer != node)) {
            let data = pattern(3000, (node * NODES + peer) as u64);
            rig.guests[node].put(NEAR, &data);
            assert_eq!(push(&mut rig, node, peer, 3000), ticket);
            rig.run();
            assert_eq!(end(&rig, node, ticket as u64), Status::Ok);
            for (number, guest) in rig.guests.iter().enumerate() {
                let found = guest.get(FAR, data.len()) == data;
                assert_eq!(found, number == peer, "{node} {peer}");
            }
        }
    }
}

#[test]
fn a_link_that_goes_down_takes_nothing_else_along() {
    let mut rig = rig();
    for node in 0..NODES {
        rig.set(node, reg::EVENT, EventCauses::from_bits(u32::MAX));
    }
    assert_eq!(push(&mut rig, 0, 1, 1 << 20), 1);
    assert_eq!(push(&mut rig, 0, 2, 1 << 20), 2);
    assert_eq!(push(&mut rig, 1, 2, 1 << 20), 1);
    assert_eq!(push(&mut rig, 1, 0, 8), 2);
    assert_eq!(push(&mut rig, 2, 1, 8), 1);
    cut(&mut rig, 1, 0);
    assert_eq!(links(&mut rig), [4, 4, 3]);
    let link = EventCauses::LINK;
    let events = [0, 1, 2].map(|node| rig.get(node, reg::EVENT) & link);
    assert_eq!(events, [link, link, EventCauses::NONE]);
    rig.run();
    let ends = [(0, 1), (0, 2), (1, 1), (1, 2), (2, 1)].map(|(node, at)| end(&rig, node, at));
    let (ok, down) = (Status::Ok, Status::LinkDown);
    assert_eq!(ends, [down, ok, ok, down, ok]);
    // Imports of before are refused when it is up again, those through the other links are not.
    rig.set_link(0, 1, true);
    assert_eq!(links(&mut rig), [6, 5, 3]);
    assert_eq!(rig.get(0, reg::LINK_GENERATION.at(1).unwrap()), 2);
    assert_eq!(rig.get(0, reg::LINK_GENERATION.at(2).unwrap()), 1);
    assert_eq!(push(&mut rig, 0, 1, 8), refused(down));
    assert_eq!(push(&mut rig, 0, 2, 8), 3);
    let report = serde_json::to_value(rig.model.report()).unwrap();
    let expected = serde_json::json!([
        {"nodes": [0, 1], "up": true, "generation": 2},
        {"nodes": [0, 2], "up": true, "generation": 1},
        {"nodes": [1, 2], "up": true, "generation": 1},
    ]);
    assert_eq!(report["links"], expected);
}

#[test]
fn a_node_that_leaves() {
    let mut rig = rig();
    assert_eq!(push(&mut rig, 0, 2, 8), 1);
    assert_eq!(push(&mut rig, 0, 1, 8), 2);
    rig.set(2, reg::CONTROL, Control::RESET);
    assert_eq!(links(&mut rig), [2, 1, 0]);
    rig.run();
    assert_eq!(
        [1, 2].map(|at| end(&rig, 0, at)),
        [Status::LinkDown, Status::Ok]
    );
}

#[test]
fn imports_of_nodes_that_are_not_there() {
    let mut rig = rig();
    let (region, entry) = import_of(1);
    for node in [0, 3, 8, 255] {
        rig.guests[0].import(region, SPACE, entry, (node, 3), LENGTH);
        assert_eq!(push(&mut rig, 0, 1, 8), refused(Status::LinkDown), "{node}");
    }
}

#[test]
fn invalidation_reaches_all_importers_of_one_node() {
    for kind in [Invalidation::REGION, Invalidation::SPACE, Invalidation::ALL] {
        let mut rig = rig();
        assert_eq!(push(&mut rig, 0, 2, 8), 1);
        assert_eq!(push(&mut rig, 1, 2, 8), 1);
        assert_eq!(push(&mut rig, 0, 1, 8), 2);
        rig.invalidate(
            2,
            kind,
            if kind == Invalidation::SPACE {
                SPACE
            } else {
                3
            },
        );
        rig.run();
        let ends = [(0, 1), (1, 1), (0, 2)].map(|(node, at)| end(&rig, node, at));
        assert_eq!(ends, [Status::Revoked, Status::Revoked, Status::Ok]);
    }
}

#[test]
fn an_import_that_changes_its_node_is_not_what_was_checked() {
    let mut rig = rig();
    assert_eq!(push(&mut rig, 0, 1, 8), 1);
    let (region, first_page) = import_of(1);
    let flags = RegionFlags::VALID | RegionFlags::REMOTE | RegionFlags::WRITE;
    let entry = RegionEntry {
        flags: flags.try_with(RegionFlags::NODE, 2).unwrap(),
        space: SPACE,
        length: LENGTH,
        generation: 8,
        run_count: 1,
        first_page,
        peer_region: 3,
        link_generation: 1,
        peer_generation: 1,
        ..RegionEntry::default()
    };
    rig.guests[0].put_region(region, &entry);
    rig.run();
    assert_eq!(end(&rig, 0, 1), Status::Aborted);
}

#[test]
fn doorbells_that_misbehave() {
    let mut rig = rig();
    let ring = |rig: &mut Rig, peer: usize| rig.set(0, reg::PEER_DOORBELL.at(peer).unwrap(), 2);
    rig.fault(1, Fault::DropDoorbell, true);
    ring(&mut rig, 1);
    ring(&mut rig, 2);
    assert_eq!([1, 2].map(|node| rig.get(node, reg::DOORBELL)), [0, 2]);
    rig.fault(1, Fault::DropDoorbell, false);
    ring(&mut rig, 1);
    assert_eq!(rig.get(1, reg::DOORBELL), 2);

    assert!(!rig.model.storm());
    rig.fault(2, Fault::Storm, true);
    assert!(rig.model.take_wake_storm() && !rig.model.take_wake_storm());
    let raised = |rig: &Rig| [1, 2].map(|node| rig.model.report().nodes[node].interrupts[1]);
    let [others, before] = raised(&rig);
    for _ in 0..5 {
        assert!(rig.model.storm());
        rig.set(2, reg::DOORBELL, 1);
    }
    assert_eq!(raised(&rig), [others, before + 5]);
    rig.set(2, reg::DOORBELL_MASK, u32::MAX);
    assert!(rig.model.storm());
    assert_eq!(rig.get(2, reg::DOORBELL), 3);
    assert_eq!(raised(&rig), [others, before + 5], "it is masked");
    rig.fault(2, Fault::Storm, false);
    assert!(!rig.model.storm());
}

#[test]
fn registers_that_read_ones() {
    let mut rig = rig();
    rig.fault(1, Fault::Ones, true);
    let offsets = [
        reg::ID.offset(),
        reg::STATUS.offset(),
        reg::DOORBELL.offset(),
        CONTEXT_BLOCKS.offset(),
    ];
    for offset in offsets.map(|offset| offset as u64) {
        assert_eq!(rig.load(1, BAR_CONTROL, offset, 4), u64::from(u32::MAX));
        assert_ne!(rig.load(0, BAR_CONTROL, offset, 4), u64::from(u32::MAX));
    }
    // Everything else works.
    assert_eq!(push(&mut rig, 1, 0, 8), 1);
    rig.run();
    assert_eq!(end(&rig, 1, 1), Status::Ok);
    rig.set(1, reg::SCRATCHPAD.at(0).unwrap(), 5);
    rig.fault(1, Fault::Ones, false);
    assert_eq!(rig.get(1, reg::SCRATCHPAD.at(0).unwrap()), 5);
}
