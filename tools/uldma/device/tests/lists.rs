// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages between memory that drivers give as lists of segments.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::endpoint::{
    buffer, data, entry, message, post, received, receptions, rig, run, send, sent, LENGTH,
    RECEIVER, SENDER,
};
use common::rig::{Rig, OTHER_SPACE, THEIRS};
use common::{Descriptor, FREE, PAGE};
use uldma_device::abi::{Method, Op, Status};
use uldma_device::layout::{
    ctx, reg, ContextControl, DescriptorFlags, EndpointFlags, Invalidation, MAX_SEGMENTS,
};

const LIST: u32 = DescriptorFlags::LIST.bits();
/// Where the lists of both nodes are, away from the data.
const LISTS: u64 = FREE + LENGTH + 16 * PAGE;
/// Where node 1 receives by lists, outside of all regions.
const FAR: u64 = LISTS + 16 * PAGE;

/// Two connected endpoints, of which the receiver's is the driver's, and a privileged queue of the
/// sender.
fn privileged() -> Rig {
    let mut rig = rig();
    rig.set_method(0, THEIRS, Method::Queue);
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    let control = ContextControl::ENABLE | ContextControl::PRIVILEGED;
    rig.set_ctx(0, THEIRS, ctx::CONTROL, control);
    let mut receiver = entry(&rig, 1, OTHER_SPACE, SENDER);
    receiver.flags |= EndpointFlags::PRIVILEGED;
    rig.guests[1].put_endpoint(RECEIVER, &receiver);
    rig
}

fn put_list(rig: &Rig, node: usize, place: u64, segments: &[(u64, u64)]) {
    let words = segments
        .iter()
        .flat_map(|(address, bytes)| [*address, *bytes]);
    for (at, word) in (place..).step_by(8).zip(words) {
        rig.guests[node].put64(at, word);
    }
}

fn listed_message(segments: u32, length: u64) -> Descriptor {
    Descriptor {
        source: (segments, LISTS),
        ..message(0, length).flags(LIST)
    }
}

fn listed_buffer(segments: u32, length: u64) -> Descriptor {
    Descriptor {
        op: Op::Recv as u32,
        destination: (segments, LISTS),
        length,
        ..Descriptor::NOP
    }
    .flags(LIST)
}

fn submit(rig: &Rig, ticket: u64, asked: Descriptor) {
    rig.guests[0].submit(THEIRS, ticket, &asked);
}

/// Bytes and status of a send of the privileged queue.
fn ended(rig: &Rig, ticket: u64) -> (u64, Status) {
    let (found, bytes, status) = rig.guests[0].record(THEIRS, ticket);
    assert_eq!(found, ticket, "no send has this number");
    (bytes, Status::ALL[status as usize])
}

#[test]
fn segments_are_gathered_and_scattered() {
    let mut rig = privileged();
    let data = data(&rig, LENGTH);
    let start = FREE + 0x123;
    put_list(
        &rig,
        0,
        LISTS,
        &[(start + 1000, 300), (start, 0), (start, 5000)],
    );
    put_list(&rig, 1, LISTS, &[(FAR + 7, 100), (FAR + 2 * PAGE, 9000)]);
    submit(&rig, 1, listed_message(3, 5300));
    post(&rig, 1, listed_buffer(2, 9100));
    run(&mut rig);
    assert_eq!(ended(&rig, 1), (5300, Status::Ok));
    assert_eq!(received(&rig, 1), (5300, Status::Ok, 0));
    let sent = [&data[1000..1300], &data[..5000]].concat();
    assert_eq!(rig.guests[1].get(FAR + 7, 100), &sent[..100]);
    assert_eq!(rig.guests[1].get(FAR + 2 * PAGE, 5200), &sent[100..]);
}

#[test]
fn only_drivers_have_lists() {
    let mut rig = privileged();
    put_list(&rig, 0, LISTS, &[(FREE, 64)]);
    put_list(&rig, 1, LISTS, &[(FAR, 64)]);
    // By a program's queue, and by a copy.
    send(&rig, 1, listed_message(1, 8));
    submit(&rig, 1, Descriptor::copy((1, 0), (3, 0), 8).flags(LIST));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (0, Status::NotValid));
    assert_eq!(ended(&rig, 1), (0, Status::NotValid));
    assert_eq!(receptions(&rig), 0);
    // In the ring of a program's endpoint.
    let receiver = entry(&rig, 1, OTHER_SPACE, SENDER);
    rig.guests[1].put_endpoint(RECEIVER, &receiver);
    post(&rig, 1, listed_buffer(1, 64));
    send(&rig, 2, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 2), (0, Status::Remote));
    assert_eq!(received(&rig, 1), (0, Status::NotValid, 0));
}

