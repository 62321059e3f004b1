// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two connected endpoints, their messages and their buffers.

use std::time::Duration;

use super::rig::{Rig, OTHER_SPACE, OURS, SPACE};
use super::{pattern, Descriptor, FREE};
use uldma_device::abi::{status_page, Method, Op, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{reg, EndpointEntry, EndpointFlags, EventCauses};
use uldma_device::poll::Polled;

/// The endpoint of node 0, which sends.
pub(crate) const SENDER: u32 = 5;
/// The endpoint of node 1, which receives.
pub(crate) const RECEIVER: u32 = 9;
pub(crate) const LENGTH: u64 = 1 << 20;
pub(crate) const MOST: u64 = 512 << 10;

/// The endpoint of a node that is connected to one of the other node.
pub(crate) fn entry(rig: &Rig, node: usize, space: u32, peer: u32) -> EndpointEntry {
    let flags = EndpointFlags::VALID | EndpointFlags::CONNECTED;
    EndpointEntry {
        flags: flags
            .try_with(EndpointFlags::NODE, 1 - node as u32)
            .unwrap(),
        space,
        generation: 1,
        receive_ring: rig.guests[node].receive_ring(),
        receive_status: rig.guests[node].receive_status(),
        timeout_ms: u32::MAX,
        peer_endpoint: peer,
        peer_generation: 1,
        link_generation: 1,
        reserved: 0,
        most_bytes: MOST,
    }
}

/// Two connected endpoints over the regions of [`Rig::regions`]: that of node 0 is of [`SPACE`],
/// that of node 1 of [`OTHER_SPACE`], which owns region 3.
pub(crate) fn rig_of(speed: Speed) -> Rig {
    let mut rig = Rig::cold(speed);
    rig.probe(0);
    rig.probe(1);
    rig.regions(LENGTH);
    for node in 0..2 {
        let directory = rig.guests[node].endpoint_directory();
        rig.set(node, reg::ENDPOINT_DIRECTORY, directory);
        rig.set(node, reg::ENDPOINT_CAPACITY, 64);
        rig.set_method(node, OURS, Method::Queue);
        rig.set(node, reg::EVENT, EventCauses::from_bits(u32::MAX));
    }
    let sender = entry(&rig, 0, SPACE, RECEIVER);
    rig.guests[0].put_endpoint(SENDER, &sender);
    let receiver = entry(&rig, 1, OTHER_SPACE, SENDER);
    rig.guests[1].put_endpoint(RECEIVER, &receiver);
    rig
}

pub(crate) fn rig() -> Rig {
    // Long enough that it does not pass while a test runs.
    rig_of(Speed {
        poll: Duration::from_secs(3600),
        ..Speed::default()
    })
}

pub(crate) fn message(position: u64, length: u64) -> Descriptor {
    Descriptor {
        op: Op::Send as u32,
        source: (1, position),
        destination: (SENDER, 0),
        length,
        ..Descriptor::NOP
    }
}

pub(crate) fn buffer(position: u64, length: u64) -> Descriptor {
    Descriptor {
        op: Op::Recv as u32,
        destination: (3, position),
        length,
        ..Descriptor::NOP
    }
}

pub(crate) fn send(rig: &Rig, ticket: u64, asked: Descriptor) {
    rig.guests[0].submit(OURS, ticket, &asked);
}

pub(crate) fn post(rig: &Rig, ticket: u64, asked: Descriptor) {
    rig.guests[1].post(ticket, &asked);
}

pub(crate) fn run(rig: &mut Rig) {
    while rig.poll() == Polled::Found || rig.step() {}
}

/// Bytes and status of a send.
pub(crate) fn sent(rig: &Rig, ticket: u64) -> (u64, Status) {
    let (found, bytes, status) = rig.guests[0].record(OURS, ticket);
    assert_eq!(found, ticket, "no send has this number");
    (bytes, Status::ALL[status as usize])
}

/// Bytes, status and flags of a reception.
pub(crate) fn received(rig: &Rig, ticket: u64) -> (u64, Status, u32) {
    let (found, bytes, status) = rig.guests[1].reception(ticket);
    assert_eq!(found, ticket, "no reception has this number");
    let flags = (status >> 32) as u32;
    (bytes, Status::ALL[status as u32 as usize], flags)
}

pub(crate) fn receptions(rig: &Rig) -> u64 {
    rig.guests[1].get64(rig.guests[1].receive_status() + status_page::COMPLETED)
}

pub(crate) fn data(rig: &Rig, length: u64) -> Vec<u8> {
    let data = pattern(length as usize, 3);
    rig.guests[0].put(FREE + 0x123, &data);
    data
}
