// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that the device matches with posted buffers.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::endpoint::{
    buffer, data, entry, message, post, received, receptions, rig, rig_of, run, send, sent, LENGTH,
    MOST, RECEIVER, SENDER,
};
use common::rig::{Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{page_entry, Descriptor, FREE, PAGE};
use uldma_device::abi::{descriptor, status_page, Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, EndpointEntry, EndpointFlags, EventCauses, Invalidation,
    PageWord, RegionEntry, RegionFlags, BAR_CONTEXT,
};
use uldma_device::poll::Polled;

#[test]
fn messages_of_any_size_land_in_the_posted_buffers() {
    let mut rig = rig();
    let data = data(&rig, LENGTH);
    for (ticket, length) in (1..).zip([1, 64, 4096, 4097, 300_000, MOST]) {
        post(&rig, ticket, buffer(7, MOST));
        send(&rig, ticket, message(11, length));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (length, Status::Ok));
        assert_eq!(received(&rig, ticket), (length, Status::Ok, 0));
        let place = FREE + 0x789 + 7;
        let found = rig.guests[1].get(place, length as usize);
        assert_eq!(found, &data[11..][..length as usize]);
    }
    assert_eq!(receptions(&rig), 6);
}

#[test]
fn a_message_waits_for_its_buffer_and_stays_in_order() {
    let mut rig = rig();
    let data = data(&rig, LENGTH);
    for ticket in 1..=60 {
        send(&rig, ticket, message(ticket * 1000, 1000));
    }
    run(&mut rig);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    for ticket in 1..=60 {
        post(&rig, ticket, buffer(ticket * 2000, 2000));
        run(&mut rig);
        assert_eq!(rig.guests[0].completed(OURS), (ticket, 0));
        assert_eq!(received(&rig, ticket), (1000, Status::Ok, 0));
        let place = FREE + 0x789 + ticket * 2000;
        let found = rig.guests[1].get(place, 1000);
        assert_eq!(found, &data[ticket as usize * 1000..][..1000]);
    }
}

#[test]
fn a_message_has_flags_and_may_be_empty() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, 8));
    post(&rig, 2, buffer(0, 0));
    send(&rig, 1, message(0, 8).flags(descriptor::MORE));
    send(&rig, 2, message(0, 0).flags(descriptor::FENCE));
    run(&mut rig);
    assert_eq!(received(&rig, 1), (8, Status::Ok, status_page::MORE));
    assert_eq!(received(&rig, 2), (0, Status::Ok, 0));
    assert_eq!(rig.guests[0].completed(OURS), (2, 0));
}

#[test]
fn a_message_that_does_not_fit_is_an_error_at_both_ends() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, 99));
    post(&rig, 2, buffer(0, 100));
    send(&rig, 1, message(0, 100));
    send(&rig, 2, message(0, 100));
    send(&rig, 3, message(0, MOST + 1));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (0, Status::TooLong));
    assert_eq!(received(&rig, 1), (0, Status::TooLong, 0));
    assert_eq!(sent(&rig, 2), (100, Status::Ok));
    assert_eq!(received(&rig, 2), (100, Status::Ok, 0));
    assert_eq!(sent(&rig, 3), (0, Status::TooLong), "it took no buffer");
    assert_eq!(receptions(&rig), 2);
    let failed = rig.guests[1].receive_status() + status_page::FAILED;
    assert_eq!(rig.guests[1].get64(failed), 1);
}

