// SPDX-License-Identifier: MIT OR Apache-2.0

//! The answers, transfers and counters of initiations.

mod common;

use common::rig::{at, refused, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{page_entry, pattern, ALL_RIGHTS, FREE, PAGE, PAGES, PAGE_RIGHTS};
use uldma_device::abi::Status;
use uldma_device::layout::{
    context_page, ctx, reg, ContextControl, Control, KernelAddress, PageWord, RegionEntry,
    RegionFlags, Run, BAR_CONTEXT, BAR_SHADOW,
};
use uldma_device::shadow::SizeWord;

#[test]
fn local_transfer_of_unaligned_bytes() {
    let mut rig = Rig::new();
    let length = 700_001;
    rig.regions(length);
    let data = pattern(length as usize, 1);
    rig.guests[0].put(FREE + 0x123, &data);
    let ticket = rig.initiate(0, OURS, at(1, 3), at(2, 0), length as u32 - 3);
    assert_eq!(ticket, 1);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    rig.run();
    let start = FREE + (4 << 20) + 0x456;
    assert_eq!(
        rig.guests[0].get(start, length as usize - 3),
        &data[3..],
        "what was asked for"
    );
    assert_eq!(rig.guests[0].get(start - 8, 8), [0; 8], "nothing before it");
    let end = start + length - 3;
    assert_eq!(rig.guests[0].get(end, 8), [0; 8], "nothing after it");
    assert_eq!(rig.guests[0].completed(OURS), (1, 0));
    assert_eq!(rig.guests[0].record(OURS, 1), (1, length - 3, 0));
    for (register, count) in [
        (ctx::SHADOW_STORES, 1),
        (ctx::SHADOW_LOADS, 1),
        (ctx::INITIATIONS, 1),
        (ctx::REFUSED, 0),
        (ctx::BYTES, length - 3),
    ] {
        assert_eq!(rig.get_ctx(0, OURS, register), count, "{register:?}");
    }
}

#[test]
fn passing_arguments_touches_no_memory() {
    let mut rig = Rig::new();
    rig.regions(PAGE * 2);
    let before = rig.guests[0].get(FREE, 4 * PAGE as usize);
    let word = SizeWord {
        bytes: 8,
        ..SizeWord::default()
    };
    rig.store(0, BAR_SHADOW, Rig::shadow(OURS, 500, 0), 8, word.pack());
    assert_eq!(
        rig.load(0, BAR_SHADOW, Rig::shadow(THEIRS, 10, 0), 8) as i64,
        refused(Status::NoArgs)
    );
    rig.run();
    assert_eq!(rig.guests[0].get(FREE, 4 * PAGE as usize), before);
}

#[test]
fn remote_transfers_both_ways() {
    let mut rig = Rig::new();
    let length = 300_000;
    rig.regions(length);
    let data = pattern(length as usize, 2);
    rig.guests[0].put(FREE + 0x123, &data);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(4, 1), length as u32 - 1),
        1
    );
    rig.run();
    assert_eq!(
        rig.guests[1].get(FREE + 0x789 + 1, length as usize - 1),
        &data[..length as usize - 1]
    );
    assert_eq!(
        rig.initiate(0, OURS, at(4, 1), at(2, 0), length as u32 - 1),
        2
    );
    rig.run();
    assert_eq!(
        rig.guests[0].get(FREE + (4 << 20) + 0x456, length as usize - 1),
        &data[..length as usize - 1]
    );
    let report = rig.model.report();
    let counters = &report.nodes[0].counters;
    assert_eq!(
        (counters.bytes_to_peer, counters.bytes_from_peer),
        (length - 1, length - 1)
    );
    assert_eq!(report.nodes[1].counters.initiations, 0);
}

