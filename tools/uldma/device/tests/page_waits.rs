// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers that wait until the driver of the owner has answered their request for a page.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use std::mem::offset_of;
use std::time::{Duration, Instant};

use common::rig::{at, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{page_entry, pattern, Descriptor, ALL_RIGHTS, FREE, PAGE, PAGE_RIGHTS};
use uldma_device::abi::{Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, Invalidation, PageRequest, PageWord, RegionEntry,
    RegionFlags, OP_PAGED, TOUCH_BEGUN, TOUCH_OLDEST,
};

const LENGTH: u64 = 6 * PAGE;
const REQUESTS: u64 = FREE + (10 << 20);
const TOUCH: u64 = FREE + (11 << 20);
/// First page entries of regions 1 and 3.
const SOURCE: u32 = 10;
const REMOTE: u32 = 77;
const RIGHTS: PageWord = PageWord::OPTIMISTIC
    .union(PageWord::READ)
    .union(PageWord::WRITE);
/// log2 of the microseconds for which a region has a transfer wait: more than half an hour.
const LONG: u32 = 31;
const LIMIT: Duration = Duration::from_micros(1 << LONG);

/// Regions of which the first at node 0 and the one at node 1 have transfers wait, a queue of each
/// driver, and all pages that they name.
fn rig_of(limit: u32) -> Rig {
    let mut rig = Rig::cold(Speed {
        poll: Duration::from_secs(3600),
        ..Speed::default()
    });
    for node in 0..2 {
        rig.probe(node);
        rig.set_ctx(node, THEIRS, ctx::CONTROL, ContextControl::NONE);
        rig.set_ctx(node, THEIRS, ctx::METHODS, Method::Queue.bit());
        let control = ContextControl::ENABLE | ContextControl::PRIVILEGED;
        rig.set_ctx(node, THEIRS, ctx::CONTROL, control);
        rig.set(node, reg::PAGE_REQUESTS, REQUESTS);
        rig.set(node, reg::TOUCH_PAGE, TOUCH);
    }
    rig.regions(LENGTH);
    for (node, number, space, first_page, offset) in [
        (0, 1, SPACE, SOURCE, 0x123),
        (1, 3, OTHER_SPACE, REMOTE, 0x789),
    ] {
        let flags = ALL_RIGHTS | RegionFlags::WAIT;
        let region = RegionEntry {
            flags: flags.try_with(RegionFlags::LIMIT, limit).unwrap(),
            space,
            offset,
            length: LENGTH,
            generation: 1,
            run_count: 1,
            first_page,
            ..RegionEntry::default()
        };
        rig.guests[node].put_region(number, &region);
    }
    rig
}

/// Takes the third page of region 1 away.
fn take(rig: &Rig) {
    rig.guests[0].put_page(SOURCE + 2, &page_entry(RIGHTS, SPACE, 0));
}

/// Brings it back.
fn bring(rig: &Rig) {
    let word = PAGE_RIGHTS | PageWord::OPTIMISTIC;
    let word = word.with_address(FREE + 2 * PAGE);
    rig.guests[0].put_page(SOURCE + 2, &page_entry(word, SPACE, 0));
}

/// Begins a copy of the whole of region 1 to region 2, which lacks that page.
fn begin(rig: &mut Rig) {
    take(rig);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), LENGTH as u32), 1);
    rig.run();
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
}

fn place(slot: u64, field: usize) -> u64 {
    REQUESTS + slot * size_of::<PageRequest>() as u64 + field as u64
}

/// Number and kind of the request in a slot.
fn request(rig: &Rig, node: usize, slot: u64) -> (u64, u8) {
    let what = rig.guests[node].get64(place(slot, offset_of!(PageRequest, index)));
    (rig.guests[node].get64(place(slot, 0)), (what >> 56) as u8)
}

/// Answers the request in a slot.
fn answer(rig: &Rig, node: usize, slot: u64, status: u16) {
    let guest = &rig.guests[node];
    let answer = place(slot, offset_of!(PageRequest, status));
    guest.put(answer, &status.to_le_bytes());
    let number = guest.get64(place(slot, 0));
    guest.put64(place(slot, offset_of!(PageRequest, answered)), number);
}

