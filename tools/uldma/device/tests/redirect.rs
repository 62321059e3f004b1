// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages that the receiver redirects from their slots to a buffer that it posts later.

mod common;

use common::endpoint::{buffer, data, message, post, received, rig, run, send, sent, LENGTH};
use common::rig::SPACE;
use common::{Descriptor, FREE, PAGE};
use uldma_device::abi::{descriptor, redirect, status_page, Status};

/// A slot of `length` bytes, and a place of `room` bytes at `position` that replaces it.
fn redirected((position, room): (u64, u64), length: u64, state: u64) -> Descriptor {
    Descriptor {
        source: (3, position),
        operand: state,
        compare: room,
        ..buffer(0, length).flags(descriptor::REDIRECT)
    }
}

#[test]
fn a_message_goes_to_its_slot_or_where_it_is_redirected() {
    let mut rig = rig();
    let data = data(&rig, 4096);
    let far = 1 << 19;
    let cases = [
        // State, room, bytes of the message, and whether it is redirected.
        (redirect::NONE, 1000, 1000, false),
        (redirect::READY, 1000, 1000, true),
        (redirect::READY, 999, 1000, false),
        (redirect::READY, 0, 0, true),
        (redirect::TAKEN, 1000, 1000, false),
        (u64::MAX, 1000, 1000, false),
    ];
    for (ticket, (state, room, length, elsewhere)) in (1..).zip(cases) {
        let place = |position| FREE + 0x789 + position;
        for position in [0, far] {
            rig.guests[1].put(place(position), &[0; 1000]);
        }
        post(&rig, ticket, redirected((far, room), 1000, state));
        send(&rig, ticket, message(11, length));
        run(&mut rig);
        let flags = if elsewhere {
            status_page::REDIRECTED
        } else {
            0
        };
        assert_eq!(received(&rig, ticket), (length, Status::Ok, flags));
        let at = place(if elsewhere { far } else { 0 });
        let length = length as usize;
        assert_eq!(rig.guests[1].get(at, length), &data[11..][..length]);
        let other = place(if elsewhere { 0 } else { far });
        assert_eq!(rig.guests[1].get(other, 1000), [0; 1000]);
        let operand = rig.guests[1].receive_ring() + ticket * descriptor::SIZE;
        let operand = operand + descriptor::OPERAND;
        assert_eq!(rig.guests[1].get64(operand), redirect::TAKEN);
    }
}

#[test]
fn a_message_is_redirected_to_the_receivers_own_memory_only() {
    let mut rig = rig();
    rig.guests[1].register(8, SPACE, 700, FREE + (6 << 20), PAGE);
    let ready = redirect::READY;
    let bad = [
        (redirected((LENGTH - 8, 9), 8, ready), Status::Bounds),
        (redirected((0, u64::MAX), 8, ready), Status::Bounds),
        (
            Descriptor {
                source: (8, 0),
                ..redirected((0, 8), 8, ready)
            },
            Status::NotOwner,
        ),
        (
            redirected((0, 8), 8, ready).flags(descriptor::REDIRECT | descriptor::FENCE),
            Status::NotValid,
        ),
    ];
    for (ticket, (asked, expected)) in (1..).zip(bad) {
        post(&rig, ticket, asked);
        send(&rig, ticket, message(0, 8));
        run(&mut rig);
        assert_eq!(sent(&rig, ticket), (0, Status::Remote));
        let flags = status_page::REDIRECTED;
        assert_eq!(received(&rig, ticket), (0, expected, flags));
    }
    // A queue has no such flag.
    let asked = message(0, 8).flags(descriptor::REDIRECT);
    send(&rig, 5, asked);
    run(&mut rig);
    assert_eq!(sent(&rig, 5), (0, Status::NotValid));
}
