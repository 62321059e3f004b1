// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory that is not pinned: a transfer ends before the first page that is missing.

mod common;

use std::time::Instant;

use common::rig::{at, refused, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{page_entry, pattern, Descriptor, FREE, PAGE, PAGE_BLOCKS, PAGE_RIGHTS};
use uldma_device::abi::{status_page, Method, Status};
use uldma_device::layout::{reg, Control, PageEntry, PageWord, TOUCH_BEGUN, TOUCH_OLDEST};

const LENGTH: u64 = 6 * PAGE;
const OPTIMISTIC: PageWord = PageWord::OPTIMISTIC;
/// First page entries of regions 1, 2 and 3, and positions of their first bytes in their first pages.
const SOURCE: (u32, u64) = (10, 0x123);
const TARGET: (u32, u64) = (500, 0x456);
const REMOTE: (u32, u64) = (77, 0x789);

/// An entry of a page that is missing.
fn missing(space: u32, rights: PageWord) -> PageEntry {
    page_entry(OPTIMISTIC | rights, space, 0)
}

const RIGHTS: PageWord = PageWord::READ.union(PageWord::WRITE);

/// Regions, of which a page of one is missing: page `number` of that whose entries begin at `first`.
fn rig_without(node: usize, space: u32, first: u32, number: u32) -> Rig {
    let mut rig = Rig::new();
    rig.regions(LENGTH);
    rig.guests[node].put_page(first + number, &missing(space, RIGHTS));
    rig
}

/// Bytes before page `number` of a region that begins at `offset` of its first page.
fn before(number: u32, offset: u64) -> u64 {
    u64::from(number) * PAGE - offset
}

/// Copies between two regions. Returns bytes and status.
fn copy(rig: &mut Rig, from: u32, to: u32, ticket: i64) -> (u64, u64) {
    let began = rig.initiate(0, OURS, at(from, 0), at(to, 0), LENGTH as u32);
    assert_eq!(began, ticket);
    rig.run();
    let (_, bytes, status) = rig.guests[0].record(OURS, ticket as u64);
    (bytes, status)
}

const MISS: u64 = Status::NotResident as u64;

#[test]
fn a_read_ends_before_the_missing_page_and_the_next_one_is_whole() {
    let mut rig = rig_without(0, SPACE, SOURCE.0, 2);
    let data = pattern(LENGTH as usize, 1);
    rig.guests[0].put(FREE + SOURCE.1, &data);
    let whole = before(2, SOURCE.1);
    assert_eq!(copy(&mut rig, 1, 2, 1), (whole, MISS));
    let target = FREE + (4 << 20) + TARGET.1;
    let copied = rig.guests[0].get(target, LENGTH as usize);
    assert_eq!(copied[..whole as usize], data[..whole as usize]);
    assert!(copied[whole as usize..].iter().all(|byte| *byte == 0));
    // The page comes back, at another address.
    let frame = FREE + (12 << 20);
    let skip = whole as usize;
    rig.guests[0].put(frame, &data[skip..skip + PAGE as usize]);
    let there = PageEntry {
        word: (PAGE_RIGHTS | OPTIMISTIC).with_address(frame),
        ..missing(SPACE, RIGHTS)
    };
    rig.guests[0].put_page(SOURCE.0 + 2, &there);
    assert_eq!(copy(&mut rig, 1, 2, 2), (LENGTH, 0));
    assert_eq!(rig.guests[0].get(target, LENGTH as usize), data);
}

#[test]
fn a_write_to_the_peer_ends_before_the_missing_page() {
    let mut rig = rig_without(1, OTHER_SPACE, REMOTE.0, 3);
    rig.guests[0].put(FREE + SOURCE.1, &pattern(LENGTH as usize, 2));
    let whole = before(3, REMOTE.1);
    assert_eq!(copy(&mut rig, 1, 4, 1), (whole, MISS));
    let copied = rig.guests[1].get(FREE + REMOTE.1, LENGTH as usize);
    assert!(copied[whole as usize..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_side_with_fewer_bytes_decides() {
    for (of_source, of_target) in [(1, 4), (4, 1), (3, 3)] {
        let mut rig = rig_without(0, SPACE, SOURCE.0, of_source);
        rig.guests[0].put_page(TARGET.0 + of_target, &missing(SPACE, RIGHTS));
        let least = before(of_source, SOURCE.1).min(before(of_target, TARGET.1));
        assert_eq!(copy(&mut rig, 1, 2, 1), (least, MISS));
    }
}

#[test]
fn without_the_first_page_nothing_moves() {
    let mut rig = rig_without(0, SPACE, SOURCE.0, 0);
    assert_eq!(copy(&mut rig, 1, 2, 1), (0, MISS));
    // A page that is named without a region, too.
    let page = u64::from(SOURCE.0) * PAGE;
    assert_eq!(rig.initiate(0, OURS, (page, 0), at(2, 0), 8), 2);
    rig.run();
    assert_eq!(rig.guests[0].record(OURS, 2), (2, 0, MISS));
}

#[test]
fn a_page_that_may_not_be_written_now_can_be_read() {
    let mut rig = Rig::new();
    rig.regions(LENGTH);
    let clean = PageEntry {
        word: (PAGE_RIGHTS | OPTIMISTIC | PageWord::READ_ONLY).with_address(FREE + 2 * PAGE),
        ..missing(SPACE, RIGHTS)
    };
    rig.guests[0].put_page(SOURCE.0 + 2, &clean);
    assert_eq!(copy(&mut rig, 1, 2, 1), (LENGTH, 0));
    assert_eq!(copy(&mut rig, 2, 1, 2), (before(2, SOURCE.1), MISS));
}

#[test]
fn owner_and_rights_of_a_missing_page_are_checked() {
    let mut rig = Rig::new();
    rig.regions(LENGTH);
    let page = (u64::from(SOURCE.0 + 2) * PAGE, 0);
    let pinned = PageEntry {
        word: RIGHTS,
        ..missing(SPACE, RIGHTS)
    };
    for (entry, status) in [
        (missing(OTHER_SPACE, RIGHTS), Status::NotOwner),
        (missing(SPACE, PageWord::WRITE), Status::NoRight),
        (pinned, Status::NotValid),
    ] {
        rig.guests[0].put_page(SOURCE.0 + 2, &entry);
        assert_eq!(rig.initiate(0, OURS, page, at(2, 0), 8), refused(status));
    }
}

/// Bytes `accessed` and `dirty` of an entry.
fn notes(rig: &Rig, node: usize, entry: u32) -> (u8, u8) {
    let place = PAGE_BLOCKS + u64::from(entry) * 16 + 8;
    let word = rig.guests[node].get64(place);
    ((word >> 16) as u8, (word >> 24) as u8)
}

#[test]
fn entries_of_the_pages_that_are_accessed_say_so() {
    let mut rig = rig_without(0, SPACE, SOURCE.0, 3);
    let present = |rig: &Rig, first: u32, start: u64, number: u32| {
        let address = FREE + start + u64::from(number) * PAGE;
        let word = (PAGE_RIGHTS | OPTIMISTIC).with_address(address);
        rig.guests[0].put_page(first + number, &page_entry(word, SPACE, 0));
    };
    for number in [0, 1, 4] {
        present(&rig, SOURCE.0, 0, number);
    }
    for number in 0..6 {
        present(&rig, TARGET.0, 4 << 20, number);
    }
    assert_eq!(copy(&mut rig, 1, 2, 1), (before(3, SOURCE.1), MISS));
    let found = |first| [0, 1, 2, 3, 4].map(|number| notes(&rig, 0, first + number));
    let (read, not) = ((1, 0), (0, 0));
    assert_eq!(
        found(SOURCE.0),
        [read, read, not, not, not],
        "one is pinned"
    );
    // The bytes that were moved end in the fourth page of the target.
    let written = (1, 1);
    assert_eq!(found(TARGET.0), [written, written, written, written, not]);
}

const TOUCH: u64 = FREE + (10 << 20);

/// The numbers of the last bracket that began and of the oldest that has not ended, at a node.
fn words(rig: &Rig, node: usize) -> (u64, u64) {
    let guest = &rig.guests[node];
    (
        guest.get64(TOUCH + TOUCH_BEGUN),
        guest.get64(TOUCH + TOUCH_OLDEST),
    )
}

/// Regions, and touch pages at both nodes.
fn rig_with_touch_pages() -> Rig {
    let mut rig = Rig::new();
    rig.regions(LENGTH);
    for node in 0..2 {
        rig.set(node, reg::TOUCH_PAGE, TOUCH);
        assert_eq!(words(&rig, node), (0, 1));
    }
    rig
}

#[test]
fn a_bracket_is_open_from_the_look_up_to_the_access() {
    let mut rig = rig_with_touch_pages();
    rig.hold(0, OURS, true);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
    rig.run();
    assert_eq!((words(&rig, 0), words(&rig, 1)), ((1, 1), (1, 1)));
    // A later one of another context ends before it, and touches no memory of the peer.
    assert_eq!(
        rig.initiate(0, THEIRS, at(1, 0), at(2, 0), 8),
        refused(Status::NotOwner)
    );
    rig.guests[0].register(5, OTHER_SPACE, 600, FREE + (8 << 20), PAGE);
    let page = (600 * PAGE, 0);
    assert_eq!(rig.initiate(0, THEIRS, page, page, 8), 1);
    rig.run();
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
    assert_eq!((words(&rig, 0), words(&rig, 1)), ((2, 1), (1, 1)));
    rig.hold(0, OURS, false);
    rig.run();
    assert_eq!((words(&rig, 0), words(&rig, 1)), ((2, 3), (1, 2)));
}

#[test]
fn a_reset_writes_to_the_touch_page_until_it_ends() {
    let mut rig = rig_with_touch_pages();
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
    let Ok(job) = rig.next(Instant::now()) else {
        panic!("nothing to do");
    };
    rig.set(1, reg::CONTROL, Control::RESET);
    assert_eq!(words(&rig, 1), (1, 1), "the chunk may access the node");
    let memories: Vec<_> = rig.memories.iter().collect();
    let progress = job.run(&memories, &mut rig.scratch);
    rig.model.finish(&job, progress, &memories);
    assert_eq!(words(&rig, 1), (1, 2));
    assert_eq!(rig.get(1, reg::TOUCH_PAGE), 0);
    assert_eq!(rig.get(0, reg::TOUCH_PAGE), TOUCH);
}

#[test]
fn atomic_operations_and_polls_are_in_brackets_too() {
    let mut rig = rig_with_touch_pages();
    rig.set_method(0, OURS, Method::FetchAdd);
    assert_eq!(rig.ld(OURS, (SOURCE.0, 0)), 0);
    assert_eq!(words(&rig, 0), (1, 2));
    rig.set_method(0, OURS, Method::Queue);
    rig.poll();
    assert_eq!(words(&rig, 0), (1, 2), "an empty queue needs no look-up");
}

#[test]
fn a_poll_is_a_bracket_of_the_nodes_that_can_be_reached() {
    let mut rig = rig_with_touch_pages();
    rig.set_method(0, OURS, Method::Queue);
    rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
    rig.poll();
    assert_eq!((words(&rig, 0), words(&rig, 1)), ((1, 2), (1, 2)));
    rig.plug(false);
    rig.guests[0].submit(OURS, 2, &Descriptor::NOP);
    rig.poll();
    assert_eq!((words(&rig, 0), words(&rig, 1)), ((2, 3), (1, 2)));
}

#[test]
fn a_poll_publishes_after_its_bracket() {
    let mut rig = rig_with_touch_pages();
    rig.set_method(0, OURS, Method::Queue);
    // The last of two stores to the same word tells their order.
    let completed = rig.guests[0].status_page(OURS) + status_page::COMPLETED;
    rig.set(0, reg::TOUCH_PAGE, completed - TOUCH_OLDEST);
    rig.guests[0].submit(OURS, 1, &Descriptor::NOP);
    rig.poll();
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    let begun = rig.guests[0].get64(completed - TOUCH_OLDEST + TOUCH_BEGUN);
    assert_eq!(begun, 1);
}

#[test]
fn look_ups_of_the_engine_are_counted_where_that_is_wanted() {
    let mut rig = rig_without(0, SPACE, SOURCE.0, 2);
    rig.memories[0].count_translations(4);
    let counted = |rig: &Rig, node: usize| {
        let report = rig.memories[node].translations()?;
        let hits = report.hits.into_values().collect::<Vec<_>>();
        Some((report.lookups, report.missing, hits))
    };
    // Two pages, and the one that is missing, which no cache has.
    copy(&mut rig, 1, 4, 1);
    assert_eq!(counted(&rig, 0), Some((3, 1, vec![0, 0, 0])));
    copy(&mut rig, 1, 4, 2);
    assert_eq!(counted(&rig, 0), Some((6, 2, vec![0, 2, 2])));
    assert_eq!(counted(&rig, 1), None);
}