#[test]
fn a_sender_gives_up_after_its_time() {
    let mut rig = rig();
    let limited = |rig: &Rig, timeout_ms| EndpointEntry {
        timeout_ms,
        ..entry(rig, 0, SPACE, RECEIVER)
    };
    rig.guests[0].put_endpoint(SENDER, &limited(&rig, 0));
    send(&rig, 1, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (0, Status::NotReady));

    rig.guests[0].put_endpoint(SENDER, &limited(&rig, 1000));
    send(&rig, 2, message(0, 8));
    let begin = Instant::now();
    rig.poll_at(begin);
    rig.poll_at(begin + Duration::from_millis(999));
    assert_eq!(rig.guests[0].completed(OURS), (1, 1));
    let due = rig.model.next_timeout();
    assert_eq!(due, Some(begin + Duration::from_secs(1)));
    rig.poll_at(begin + Duration::from_secs(1));
    assert_eq!(sent(&rig, 2), (0, Status::NotReady));
    assert_eq!(rig.model.next_timeout(), None);

    // The next message waits anew, and no buffer was taken for the others.
    send(&rig, 3, message(0, 8));
    rig.poll_at(begin + Duration::from_secs(1));
    post(&rig, 1, buffer(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 3), (8, Status::Ok));
    assert_eq!(received(&rig, 1), (8, Status::Ok, 0));
}

#[test]
fn endpoints_have_to_agree() {
    let good = |rig: &Rig| entry(rig, 1, OTHER_SPACE, SENDER);
    let changes: [fn(&mut EndpointEntry); 6] = [
        |peer| peer.flags = peer.flags.without(EndpointFlags::VALID),
        |peer| peer.flags = peer.flags.try_with(EndpointFlags::NODE, 3).unwrap(),
        |peer| peer.generation = 2,
        |peer| peer.peer_generation = 2,
        |peer| peer.peer_endpoint = SENDER + 1,
        |peer| peer.link_generation = 2,
    ];
    for change in changes {
        let mut rig = rig();
        let mut peer = good(&rig);
        change(&mut peer);
        rig.guests[1].put_endpoint(RECEIVER, &peer);
        post(&rig, 1, buffer(0, 8));
        send(&rig, 1, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, 1), (0, Status::Remote));
        assert_eq!(receptions(&rig), 0);
    }
}

#[test]
fn only_the_owner_sends() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, 8));
    let own = entry(&rig, 0, SPACE, RECEIVER);
    let unusable = [
        (
            EndpointEntry {
                space: OTHER_SPACE,
                ..own
            },
            Status::NotOwner,
        ),
        (
            EndpointEntry {
                flags: own.flags.without(EndpointFlags::CONNECTED),
                ..own
            },
            Status::NotValid,
        ),
    ];
    for (ticket, (entry, expected)) in (1..).zip(unusable) {
        rig.guests[0].put_endpoint(SENDER, &entry);
        send(&rig, ticket, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, expected));
    }
    let absent = |endpoint| Descriptor {
        destination: (endpoint, 0),
        ..message(0, 8)
    };
    for (ticket, asked) in (3..).zip([
        absent(SENDER + 1),
        absent(64),
        absent(u32::MAX),
        message(0, 8).flags(8),
        buffer(0, 8),
    ]) {
        send(&rig, ticket, asked);
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, Status::NotValid));
    }
    assert_eq!(receptions(&rig), 0);
}

#[test]
fn a_sender_sends_its_own_memory_only() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, 8));
    rig.guests[0].register(8, OTHER_SPACE, 700, FREE + (6 << 20), PAGE);
    for (ticket, (region, position, expected)) in (1..).zip([
        (8, 0, Status::NotOwner),
        (700, 0, Status::NotValid),
        (1, LENGTH - 7, Status::Bounds),
        (1, u64::MAX, Status::Bounds),
        // What was imported is the peer's.
        (4, 0, Status::NoRight),
    ]) {
        let asked = Descriptor {
            source: (region, position),
            ..message(0, 8)
        };
        send(&rig, ticket, asked);
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, expected));
    }
    assert_eq!(receptions(&rig), 0);
}

