// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams: the device fills posted buffers in order with the bytes of sends, whatever the
//! boundaries of both.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::endpoint::{
    buffer, data, entry, message, post, received, receptions, rig, run, send, sent, LENGTH, MOST,
    RECEIVER, SENDER,
};
use common::rig::{Rig, OTHER_SPACE, OURS, SPACE};
use common::{Descriptor, FREE};
use proptest::prelude::*;
use uldma_device::abi::{descriptor, status_page, Op, Status};
use uldma_device::layout::{
    ctx, reg, ContextControl, EndpointEntry, EndpointFlags, EventCauses, Invalidation, RegionEntry,
};

/// Byte 0 of region 3 of the receiver.
const PLACE: u64 = FREE + 0x789;

fn stream_entry(rig: &Rig, node: usize) -> EndpointEntry {
    let (space, peer) = [(SPACE, RECEIVER), (OTHER_SPACE, SENDER)][node];
    let entry = entry(rig, node, space, peer);
    EndpointEntry {
        flags: entry.flags | EndpointFlags::STREAM,
        ..entry
    }
}

fn stream_rig() -> Rig {
    let rig = rig();
    for (node, index) in [(0, SENDER), (1, RECEIVER)] {
        let entry = stream_entry(&rig, node);
        rig.guests[node].put_endpoint(index, &entry);
    }
    rig
}

/// Bytes that the receiver has received, and that the sender has sent.
fn counts(rig: &Rig) -> (u64, u64) {
    let word = |node: usize, offset| {
        let page = rig.guests[node].receive_status();
        rig.guests[node].get64(page + offset)
    };
    (word(1, status_page::RECEIVED), word(0, status_page::SENT))
}

/// Whether the device has noted at the sender's endpoint that a send has failed.
fn is_torn(rig: &Rig) -> bool {
    rig.guests[0].get64(rig.guests[0].receive_status() + status_page::TORN) != 0
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn bytes_arrive_in_order_whatever_the_boundaries(
        sends in prop::collection::vec(1u64..40_000, 1..20),
        buffers in prop::collection::vec(1u64..40_000, 1..20),
        order in prop::collection::vec(any::<bool>(), 40),
    ) {
        let mut rig = stream_rig();
        let data = data(&rig, LENGTH);
        let (mut from, mut to) = (0, 0);
        let (mut sent_count, mut posted_count) = (0, 0);
        for first in order {
            if first && sent_count < sends.len() {
                let length = sends[sent_count];
                sent_count += 1;
                send(&rig, sent_count as u64, message(from, length));
                from += length;
            } else if posted_count < buffers.len() {
                let length = buffers[posted_count];
                posted_count += 1;
                post(&rig, posted_count as u64, buffer(to, length));
                to += length;
            }
            run(&mut rig);
            let moved = from.min(to);
            prop_assert_eq!(counts(&rig), (moved, moved));
            let found = rig.guests[1].get(PLACE, moved as usize);
            prop_assert!(found == data[..moved as usize]);
            let ends = |lengths: &[u64]| {
                let sums = lengths.iter().scan(0, |sum, length| {
                    *sum += length;
                    Some(*sum)
                });
                sums.filter(|end| *end <= moved).count() as u64
            };
            let ended = ends(&sends[..sent_count]);
            prop_assert_eq!(rig.guests[0].completed(OURS), (ended, 0));
            prop_assert_eq!(receptions(&rig), ends(&buffers[..posted_count]));
        }
    }
}

#[test]
fn a_send_may_span_many_buffers_and_ends_once() {
    let mut rig = stream_rig();
    let data = data(&rig, LENGTH);
    send(&rig, 1, message(5, 100 * 64));
    send(&rig, 2, message(5 + 100 * 64, MOST));
    for ticket in 1..=100 {
        assert_eq!(rig.guests[0].completed(OURS), (0, 0));
        post(&rig, ticket, buffer((ticket - 1) * 64, 64));
        run(&mut rig);
        assert_eq!(counts(&rig), (ticket * 64, ticket * 64));
    }
    assert_eq!(sent(&rig, 1), (6400, Status::Ok));
    post(&rig, 101, buffer(6400, MOST + 1));
    run(&mut rig);
    assert_eq!(sent(&rig, 2), (MOST, Status::Ok));
    assert_eq!(receptions(&rig), 100, "one byte of room is left");
    let moved = 6400 + MOST as usize;
    assert_eq!(rig.guests[1].get(PLACE, moved), &data[5..][..moved]);
}

