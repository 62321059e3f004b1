// SPDX-License-Identifier: MIT OR Apache-2.0

//! Page requests: the driver of the node that owns a page learns that a transfer lacked it.

mod common;

use std::mem::offset_of;

use common::rig::{at, Rig, OTHER_SPACE, OURS, SHAPE, SPACE, THEIRS};
use common::{page_entry, Descriptor, FREE, PAGE, PAGE_RIGHTS};
use uldma_device::abi::{status_page, Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, EventCauses, PageRequest, PageWord, TOUCH_OLDEST,
};
use uldma_device::node::Shape;

const LENGTH: u64 = 40 * PAGE;
const REQUESTS: u64 = FREE + (10 << 20);
/// First page entries of regions 1, 2 and 3 of [`Rig::regions`].
const SOURCE: u32 = 10;
const TARGET: u32 = 500;
const REMOTE: u32 = 77;
const RIGHTS: PageWord = PageWord::OPTIMISTIC
    .union(PageWord::READ)
    .union(PageWord::WRITE);
const READ: u8 = PageRequest::READ;
const WRITE: u8 = PageRequest::WRITE;

/// Regions, and a page for requests at both nodes.
fn rig() -> Rig {
    let mut rig = Rig::new();
    rig.regions(LENGTH);
    for node in 0..2 {
        prepare(&mut rig, node);
    }
    rig
}

fn prepare(rig: &mut Rig, node: usize) {
    rig.set(node, reg::PAGE_REQUESTS, REQUESTS);
    forget_events(rig, node);
}

fn forget_events(rig: &mut Rig, node: usize) {
    rig.set(node, reg::EVENT, EventCauses::from_bits(u32::MAX));
}

/// Takes pages of a space away.
fn take(rig: &Rig, node: usize, space: u32, pages: impl IntoIterator<Item = u32>) {
    for page in pages {
        rig.guests[node].put_page(page, &page_entry(RIGHTS, space, 0));
    }
}

/// A slot of a node.
fn slot(rig: &Rig, node: usize, number: u64) -> PageRequest {
    let place = REQUESTS + number * size_of::<PageRequest>() as u64;
    let word = |offset: usize| rig.guests[node].get64(place + offset as u64);
    let what = word(offset_of!(PageRequest, index));
    let rest = word(offset_of!(PageRequest, node));
    PageRequest {
        number: word(offset_of!(PageRequest, number)),
        index: what as u32,
        count: (what >> 32) as u16,
        need: (what >> 48) as u8,
        kind: (what >> 56) as u8,
        node: rest as u16,
        context: (rest >> 16) as u16,
        filled: (rest >> 32) as u16,
        status: (rest >> 48) as u16,
        answered: word(offset_of!(PageRequest, answered)),
    }
}

/// Answers the request in a slot, as a driver does.
fn answer(rig: &Rig, node: usize, number: u64) {
    let place = REQUESTS + number * size_of::<PageRequest>() as u64;
    let request = rig.guests[node].get64(place);
    let answered = place + offset_of!(PageRequest, answered) as u64;
    rig.guests[node].put64(answered, request);
}

/// A request by our context of node 0 that is not answered.
fn request(number: u64, index: u32, count: u16, need: u8) -> PageRequest {
    PageRequest {
        number,
        index,
        count,
        need,
        context: OURS as u16,
        ..PageRequest::default()
    }
}

/// Requests that were stored at a node, and that were dropped.
fn counts(rig: &Rig, node: usize) -> (u64, u64) {
    let counters = &rig.model.report().nodes[node].counters;
    (counters.page_requests, counters.page_requests_dropped)
}

/// Copies between two regions. Returns the status.
fn copy(rig: &mut Rig, from: u32, to: u32, bytes: u64) -> Status {
    let ticket = rig.initiate(0, OURS, at(from, 0), at(to, 0), bytes as u32);
    assert!(ticket > 0);
    rig.run();
    let (_, _, status) = rig.guests[0].record(OURS, ticket as u64);
    Status::ALL[status as usize]
}