#[test]
fn a_receiver_offers_its_own_memory_only() {
    let mut rig = rig();
    rig.guests[1].register(8, SPACE, 700, FREE + (6 << 20), PAGE);
    rig.guests[1].import(9, OTHER_SPACE, 800, (0, 1), PAGE);
    let mut read_only = RegionEntry {
        flags: common::ALL_RIGHTS.without(RegionFlags::WRITE),
        space: OTHER_SPACE,
        length: PAGE,
        generation: 1,
        run_count: 1,
        first_page: 77,
        ..RegionEntry::default()
    };
    rig.guests[1].put_region(10, &read_only);
    read_only.flags = RegionFlags::NONE;
    rig.guests[1].put_region(11, &read_only);
    let of = |region, position, length| Descriptor {
        destination: (region, position),
        ..buffer(0, length)
    };
    let bad = [
        (of(8, 0, 8), Status::NotOwner),
        (of(9, 0, 8), Status::NoRight),
        (of(10, 0, 8), Status::NoRight),
        (of(11, 0, 8), Status::NotValid),
        // All of it has to be there, even what the message does not need.
        (of(3, LENGTH - 8, 9), Status::Bounds),
        (of(3, 1, u64::MAX), Status::Bounds),
        (message(0, 8), Status::NotValid),
        (buffer(0, 8).flags(descriptor::FENCE), Status::NotValid),
    ];
    for (ticket, (asked, expected)) in (1..).zip(bad) {
        post(&rig, ticket, asked);
        send(&rig, ticket, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, Status::Remote));
        assert_eq!(received(&rig, ticket), (0, expected, 0));
    }
}

#[test]
fn no_export_is_needed_and_none_is_given() {
    let mut rig = rig();
    rig.guests[1].put_region(
        3,
        &RegionEntry {
            flags: RegionFlags::VALID | RegionFlags::WRITE,
            space: OTHER_SPACE,
            offset: 0x789,
            length: LENGTH,
            generation: 1,
            run_count: 1,
            first_page: 77,
            ..RegionEntry::default()
        },
    );
    let data = data(&rig, 400_000);
    post(&rig, 1, buffer(0, MOST));
    send(&rig, 1, message(0, 400_000));
    run(&mut rig);
    assert_eq!(received(&rig, 1), (400_000, Status::Ok, 0));
    assert_eq!(rig.guests[1].get(FREE + 0x789, 400_000), data);
    send(&rig, 2, Descriptor::copy((1, 0), (4, 0), 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 2), (0, Status::Revoked));
}

#[test]
fn invalidation_ends_a_message_and_what_comes_after() {
    for (node, index) in [(0, SENDER), (1, RECEIVER)] {
        let mut rig = rig();
        post(&rig, 1, buffer(0, MOST));
        send(&rig, 1, message(0, MOST));
        assert_eq!(rig.poll(), Polled::Found);
        assert!(rig.step(), "the first chunk is moved");
        let gone = EndpointEntry {
            flags: EndpointFlags::NONE,
            ..entry(
                &rig,
                node,
                [SPACE, OTHER_SPACE][node],
                [RECEIVER, SENDER][node],
            )
        };
        rig.guests[node].put_endpoint(index, &gone);
        rig.invalidate(node, Invalidation::ENDPOINT, index);
        assert_eq!(rig.get(node, reg::INVALIDATE_PENDING), 0);
        assert_eq!(sent(&rig, 1).1, Status::Aborted);
        // The receiver's memory is not touched once its endpoint is invalidated.
        assert_eq!(receptions(&rig), u64::from(node == 0));
        send(&rig, 2, message(0, 8));
        run(&mut rig);
        let expected = [Status::NotValid, Status::Remote][node];
        assert_eq!(sent(&rig, 2), (0, expected));
    }
}

#[test]
fn memory_that_is_taken_away_ends_the_message() {
    for (node, region) in [(0, 1), (1, 3)] {
        let mut rig = rig();
        post(&rig, 1, buffer(0, MOST));
        send(&rig, 1, message(0, MOST));
        rig.poll();
        assert!(rig.step());
        rig.invalidate(node, Invalidation::REGION, region);
        run(&mut rig);
        assert_eq!(sent(&rig, 1).1, Status::Aborted);
        assert_eq!(received(&rig, 1).1, Status::Aborted);
    }
}