/// Has the device of a node read the answers.
fn ring(rig: &mut Rig, node: usize) {
    let ticket = rig.get_ctx(node, THEIRS, ctx::TICKET) + 1;
    let paged = Descriptor {
        op: OP_PAGED,
        ..Descriptor::NOP
    };
    rig.guests[node].submit(THEIRS, ticket, &paged);
    rig.poll();
    rig.run();
    assert_eq!(rig.guests[node].record(THEIRS, ticket), (ticket, 0, 0));
}

fn whole() -> u64 {
    2 * PAGE - 0x123
}

/// Bytes and status of the first transfer of our context, once it has ended.
fn ended(rig: &Rig) -> Option<(u64, Status)> {
    let (ticket, bytes, status) = rig.guests[0].record(OURS, 1);
    (ticket == 1).then(|| (bytes, Status::ALL[status as usize]))
}

#[test]
fn a_transfer_goes_on_after_the_answer() {
    let mut rig = rig_of(LONG);
    let data = pattern(LENGTH as usize, 1);
    rig.guests[0].put(FREE + 0x123, &data);
    begin(&mut rig);
    assert_eq!(request(&rig, 0, 0), (1, PageRequest::WAIT));
    assert_eq!(rig.get_ctx(0, OURS, ctx::BYTES), whole());
    // It sleeps in no bracket, and is not in flight.
    let words = [TOUCH_BEGUN, TOUCH_OLDEST].map(|word| rig.guests[0].get64(TOUCH + word));
    assert_eq!(words, [1, 2]);
    rig.invalidate(0, Invalidation::REGION, 2000);
    assert_eq!(rig.get(0, reg::INVALIDATE_PENDING), 0);
    // Later transfers of the context wait behind it, other contexts do not.
    assert_eq!(rig.initiate(0, OURS, at(2, 0), at(2, 64), 8), 2);
    ring(&mut rig, 0);
    assert_eq!((ended(&rig), rig.guests[0].completed(OURS)), (None, (0, 0)));
    assert_eq!(request(&rig, 0, 0).0, 1, "not answered yet");
    bring(&rig);
    answer(&rig, 0, 0, 0);
    rig.run();
    assert_eq!(ended(&rig), None, "the driver has not told the device");
    ring(&mut rig, 0);
    assert_eq!(ended(&rig), Some((LENGTH, Status::Ok)));
    assert_eq!(rig.guests[0].completed(OURS), (2, 0));
    let target = FREE + (4 << 20) + 0x456;
    assert_eq!(rig.guests[0].get(target + 72, data.len() - 72), data[72..]);
}

#[test]
fn an_answer_may_be_a_reason() {
    for (status, expected) in [
        (Status::NoMapping as u16, Status::NoMapping),
        (Status::PageRight as u16, Status::PageRight),
        (9999, Status::NotResident),
    ] {
        let mut rig = rig_of(LONG);
        begin(&mut rig);
        answer(&rig, 0, 0, status);
        ring(&mut rig, 0);
        assert_eq!(ended(&rig), Some((whole(), expected)));
    }
}

#[test]
fn a_transfer_waits_no_longer_than_its_limit() {
    let mut rig = rig_of(LONG);
    begin(&mut rig);
    let now = Instant::now();
    let Err(Some(until)) = rig.next(now) else {
        panic!("the engine does not know when the wait ends");
    };
    assert!(until > now + LIMIT / 2 && until <= now + LIMIT);
    assert_eq!(ended(&rig), None);
    assert!(rig.next(until).is_err());
    assert_eq!(ended(&rig), Some((whole(), Status::NotLocked)));
    // The answer comes too late.
    answer(&rig, 0, 0, 0);
    ring(&mut rig, 0);
    assert_eq!(rig.guests[0].completed(OURS), (1, 1));

    // Without a limit it does not wait at all.
    let mut rig = rig_of(0);
    take(&rig);
    rig.initiate(0, OURS, at(1, 0), at(2, 0), LENGTH as u32);
    rig.run();
    assert_eq!(ended(&rig), Some((whole(), Status::NotResident)));
    assert_eq!(request(&rig, 0, 0), (1, PageRequest::HINT));
}