/// Reads a word of a page without a region, into the first page of region 2.
fn touch(rig: &mut Rig, context: u32, page: u32) {
    let to = (u64::from(TARGET) * PAGE, 0);
    assert!(rig.initiate(0, context, (u64::from(page) * PAGE, 0), to, 8) > 0);
    rig.run();
}

/// Adds a context of our space to node 0.
fn add_context(rig: &mut Rig, context: u32) {
    let page = rig.guests[0].status_page(context);
    rig.set_ctx(0, context, ctx::STATUS_PAGE, page);
    rig.set_ctx(0, context, ctx::SPACE, SPACE);
    rig.set_ctx(0, context, ctx::METHODS, 1);
    rig.set_ctx(0, context, ctx::CONTROL, ContextControl::ENABLE);
}

#[test]
fn a_slot_says_what_the_transfer_lacked() {
    let mut rig = rig();
    take(&rig, 0, SPACE, [SOURCE + 2, SOURCE + 3, SOURCE + 5]);
    assert_eq!(copy(&mut rig, 1, 2, LENGTH), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0), request(1, SOURCE + 2, 2, READ));
    assert_eq!(slot(&rig, 0, 1), PageRequest::default());
    let events = EventCauses::PAGE;
    assert_eq!(rig.get(0, reg::EVENT) & events, events);
    assert_eq!((counts(&rig, 0), counts(&rig, 1)), ((1, 0), (0, 0)));

    // A page that may not be written now is missing for a write, and not for a read.
    let clean = PAGE_RIGHTS | RIGHTS | PageWord::READ_ONLY;
    let clean = clean.with_address(FREE + 5 * PAGE);
    rig.guests[0].put_page(TARGET + 7, &page_entry(clean, SPACE, 0));
    take(&rig, 0, SPACE, [TARGET + 8, TARGET + 9]);
    rig.guests[0].put_page(TARGET + 10, &page_entry(clean, SPACE, 0));
    assert_eq!(copy(&mut rig, 4, 2, LENGTH), Status::NotResident);
    assert_eq!(slot(&rig, 0, 1), request(2, TARGET + 7, 4, WRITE));
    assert_eq!(copy(&mut rig, 2, 4, LENGTH), Status::NotResident);
    assert_eq!(slot(&rig, 0, 2), request(3, TARGET + 8, 2, READ));
}

#[test]
fn a_request_ends_with_the_transfer_and_the_block() {
    let mut rig = rig();
    take(&rig, 0, SPACE, SOURCE..SOURCE + 40);
    assert_eq!(copy(&mut rig, 1, 2, LENGTH), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0).count, PageRequest::MOST_PAGES);
    answer(&rig, 0, 0);
    // It ends in the third page.
    let bytes = 2 * PAGE - 0x123 + 1;
    assert_eq!(copy(&mut rig, 1, 2, bytes), Status::NotResident);
    assert_eq!(
        slot(&rig, 0, 0),
        PageRequest {
            answered: 1,
            ..request(2, SOURCE, 3, READ)
        }
    );
    touch(&mut rig, OURS, SOURCE + 1);
    assert_eq!(slot(&rig, 0, 1), request(3, SOURCE + 1, 1, READ));
    // Entries of another block are in another page of the table.
    rig.guests[0].register(5, SPACE, 1500, FREE + (8 << 20), 70 * PAGE);
    take(&rig, 0, SPACE, 1533..1541);
    let from = (1500 * PAGE, 5);
    rig.initiate(0, OURS, from, at(2, 0), LENGTH as u32);
    rig.run();
    assert_eq!(slot(&rig, 0, 2), request(4, 1533, 3, READ));
    // A request is about the transfer, not about the chunk that ended, of 64 pages.
    rig.guests[0].register(6, SPACE, 1536, FREE + (8 << 20), 70 * PAGE);
    rig.guests[1].register(8, OTHER_SPACE, 2000, FREE + (8 << 20), 70 * PAGE);
    rig.guests[0].import(9, SPACE, 3000, (1, 8), 70 * PAGE);
    take(&rig, 0, SPACE, 1599..1606);
    let to = (3000 * PAGE, 9);
    rig.initiate(0, OURS, (1536 * PAGE, 6), to, (70 * PAGE) as u32);
    rig.run();
    assert_eq!(slot(&rig, 0, 3), request(5, 1599, 7, READ));
}