#[test]
fn a_link_that_goes_down_ends_messages() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, MOST));
    send(&rig, 1, message(0, MOST));
    rig.poll();
    assert!(rig.step());
    rig.plug(false);
    assert_eq!(sent(&rig, 1).1, Status::LinkDown);
    assert_eq!(received(&rig, 1).1, Status::LinkDown);
    send(&rig, 2, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 2), (0, Status::LinkDown));
    rig.plug(true);
    send(&rig, 3, message(0, 8));
    run(&mut rig);
    assert_eq!(sent(&rig, 3).1, Status::LinkDown, "the connection is older");
}

#[test]
fn a_receiver_is_interrupted_when_it_asks() {
    let mut rig = rig();
    let notify = rig.guests[1].receive_status() + status_page::NOTIFY;
    let is_set = |rig: &mut Rig| {
        let events = rig.get(1, reg::EVENT);
        rig.set(1, reg::EVENT, EventCauses::COMPLETION);
        events.contains(EventCauses::COMPLETION)
    };
    for (ticket, asked, interrupted) in [(1, 0, false), (2, 3, false), (3, 3, true), (4, 1, true)] {
        if asked != 0 {
            rig.guests[1].put64(notify, asked);
        }
        post(&rig, ticket, buffer(0, 8));
        send(&rig, ticket, message(0, 8));
        run(&mut rig);
        assert_eq!(is_set(&mut rig), interrupted, "message {ticket}");
        let left = rig.guests[1].get64(notify);
        assert_eq!(left, if interrupted { 0 } else { asked });
    }
}

#[test]
fn a_receiver_wakes_a_device_that_sleeps() {
    let mut rig = rig_of(Speed {
        poll: Duration::ZERO,
        doze: Duration::ZERO,
        ..Speed::default()
    });
    send(&rig, 1, message(0, 8));
    assert_eq!(rig.poll(), Polled::Asleep);
    let wakeup = rig.guests[1].receive_status() + status_page::WAKEUP;
    assert_eq!(rig.guests[1].get64(wakeup), 1);
    post(&rig, 1, buffer(0, 8));
    assert_eq!(rig.poll(), Polled::Asleep, "memory alone wakes no device");
    rig.store(1, BAR_CONTEXT, u64::from(OURS) * PAGE, 8, 0);
    assert!(rig.model.take_wake_poller());
    assert_eq!(rig.poll(), Polled::Found);
    assert_eq!(sent(&rig, 1), (8, Status::Ok));
}

#[test]
fn a_context_that_is_disabled_sends_nothing_more() {
    let mut rig = rig();
    send(&rig, 1, message(0, 8));
    run(&mut rig);
    rig.set(0, reg::CONTROL, Control::NONE);
    post(&rig, 1, buffer(0, 8));
    run(&mut rig);
    assert_eq!(receptions(&rig), 0);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    rig.set(0, reg::CONTROL, Control::ENABLE);
    run(&mut rig);
    assert_eq!(sent(&rig, 1).1, Status::LinkDown, "the connection is older");
}

#[test]
fn what_is_sent_before_the_peer_is_connected_waits() {
    let mut rig = rig();
    let connected = entry(&rig, 1, OTHER_SPACE, SENDER);
    let listening = EndpointEntry {
        flags: EndpointFlags::VALID,
        peer_endpoint: 0,
        peer_generation: 0,
        link_generation: 0,
        ..connected
    };
    rig.guests[1].put_endpoint(RECEIVER, &listening);
    post(&rig, 1, buffer(0, 8));
    send(&rig, 1, message(0, 8));
    run(&mut rig);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    rig.guests[1].put_endpoint(RECEIVER, &connected);
    run(&mut rig);
    assert_eq!(sent(&rig, 1), (8, Status::Ok));
}