#[test]
fn regions_of_several_runs() {
    let mut rig = Rig::new();
    let guest = &rig.guests[0];
    // Pages in a scattered order: runs of 2, 1 and 3 page entries.
    let runs = [
        Run {
            page: 0,
            first: 200,
            count: 2,
            reserved: 0,
        },
        Run {
            page: 2,
            first: 40,
            count: 1,
            reserved: 0,
        },
        Run {
            page: 3,
            first: 300,
            count: 3,
            reserved: 0,
        },
    ];
    let mut pages = Vec::new();
    for run in &runs {
        for page in 0..run.count {
            let address = FREE + u64::from((run.first + page) * 7 % 64) * PAGE;
            let word = PAGE_RIGHTS.with_address(address);
            guest.put_page(run.first + page, &page_entry(word, SPACE, 0));
            pages.push(address);
        }
    }
    guest.put_runs(FREE + (8 << 20), &runs);
    let region = RegionEntry {
        flags: ALL_RIGHTS,
        space: SPACE,
        offset: 0x800,
        length: 5 * PAGE,
        generation: 1,
        run_count: 3,
        runs: FREE + (8 << 20),
        ..RegionEntry::default()
    };
    guest.put_region(1, &region);
    guest.register(2, SPACE, 500, FREE + (4 << 20), 8 * PAGE);
    let data = pattern(6 * PAGE as usize, 3);
    for (page, address) in pages.iter().enumerate() {
        guest.put(*address, &data[page * PAGE as usize..][..PAGE as usize]);
    }
    // From the middle of page 2, named by its entry, to the region's end.
    let source = (40 * PAGE + 0x100, 1);
    let destination = (500 * PAGE, 2);
    let bytes = 5 * PAGE + 0x800 - (2 * PAGE + 0x100);
    assert_eq!(rig.initiate(0, OURS, source, destination, bytes as u32), 1);
    assert_eq!(
        rig.initiate(0, OURS, source, destination, bytes as u32 + 1),
        refused(Status::Bounds)
    );
    assert_eq!(
        rig.initiate(0, OURS, (200 * PAGE + 0x7f8, 1), destination, 8),
        refused(Status::Bounds),
        "before the region's first byte"
    );
    assert_eq!(
        rig.initiate(0, OURS, (500 * PAGE, 1), destination, 8),
        refused(Status::NotValid),
        "no page of the region"
    );
    rig.run();
    let from = 2 * PAGE as usize + 0x100;
    assert_eq!(
        rig.guests[0].get(FREE + (4 << 20), bytes as usize),
        &data[from..from + bytes as usize]
    );
}

#[test]
fn refusals_of_forms_and_states() {
    let mut rig = Rig::new();
    rig.regions(PAGE * 2);
    let to = Rig::shadow(OURS, 500, 0);
    let from = Rig::shadow(OURS, 10, 0x128);
    let word = SizeWord {
        bytes: 8,
        ..SizeWord::default()
    }
    .pack();

    assert_eq!(
        rig.load(0, BAR_SHADOW, from, 8) as i64,
        refused(Status::NoArgs)
    );
    rig.store(0, BAR_SHADOW, to, 4, word);
    assert_eq!(rig.load(0, BAR_SHADOW, from, 4), 1, "halves are enough");
    rig.store(0, BAR_SHADOW, to, 8, word);
    rig.store(0, BAR_SHADOW, to + 8, 2, word);
    assert_eq!(
        rig.load(0, BAR_SHADOW, from, 8) as i64,
        refused(Status::NoArgs),
        "a malformed store leaves nothing behind"
    );
    rig.store(0, BAR_SHADOW, to, 8, word);
    assert_eq!(rig.load(0, BAR_SHADOW, from, 1), 0xfd, "-BAD_ACCESS, cut");
    assert_eq!(
        rig.load(0, BAR_SHADOW, from, 8) as i64,
        refused(Status::NoArgs)
    );
    assert_eq!(
        rig.initiate(0, 0, at(1, 0), at(2, 0), 8),
        refused(Status::Disabled),
        "the kernel's slice"
    );
    assert_eq!(
        rig.initiate(0, 3, at(1, 0), at(2, 0), 8),
        refused(Status::Disabled),
        "a context that is off"
    );
    rig.set_ctx(0, OURS, ctx::METHODS, 0b11);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 8),
        refused(Status::Disabled),
        "two methods are none"
    );
    rig.set_ctx(0, OURS, ctx::METHODS, 1);
    rig.set(0, reg::CONTROL, Control::NONE);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 8),
        refused(Status::Disabled),
        "a node that is off"
    );
}