#[test]
fn progress_of_long_sends_is_shown() {
    let mut rig = stream_rig();
    let long = EndpointEntry {
        most_bytes: LENGTH,
        ..stream_entry(&rig, 0)
    };
    rig.guests[0].put_endpoint(SENDER, &long);
    send(&rig, 1, message(0, LENGTH));
    post(&rig, 1, buffer(0, LENGTH - 1));
    run(&mut rig);
    assert_eq!(counts(&rig), (LENGTH - 1, LENGTH - 1));
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
}

#[test]
fn only_a_send_that_fails_is_noted_at_its_endpoint() {
    let copy = Descriptor {
        op: Op::Copy as u32,
        source: (1, LENGTH),
        destination: (1, 0),
        ..message(0, 8)
    };
    let of_others = Descriptor {
        destination: (SENDER + 1, 0),
        ..message(0, 8)
    };
    let mut rig = stream_rig();
    let other = EndpointEntry {
        space: OTHER_SPACE,
        ..stream_entry(&rig, 0)
    };
    rig.guests[0].put_endpoint(SENDER + 1, &other);
    post(&rig, 1, buffer(0, 8));
    send(&rig, 1, copy);
    send(&rig, 2, of_others);
    send(&rig, 3, message(0, 8));
    run(&mut rig);
    let ends = [1, 2, 3].map(|ticket| sent(&rig, ticket).1);
    assert_eq!(ends, [Status::Bounds, Status::NotOwner, Status::Ok]);
    assert!(!is_torn(&rig));
    post(&rig, 2, buffer(8, 8));
    send(&rig, 4, copy.flags(descriptor::LINK));
    send(&rig, 5, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 5).1, Status::Aborted);
    assert!(is_torn(&rig));
}

#[test]
fn a_message_that_fails_is_not_noted() {
    let mut rig = rig();
    send(&rig, 1, message(LENGTH, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 1).1, Status::Bounds);
    assert!(!is_torn(&rig));
}

#[test]
fn both_ends_have_to_be_streams() {
    for (node, index) in [(0, SENDER), (1, RECEIVER)] {
        let mut rig = rig();
        let entry = stream_entry(&rig, node);
        rig.guests[node].put_endpoint(index, &entry);
        post(&rig, 1, buffer(0, 64));
        send(&rig, 1, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, 1), (0, Status::Remote));
        assert_eq!(receptions(&rig), 0);
    }
}

#[test]
fn wrong_sends_take_no_room() {
    let mut rig = stream_rig();
    post(&rig, 1, buffer(0, 64));
    send(&rig, 1, message(0, 0));
    send(&rig, 2, message(0, 8).flags(descriptor::MORE));
    send(&rig, 3, message(LENGTH - 7, 8));
    send(&rig, 4, message(0, MOST + 1));
    send(&rig, 5, message(0, 64));
    run(&mut rig);
    let ends = [1, 2, 3, 4, 5].map(|ticket| sent(&rig, ticket).1);
    let refused = [
        Status::BadSize,
        Status::NotValid,
        Status::Bounds,
        Status::TooLong,
    ];
    assert_eq!((&ends[..4], ends[4]), (&refused[..], Status::Ok));
    assert_eq!(counts(&rig), (64, 64));
}