#[test]
fn both_sides_that_end_the_transfer_are_requested() {
    let mut rig = Rig::new();
    rig.guests[0].register(1, SPACE, SOURCE, FREE, LENGTH);
    rig.guests[0].register(2, SPACE, TARGET, FREE + (4 << 20), LENGTH);
    prepare(&mut rig, 0);
    take(&rig, 0, SPACE, [SOURCE + 3, TARGET + 3]);
    let page = |page: u32, region| (u64::from(page) * PAGE, region);
    rig.initiate(0, OURS, page(SOURCE, 1), page(TARGET, 2), LENGTH as u32);
    rig.run();
    assert_eq!(slot(&rig, 0, 0), request(1, SOURCE + 3, 1, READ));
    assert_eq!(slot(&rig, 0, 1), request(2, TARGET + 3, 1, WRITE));
    for number in 0..2 {
        answer(&rig, 0, number);
    }
    // The destination ends earlier.
    take(&rig, 0, SPACE, [TARGET + 2]);
    rig.initiate(0, OURS, page(SOURCE, 1), page(TARGET, 2), LENGTH as u32);
    rig.run();
    assert_eq!(slot(&rig, 0, 0).index, TARGET + 2);
    assert_eq!(counts(&rig, 0), (3, 0));
}

#[test]
fn a_slot_is_used_again_when_its_request_is_answered() {
    let mut rig = rig();
    take(&rig, 0, SPACE, SOURCE..SOURCE + 10);
    touch(&mut rig, OURS, SOURCE);
    // The same is not requested again before the answer; what is in the slot does not matter.
    forget_events(&mut rig, 0);
    rig.guests[0].put64(REQUESTS, 77);
    answer(&rig, 0, 0);
    touch(&mut rig, OURS, SOURCE);
    assert_eq!((counts(&rig, 0), slot(&rig, 0, 0).number), ((1, 0), 77));
    assert!(!rig.get(0, reg::EVENT).contains(EventCauses::PAGE));
    touch(&mut rig, OURS, SOURCE + 1);
    assert_eq!(slot(&rig, 0, 1), request(2, SOURCE + 1, 1, READ));
    // What the driver has stored stays there: the status of an answer, here.
    rig.guests[0].put64(REQUESTS, 1);
    let status = offset_of!(PageRequest, filled) as u64;
    rig.guests[0].put(REQUESTS + status, &[1, 0, 21, 0]);
    answer(&rig, 0, 0);
    touch(&mut rig, OURS, SOURCE);
    let answered = PageRequest {
        filled: 1,
        status: 21,
        answered: 1,
        ..request(3, SOURCE, 1, READ)
    };
    assert_eq!(slot(&rig, 0, 0), answered);
    assert_eq!(counts(&rig, 0), (3, 0));
}