#[test]
fn lists_hold_what_they_are_to() {
    let mut rig = privileged();
    data(&rig, LENGTH);
    put_list(&rig, 0, LISTS, &[(FREE, 64)]);
    for (ticket, asked) in (1..).zip([
        listed_message(1, 65),
        listed_message(0, 1),
        listed_message(MAX_SEGMENTS + 1, 8),
        Descriptor {
            source: (1, 1 << 60),
            ..listed_message(1, 8)
        },
    ]) {
        submit(&rig, ticket, asked);
        run(&mut rig);
        let status = if ticket < 4 {
            Status::Bounds
        } else {
            Status::BusError
        };
        assert_eq!(ended(&rig, ticket), (0, status), "{ticket}");
    }
    assert_eq!(receptions(&rig), 0);
    put_list(&rig, 1, LISTS, &[(FAR, 64)]);
    post(&rig, 1, listed_buffer(1, 65));
    post(&rig, 2, listed_buffer(1, 64));
    post(&rig, 3, buffer(0, 64));
    for ticket in 5..8 {
        submit(&rig, ticket, listed_message(1, 64));
    }
    run(&mut rig);
    assert_eq!(ended(&rig, 5), (0, Status::Remote));
    assert_eq!(received(&rig, 1), (0, Status::Bounds, 0));
    assert_eq!(ended(&rig, 6), (64, Status::Ok));
    // Regions in the ring of such an endpoint are its own, as before.
    assert_eq!(ended(&rig, 7), (64, Status::Ok));
}

#[test]
fn memory_that_does_not_answer_is_an_error() {
    let mut rig = privileged();
    put_list(&rig, 0, LISTS, &[(FREE, 32), (1 << 60, 32)]);
    put_list(&rig, 1, LISTS, &[(FAR, 64)]);
    post(&rig, 1, listed_buffer(1, 64));
    submit(&rig, 1, listed_message(2, 64));
    run(&mut rig);
    assert_eq!(ended(&rig, 1), (32, Status::BusError));
    assert_eq!(received(&rig, 1), (32, Status::Aborted, 0));
}

#[test]
fn an_endpoint_that_ends_ends_its_messages() {
    let mut rig = privileged();
    data(&rig, LENGTH);
    put_list(&rig, 0, LISTS, &[(FREE, 64 * PAGE)]);
    put_list(&rig, 1, LISTS, &[(FAR, 64 * PAGE)]);
    post(&rig, 1, listed_buffer(1, 64 * PAGE));
    submit(&rig, 1, listed_message(1, 64 * PAGE));
    rig.poll();
    // An invalidation of region 0 ends nothing; this is what drivers wait by.
    rig.set(
        1,
        reg::INVALIDATE,
        Invalidation::new(Invalidation::REGION, 0),
    );
    rig.set(
        1,
        reg::INVALIDATE,
        Invalidation::new(Invalidation::SPACE, 0),
    );
    assert_eq!(rig.guests[0].completed(THEIRS), (0, 0));
    let what = Invalidation::new(Invalidation::ENDPOINT, RECEIVER);
    rig.set(1, reg::INVALIDATE, what);
    run(&mut rig);
    assert_eq!(ended(&rig, 1), (0, Status::Aborted));
}

#[test]
fn a_link_that_goes_down_ends_messages() {
    let mut rig = privileged();
    data(&rig, LENGTH);
    put_list(&rig, 0, LISTS, &[(FREE, 64 * PAGE)]);
    put_list(&rig, 1, LISTS, &[(FAR, 64 * PAGE)]);
    post(&rig, 1, listed_buffer(1, 64 * PAGE));
    submit(&rig, 1, listed_message(1, 64 * PAGE));
    rig.poll();
    rig.plug(false);
    run(&mut rig);
    assert_eq!(ended(&rig, 1), (0, Status::LinkDown));
}