#[test]
fn refusals_of_arguments() {
    let mut rig = Rig::new();
    rig.regions(PAGE * 2);
    rig.guests[0].register(8, OTHER_SPACE, 700, FREE + (6 << 20), PAGE);
    let mut expect = |source, destination, bytes, status: Status| {
        let answer = rig.initiate(0, OURS, source, destination, bytes);
        assert_eq!(
            answer,
            refused(status),
            "{source:x?} {destination:x?} {bytes}"
        );
    };
    let missing = (3000 * PAGE, 0);
    let beyond = (u64::from(PAGES) * PAGE, 0);
    let foreign = (700 * PAGE, 8);
    expect(missing, missing, 0, Status::BadSize);
    expect(missing, at(2, 0), 8, Status::NotValid);
    expect(at(1, 0), beyond, 8, Status::NotValid);
    expect(foreign, at(2, 0), 8, Status::NotOwner);
    expect(at(1, 0), foreign, 8, Status::NotOwner);
    expect((at(1, 0).0, 2), at(2, 0), 8, Status::NotValid);
    expect((at(1, 0).0, 8), at(2, 0), 8, Status::NotOwner);
    expect((at(1, 0).0, 999), at(2, 0), 8, Status::NotValid);
    expect((at(1, 0).0, 16383), at(2, 0), 8, Status::NotValid);
    expect((at(1, 0).0, 4), at(2, 0), 8, Status::NotValid);
    expect((at(4, 0).0, 1), at(2, 0), 8, Status::NotValid);
    expect(at(1, 1), at(2, 0), 2 * PAGE as u32, Status::Bounds);
    expect(at(1, 0), at(2, 1), 2 * PAGE as u32, Status::Bounds);
    expect(at(1, 0), at(4, 1), 2 * PAGE as u32, Status::Bounds);
    expect(
        (11 * PAGE, 0),
        (500 * PAGE + 8, 0),
        PAGE as u32,
        Status::Bounds,
    );
    expect(
        (11 * PAGE + 1, 0),
        (500 * PAGE, 0),
        PAGE as u32,
        Status::Bounds,
    );
    expect(at(4, 0), at(4, 8), 8, Status::NoRight);

    // The last byte of a page that was named alone still fits.
    assert_eq!(
        rig.initiate(0, OURS, (11 * PAGE + 1, 0), (500 * PAGE + 1, 0), 4095),
        1
    );
}

#[test]
fn rights_of_pages_and_regions() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let page = |rights| {
        page_entry(
            PageWord::of_address(FREE) | PageWord::VALID | rights,
            SPACE,
            0,
        )
    };
    rig.guests[0].put_page(10, &page(PageWord::READ));
    rig.guests[0].put_page(12, &page(PageWord::WRITE));
    let (read, write) = ((10 * PAGE, 0), (12 * PAGE, 0));
    assert_eq!(rig.initiate(0, OURS, read, write, 8), 1, "all it needs");
    assert_eq!(
        rig.initiate(0, OURS, write, at(2, 0), 8),
        refused(Status::NoRight)
    );
    assert_eq!(
        rig.initiate(0, OURS, at(2, 0), read, 8),
        refused(Status::NoRight)
    );

    let mut rig = Rig::new();
    rig.regions(PAGE);
    let mut region = RegionEntry {
        flags: ALL_RIGHTS.without(RegionFlags::READ),
        space: SPACE,
        offset: 0x123,
        length: PAGE,
        generation: 1,
        run_count: 1,
        first_page: 10,
        ..RegionEntry::default()
    };
    rig.guests[0].put_region(1, &region);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 8),
        refused(Status::NoRight)
    );
    region.flags = ALL_RIGHTS.without(RegionFlags::WRITE);
    rig.guests[0].put_region(1, &region);
    assert_eq!(
        rig.initiate(0, OURS, at(2, 0), at(1, 0), 8),
        refused(Status::NoRight)
    );
}

#[test]
fn the_peer_decides_what_it_exports() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let good = RegionEntry {
        flags: ALL_RIGHTS,
        space: OTHER_SPACE,
        offset: 0x789,
        length: PAGE,
        generation: 1,
        run_count: 1,
        first_page: 77,
        ..RegionEntry::default()
    };
    let with = |flags| RegionEntry { flags, ..good };
    let replaced = RegionEntry {
        generation: 2,
        ..good
    };
    let bad = [
        (with(RegionFlags::NONE), Status::Revoked),
        (replaced, Status::Revoked),
        (
            with(ALL_RIGHTS.without(RegionFlags::EXPORT_WRITE)),
            Status::Remote,
        ),
        (RegionEntry { length: 7, ..good }, Status::Remote),
        (with(ALL_RIGHTS | RegionFlags::REMOTE), Status::Remote),
    ];
    for (entry, expected) in bad {
        rig.guests[1].put_region(3, &entry);
        let answer = rig.initiate(0, OURS, at(1, 0), at(4, 0), 8);
        assert_eq!(answer, refused(expected), "{entry:?}");
    }
    rig.guests[1].put_region(3, &good);
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(4, 0), 8), 1);
    // Removed between initiation and the engine's turn.
    rig.guests[1].put_region(3, &replaced);
    rig.run();
    let expected = (1, 0, Status::Revoked as u64);
    assert_eq!(rig.guests[0].record(OURS, 1), expected);
    assert_eq!(rig.guests[1].get(FREE + 0x789, 8), [0; 8]);
}