#[test]
fn no_context_and_no_node_takes_all_slots() {
    let shape = Shape {
        contexts: 8,
        shadow_bits: 31,
        ..SHAPE
    };
    let mut rig = Rig::of_shape(shape, Speed::default());
    for node in 0..2 {
        rig.probe(node);
    }
    rig.regions(LENGTH);
    prepare(&mut rig, 0);
    let contexts = [OURS, 3, 4, 5, 6];
    for context in contexts {
        add_context(&mut rig, context);
    }
    take(&rig, 0, SPACE, SOURCE..SOURCE + 40);
    for page in 0..5 {
        touch(&mut rig, OURS, SOURCE + page);
    }
    assert_eq!(counts(&rig, 0), (4, 1));
    for (place, context) in (0..).zip(contexts).skip(1) {
        for page in 0..4 {
            touch(&mut rig, context, SOURCE + 5 * place + page);
        }
    }
    assert_eq!(counts(&rig, 0), (16, 5));
    // Another node has slots of its own.
    rig.guests[0].register(8, SPACE, 2000, FREE + (8 << 20), PAGE);
    take(&rig, 0, SPACE, [2000]);
    rig.guests[1].import(9, OTHER_SPACE, 3000, (0, 8), PAGE);
    rig.initiate(
        1,
        THEIRS,
        (3000 * PAGE, 9),
        (u64::from(REMOTE) * PAGE, 0),
        8,
    );
    rig.run();
    assert_eq!(counts(&rig, 0), (17, 5));
    let of_peer = PageRequest {
        node: 1,
        context: THEIRS as u16,
        ..request(17, 2000, 1, READ)
    };
    assert_eq!(slot(&rig, 0, 16), of_peer);
    // An answer makes room for the one that is answered.
    answer(&rig, 0, 2);
    touch(&mut rig, OURS, SOURCE + 4);
    let next = PageRequest {
        answered: 3,
        ..request(18, SOURCE + 4, 1, READ)
    };
    assert_eq!((slot(&rig, 0, 2), counts(&rig, 0)), (next, (18, 5)));
}

#[test]
fn the_driver_of_the_owner_is_asked() {
    let mut rig = rig();
    take(&rig, 1, OTHER_SPACE, [REMOTE + 1]);
    assert_eq!(copy(&mut rig, 1, 4, LENGTH), Status::NotResident);
    assert_eq!(slot(&rig, 1, 0), request(1, REMOTE + 1, 1, WRITE));
    let page = EventCauses::PAGE;
    assert!(rig.get(1, reg::EVENT).contains(page) && !rig.get(0, reg::EVENT).contains(page));
    assert_eq!((counts(&rig, 0), counts(&rig, 1)), ((0, 0), (1, 0)));
    assert_eq!(slot(&rig, 0, 0), PageRequest::default());
}

#[test]
fn an_atomic_operation_needs_both_rights() {
    let mut rig = rig();
    rig.set_method(0, OURS, Method::FetchAdd);
    take(&rig, 0, SPACE, [SOURCE, SOURCE + 1]);
    assert_eq!(rig.ld(OURS, (SOURCE, 8)), -1);
    assert_eq!(slot(&rig, 0, 0), request(1, SOURCE, 1, READ | WRITE));
    rig.set_method(0, OURS, Method::Queue);
    let ticket = rig.get_ctx(0, OURS, ctx::TICKET) + 1;
    let second = PAGE - 0x123;
    rig.guests[0].submit(OURS, ticket, &Descriptor::add((1, second), 1));
    rig.poll();
    rig.run();
    assert_eq!(slot(&rig, 0, 1), request(2, SOURCE + 1, 1, READ | WRITE));
}

/// Makes a transfer that lacks the first page of region 1, after one that lacks nothing.
fn lack_a_page(rig: &mut Rig, method: Method) {
    rig.set_method(0, OURS, method);
    take(rig, 0, SPACE, [SOURCE]);
    let asked = Descriptor::copy((1, 0), (2, 0), 8);
    match method {
        Method::Queue => {
            rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
            rig.poll();
            rig.guests[0].submit(OURS, 2, &asked);
            rig.poll();
        }
        Method::FetchAdd => {
            assert_eq!(rig.ld(OURS, (TARGET, 0)), 0);
            assert_eq!(rig.ld(OURS, (SOURCE, 0)), -1);
        }
        _ => {
            touch(rig, OURS, TARGET);
            touch(rig, OURS, SOURCE);
        }
    }
}