#[test]
fn a_driver_that_never_answers_keeps_no_slot() {
    let mut rig = rig_of(LONG);
    take(&rig);
    for number in 1..=40 {
        rig.initiate(0, OURS, at(1, 0), at(2, 0), LENGTH as u32);
        rig.run();
        assert_eq!(request(&rig, 0, 0), (number, PageRequest::WAIT));
        assert_eq!(rig.guests[0].completed(OURS), (number - 1, number - 1));
        assert!(rig.next(Instant::now() + LIMIT).is_err());
        assert_eq!(rig.guests[0].completed(OURS), (number, number));
    }
    // The answer to an earlier request is none to the last one.
    rig.initiate(0, OURS, at(1, 0), at(2, 0), LENGTH as u32);
    rig.run();
    assert_eq!(request(&rig, 0, 0), (41, PageRequest::WAIT));
    let answered = place(0, offset_of!(PageRequest, answered));
    rig.guests[0].put64(answered, 40);
    ring(&mut rig, 0);
    assert_eq!(rig.guests[0].completed(OURS).0, 40);
    bring(&rig);
    answer(&rig, 0, 0, 0);
    ring(&mut rig, 0);
    assert_eq!(rig.guests[0].completed(OURS), (41, 40));
}

#[test]
fn a_page_that_goes_again_and_again_is_given_up() {
    let mut rig = rig_of(LONG);
    begin(&mut rig);
    for number in 1..=3 {
        assert_eq!(request(&rig, 0, 0), (number, PageRequest::WAIT));
        assert_eq!(ended(&rig), None);
        answer(&rig, 0, 0, 0);
        ring(&mut rig, 0);
    }
    assert_eq!(ended(&rig), Some((whole(), Status::NotLocked)));
}

#[test]
fn without_a_slot_no_transfer_waits() {
    let mut rig = rig_of(LONG);
    rig.set(0, reg::PAGE_REQUESTS, 0);
    take(&rig);
    rig.initiate(0, OURS, at(1, 0), at(2, 0), LENGTH as u32);
    rig.run();
    assert_eq!(ended(&rig), Some((whole(), Status::NotLocked)));
    // By a queue, too, which the device polls.
    rig.set_method(0, OURS, Method::Queue);
    let asked = Descriptor::copy((1, whole()), (2, 0), 8);
    rig.guests[0].submit(OURS, 2, &asked);
    rig.poll();
    let record = rig.guests[0].record(OURS, 2);
    assert_eq!(record, (2, 0, Status::NotLocked as u64));
}

#[test]
fn what_ends_transfers_ends_their_waits() {
    let invalidate = |rig: &mut Rig| rig.invalidate(0, Invalidation::REGION, 1);
    let space = |rig: &mut Rig| rig.invalidate(0, Invalidation::SPACE, SPACE);
    let off = |rig: &mut Rig| rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    let ends: [&dyn Fn(&mut Rig); 3] = [&invalidate, &space, &off];
    for end in ends {
        let mut rig = rig_of(LONG);
        begin(&mut rig);
        end(&mut rig);
        assert_eq!(ended(&rig), Some((whole(), Status::Aborted)));
    }
    let mut rig = rig_of(LONG);
    begin(&mut rig);
    rig.set(0, reg::CONTROL, Control::RESET);
    assert!(matches!(rig.next(Instant::now() + LIMIT), Err(None)));
    assert_eq!(ended(&rig), None);
}

#[test]
fn a_transfer_waits_for_a_page_of_the_peer() {
    let mut rig = rig_of(LONG);
    rig.guests[1].put_page(REMOTE, &page_entry(RIGHTS, OTHER_SPACE, 0));
    rig.set_method(0, OURS, Method::Queue);
    let asked = Descriptor::copy((4, 0), (2, 0), 8);
    rig.guests[0].submit(OURS, 1, &asked);
    rig.poll();
    rig.run();
    assert_eq!(
        (ended(&rig), request(&rig, 1, 0)),
        (None, (1, PageRequest::WAIT))
    );
    // Only the descriptor of the owner counts.
    answer(&rig, 1, 0, Status::NoMapping as u16);
    ring(&mut rig, 0);
    assert_eq!(ended(&rig), None);
    rig.plug(false);
    assert_eq!(ended(&rig), Some((0, Status::LinkDown)));
    ring(&mut rig, 1);
    assert_eq!(rig.guests[0].completed(OURS), (1, 1));
}

#[test]
fn no_program_has_the_device_read_answers() {
    let mut rig = rig_of(LONG);
    rig.set_method(0, OURS, Method::Queue);
    let paged = Descriptor {
        op: OP_PAGED,
        ..Descriptor::NOP
    };
    rig.guests[0].submit(OURS, 1, &paged);
    rig.poll();
    assert_eq!(ended(&rig), Some((0, Status::NotValid)));
}