#[test]
fn full_queue_and_context_page() {
    let mut rig = Rig::new();
    rig.regions(PAGE);
    let page = u64::from(OURS) * PAGE;
    for ticket in 1..=64 {
        assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 100), ticket);
    }
    let remaining = page + context_page::REMAINING.offset() as u64;
    assert_eq!(rig.load(0, BAR_CONTEXT, remaining, 8), 100);
    assert_eq!(
        rig.initiate(0, OURS, at(1, 0), at(2, 0), 100),
        refused(Status::QueueFull)
    );
    assert_eq!(
        rig.load(0, BAR_CONTEXT, remaining, 8) as i64,
        refused(Status::QueueFull)
    );
    let ticket = page + context_page::TICKET.offset() as u64;
    assert_eq!(rig.load(0, BAR_CONTEXT, ticket, 8), 64);
    rig.run();
    assert_eq!(rig.initiate(0, OURS, at(1, 0), at(2, 0), 100), 65);
    rig.run();
    assert_eq!(rig.load(0, BAR_CONTEXT, remaining, 8), 0);
    assert_eq!(rig.guests[0].record(OURS, 65), (65, 100, 0));
    rig.store(0, BAR_CONTEXT, page, 8, 1);
    assert_eq!(rig.get_ctx(0, OURS, ctx::PAGE_LOADS), 4);
    assert_eq!(rig.get_ctx(0, OURS, ctx::PAGE_STORES), 1);
    assert_eq!(
        rig.load(0, BAR_CONTEXT, 3 * PAGE, 8) as i64,
        refused(Status::Disabled)
    );
    assert_eq!(rig.load(0, BAR_CONTEXT, 4 * PAGE, 8), u64::MAX);
}

#[test]
fn kernel_transfers_name_every_space() {
    let mut rig = Rig::new();
    rig.regions(PAGE * 3);
    rig.guests[0].register(8, OTHER_SPACE, 700, FREE + (6 << 20) + 5, PAGE * 3);
    let data = pattern(2 * PAGE as usize, 4);
    rig.guests[0].put(FREE + 0x123 + 9, &data);
    let name = |region, offset| {
        let address = KernelAddress::NONE.try_with(KernelAddress::REGION, region);
        let address = address.unwrap().try_with(KernelAddress::OFFSET, offset);
        address.unwrap()
    };
    let mut start = |source, destination, bytes| {
        rig.set(0, reg::DMA_SOURCE, source);
        rig.set(0, reg::DMA_DESTINATION, destination);
        rig.set(0, reg::DMA_SIZE, bytes);
        rig.get(0, reg::DMA_STATUS)
    };
    assert_eq!(start(name(1, 9), name(8, 1), 2 * PAGE), 1);
    assert_eq!(start(name(1, 0), name(4, 0), PAGE), 2);
    assert_eq!(start(name(1, 0), name(8, 0), 0), refused(Status::BadSize));
    assert_eq!(start(name(0, 0), name(8, 0), 1), refused(Status::NotValid));
    assert_eq!(start(name(9, 0), name(8, 0), 1), refused(Status::NotValid));
    assert_eq!(
        start(name(0xffff, 0), name(8, 0), 1),
        refused(Status::NotValid)
    );
    assert_eq!(
        start(name(1, 1), name(8, 0), 3 * PAGE),
        refused(Status::Bounds)
    );
    assert_eq!(
        start(name(1, 1), name(8, 0), u64::MAX),
        refused(Status::Bounds)
    );
    assert_eq!(start(name(4, 0), name(4, 0), 1), refused(Status::NoRight));
    rig.run();
    assert_eq!(rig.guests[0].get(FREE + (6 << 20) + 6, data.len()), data);
    assert_eq!(rig.guests[0].completed(0), (2, 0));
    rig.set_ctx(0, 0, ctx::CONTROL, ContextControl::NONE);
    rig.set(0, reg::DMA_SIZE, 1);
    assert_eq!(rig.get(0, reg::DMA_STATUS), refused(Status::Disabled));
}