#[test]
fn a_request_is_stored_between_bracket_and_completion() {
    let number = |rig: &Rig, page| rig.guests[0].get64(page);
    for method in [Method::ExtendedShadow, Method::Queue, Method::FetchAdd] {
        // The last of two stores to the same word tells their order.
        let mut rig = rig();
        rig.set(0, reg::TOUCH_PAGE, FREE + (11 << 20));
        let oldest = FREE + (11 << 20) + TOUCH_OLDEST;
        rig.set(0, reg::PAGE_REQUESTS, oldest);
        lack_a_page(&mut rig, method);
        assert_eq!(counts(&rig, 0), (1, 0), "{method:?}");
        assert_eq!(
            number(&rig, oldest),
            1,
            "{method:?}: before the bracket's end"
        );
    }
    for method in [Method::ExtendedShadow, Method::Queue] {
        let mut rig = rig();
        let completed = rig.guests[0].status_page(OURS) + status_page::COMPLETED;
        rig.set(0, reg::PAGE_REQUESTS, completed);
        lack_a_page(&mut rig, method);
        assert_eq!(counts(&rig, 0), (1, 0), "{method:?}");
        assert_eq!(
            number(&rig, completed),
            2,
            "{method:?}: after the completion"
        );
    }
}

#[test]
fn without_an_address_nothing_is_requested() {
    let mut rig = rig();
    rig.set(0, reg::PAGE_REQUESTS, 0);
    take(&rig, 0, SPACE, [SOURCE]);
    assert_eq!(copy(&mut rig, 1, 2, 8), Status::NotResident);
    assert_eq!(counts(&rig, 0), (0, 0));
    assert_eq!(slot(&rig, 0, 0), PageRequest::default());
    let causes = EventCauses::PAGE | EventCauses::ERROR;
    assert!(!rig.get(0, reg::EVENT).intersects(causes));
}

#[test]
fn an_address_that_does_not_answer_is_an_error_of_the_owner() {
    let mut rig = rig();
    rig.set(1, reg::PAGE_REQUESTS, 0x1000);
    take(&rig, 1, OTHER_SPACE, [REMOTE]);
    assert_eq!(copy(&mut rig, 4, 2, 8), Status::NotResident);
    let events = [0, 1].map(|node| rig.get(node, reg::EVENT));
    assert!(events[1].contains(EventCauses::ERROR) && !events[0].contains(EventCauses::ERROR));
    assert!(!events[1].contains(EventCauses::PAGE));
    assert_eq!(counts(&rig, 1), (0, 0));
}

#[test]
fn a_reset_forgets_the_slots_and_not_the_numbers() {
    let mut rig = rig();
    take(&rig, 0, SPACE, [SOURCE]);
    assert_eq!(copy(&mut rig, 1, 2, 8), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0), request(1, SOURCE, 1, READ));
    rig.set(0, reg::CONTROL, Control::RESET);
    assert_eq!(rig.get(0, reg::PAGE_REQUESTS), 0);
    assert_eq!(rig.get(1, reg::PAGE_REQUESTS), REQUESTS);
    rig.probe(0);
    assert_eq!(copy(&mut rig, 1, 2, 8), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0), request(1, SOURCE, 1, READ));
    rig.set(0, reg::PAGE_REQUESTS, REQUESTS);
    assert_eq!(copy(&mut rig, 1, 2, 8), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0), request(2, SOURCE, 1, READ));
    // A store of an address makes the slots unused, too.
    rig.set(0, reg::PAGE_REQUESTS, REQUESTS);
    assert_eq!(copy(&mut rig, 1, 2, 8), Status::NotResident);
    assert_eq!(slot(&rig, 0, 0), request(3, SOURCE, 1, READ));
}

#[test]
fn a_transfer_that_ends_for_another_reason_requests_nothing() {
    let mut rig = rig();
    take(&rig, 1, OTHER_SPACE, [REMOTE]);
    rig.hold(0, OURS, true);
    rig.initiate(0, OURS, at(4, 0), at(2, 0), 8);
    rig.run();
    rig.set_link(0, 1, false);
    rig.hold(0, OURS, false);
    rig.run();
    let (_, _, status) = rig.guests[0].record(OURS, 1);
    assert_eq!(status, Status::LinkDown as u64);
    assert_eq!(
        (counts(&rig, 1), slot(&rig, 1, 0)),
        ((0, 0), PageRequest::default())
    );
}