#[test]
fn a_buffer_that_cannot_be_used_ends_the_stream() {
    let bad = [
        (buffer(LENGTH - 7, 8), Status::Bounds),
        (buffer(0, 0), Status::Bounds),
        (buffer(0, 8).flags(descriptor::REDIRECT), Status::NotValid),
        (message(0, 8), Status::NotValid),
    ];
    for (wrong, reason) in bad {
        let mut rig = stream_rig();
        post(&rig, 1, buffer(0, 4));
        post(&rig, 2, wrong);
        post(&rig, 3, buffer(0, 64));
        send(&rig, 1, message(0, 8));
        send(&rig, 2, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, 1).1, Status::Remote);
        assert_eq!(sent(&rig, 2).1, Status::Remote);
        assert_eq!(received(&rig, 1), (4, Status::Ok, 0));
        assert_eq!(received(&rig, 2).1, reason);
        assert_eq!((counts(&rig), receptions(&rig)), ((4, 4), 2));
    }
}

/// The receiver owns the descriptor, and may change it while it is half full.
#[test]
fn a_buffer_that_shrinks_ends_the_stream() {
    let mut rig = stream_rig();
    post(&rig, 1, buffer(0, 64));
    send(&rig, 1, message(0, 32));
    run(&mut rig);
    post(&rig, 1, buffer(0, 31));
    send(&rig, 2, message(0, 1));
    run(&mut rig);
    assert_eq!(sent(&rig, 2).1, Status::Remote);
    assert_eq!(received(&rig, 1).1, Status::Bounds);
    assert_eq!(counts(&rig), (32, 32));
}

/// What comes after a hole must not be counted.
#[test]
fn a_piece_that_fails_ends_the_stream() {
    let mut rig = stream_rig();
    rig.hold(0, OURS, true);
    post(&rig, 1, buffer(0, 5000));
    post(&rig, 2, buffer(5000, MOST));
    send(&rig, 1, message(0, 6000));
    send(&rig, 2, message(6000, 6000));
    run(&mut rig);
    rig.guests[1].put_region(3, &RegionEntry::default());
    rig.invalidate(1, Invalidation::REGION, 3);
    rig.hold(0, OURS, false);
    run(&mut rig);
    assert_eq!(sent(&rig, 1).1, Status::Aborted);
    assert_ne!(sent(&rig, 2).1, Status::Ok);
    assert_eq!(counts(&rig), (0, 0));
    send(&rig, 3, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 3).1, Status::Remote);
}

#[test]
fn a_context_that_goes_off_ends_what_it_has_begun() {
    let mut rig = stream_rig();
    rig.hold(0, OURS, true);
    post(&rig, 1, buffer(0, 5000));
    send(&rig, 1, message(0, 6000));
    run(&mut rig);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::BUSY);
    rig.hold(0, OURS, false);
    run(&mut rig);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), ContextControl::NONE);
    assert_eq!(counts(&rig), (0, 0));
    assert_eq!(received(&rig, 1).1, Status::Aborted);
}

#[test]
fn the_rest_of_a_send_ends_with_either_endpoint() {
    for (node, index, expected) in [(0, SENDER, Status::NotValid), (1, RECEIVER, Status::Remote)] {
        let mut rig = stream_rig();
        post(&rig, 1, buffer(0, 8));
        send(&rig, 1, message(0, 16));
        run(&mut rig);
        assert_eq!(counts(&rig), (8, 8));
        rig.guests[node].put_endpoint(index, &EndpointEntry::default());
        rig.invalidate(node, Invalidation::ENDPOINT, index);
        run(&mut rig);
        assert_eq!(sent(&rig, 1).1, expected);
        // An endpoint that has ended has no status page.
        assert_eq!(is_torn(&rig), node == 1);
    }
}

#[test]
fn a_receiver_is_interrupted_at_a_count_of_bytes() {
    let mut rig = stream_rig();
    let notify = rig.guests[1].receive_status() + status_page::NOTIFY;
    rig.guests[1].put64(notify, 100);
    post(&rig, 1, buffer(0, 1000));
    for (ticket, interrupted) in [(1, false), (2, true), (3, false)] {
        send(&rig, ticket, message(0, 60));
        run(&mut rig);
        let events = rig.get(1, reg::EVENT);
        rig.set(1, reg::EVENT, EventCauses::COMPLETION);
        assert_eq!(events.contains(EventCauses::COMPLETION), interrupted);
    }
    assert_eq!(rig.guests[1].get64(notify), 0);
}