/// Receptions end in order, so the messages of one context end before those of another begin.
#[test]
fn contexts_of_one_program_take_turns_at_an_endpoint() {
    let mut rig = rig();
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    rig.set_ctx(0, THEIRS, ctx::SPACE, SPACE);
    rig.set_method(0, THEIRS, Method::Queue);
    post(&rig, 1, buffer(0, MOST));
    post(&rig, 2, buffer(0, 8));
    send(&rig, 1, message(0, MOST));
    rig.poll();
    rig.guests[0].submit(THEIRS, 1, &message(0, 8));
    rig.poll();
    assert_eq!(rig.guests[0].completed(THEIRS), (0, 0));
    run(&mut rig);
    assert_eq!(received(&rig, 1), (MOST, Status::Ok, 0));
    assert_eq!(received(&rig, 2), (8, Status::Ok, 0));
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
}

#[test]
fn a_message_that_waits_ends_with_either_endpoint() {
    for (node, index, expected) in [(0, SENDER, Status::NotValid), (1, RECEIVER, Status::Remote)] {
        let mut rig = rig_of(Speed {
            poll: Duration::ZERO,
            doze: Duration::ZERO,
            ..Speed::default()
        });
        send(&rig, 1, message(0, 8));
        assert_eq!(rig.poll(), Polled::Asleep);
        rig.guests[node].put_endpoint(index, &EndpointEntry::default());
        rig.invalidate(node, Invalidation::ENDPOINT, index);
        assert!(rig.model.take_wake_poller());
        assert_eq!(rig.poll(), Polled::Found);
        assert_eq!(sent(&rig, 1), (0, expected));
    }
}

/// A reset drops messages without their end, which must not keep other contexts waiting.
#[test]
fn a_sender_that_is_reset_leaves_nothing_behind() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, MOST));
    send(&rig, 1, message(0, MOST));
    rig.poll();
    rig.set(0, reg::CONTROL, Control::RESET);
    assert_eq!(receptions(&rig), 0);
    rig.probe(0);
    let directory = rig.guests[0].endpoint_directory();
    rig.set(0, reg::ENDPOINT_DIRECTORY, directory);
    rig.set(0, reg::ENDPOINT_CAPACITY, 64);
    for (node, index, space, peer) in [
        (0, SENDER, SPACE, RECEIVER),
        (1, RECEIVER, OTHER_SPACE, SENDER),
    ] {
        let again = EndpointEntry {
            link_generation: 2,
            ..entry(&rig, node, space, peer)
        };
        rig.guests[node].put_endpoint(index, &again);
    }
    rig.set_ctx(0, THEIRS, ctx::CONTROL, ContextControl::NONE);
    rig.set_ctx(0, THEIRS, ctx::SPACE, SPACE);
    rig.set_method(0, THEIRS, Method::Queue);
    post(&rig, 2, buffer(0, 8));
    rig.guests[0].submit(THEIRS, 1, &message(0, 8));
    run(&mut rig);
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
}

#[test]
fn a_buffer_that_becomes_anothers_gets_no_more() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, MOST));
    send(&rig, 1, message(0, MOST));
    rig.poll();
    assert!(rig.step());
    // The same region and generation, of another space.
    rig.guests[1].register(3, SPACE, 77, FREE + 0x789, LENGTH);
    run(&mut rig);
    assert_eq!(sent(&rig, 1).1, Status::Remote);
    assert_eq!(received(&rig, 1).1, Status::Aborted);
}

/// What fails at the sender is no news of the receiver's memory.
#[test]
fn a_receiver_learns_nothing_of_the_senders_memory() {
    let mut rig = rig();
    post(&rig, 1, buffer(0, MOST));
    send(&rig, 1, message(0, MOST));
    rig.poll();
    assert!(rig.step());
    rig.guests[0].register(1, SPACE, 900, FREE + 0x123, LENGTH);
    for page in 900..1200 {
        let unreadable = page_entry(
            PageWord::of_address(FREE) | PageWord::VALID | PageWord::WRITE,
            SPACE,
            0,
        );
        rig.guests[0].put_page(page, &unreadable);
    }
    run(&mut rig);
    assert_eq!(sent(&rig, 1).1, Status::NoRight);
    assert_eq!(received(&rig, 1).1, Status::Aborted);
}
