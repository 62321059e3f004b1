// SPDX-License-Identifier: MIT OR Apache-2.0

//! Initiation methods on the whole model: what they move, what they answer, and what they let
//! other processes do.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::methods::{
    holds, initiate, page_register, place, put_page, rig, size, A, B, BYTES, C, D, FAIL, OK1, OK2,
    STARTED,
};
use common::rig::{refused, Rig, OTHER_SPACE, OURS, SHAPE, SPACE, THEIRS};
use common::{page_entry, ALL_RIGHTS, FREE, PAGE, PAGE_RIGHTS};
use uldma_device::abi::{Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{
    context_page, ctx, reg, ContextControl, Control, EventCauses, Invalidation, Key, PageWord,
    RegionEntry, RegionFlags, BAR_CONTEXT, BAR_SHADOW, MAX_BAD_KEYS,
};
use uldma_device::method::PutWord;
use uldma_device::node::Shape;
use uldma_device::shadow::SizeWord;

#[test]
fn every_method_moves_bytes() {
    for method in Method::all() {
        if matches!(method, Method::Queue | Method::FetchAdd) {
            continue;
        }
        let name = method.name();
        let mut rig = rig(method);
        let answer = initiate(&mut rig, method, OURS);
        let expected = match method {
            Method::Key => BYTES as i64,
            Method::SingleStore => 0,
            Method::Repeated3 | Method::Repeated4 | Method::Repeated5 => STARTED,
            _ => 1,
        };
        assert_eq!(answer, expected, "{name}");
        assert!(holds(&rig, B, B), "{name}: nothing yet");
        rig.run();
        assert!(holds(&rig, B, A), "{name}");
        let record = rig.guests[0].record(OURS, 1);
        assert_eq!(record, (1, BYTES as u64, 0), "{name}");
        assert_eq!(rig.get_ctx(0, OURS, ctx::REFUSED), 0, "{name}");
        let report = rig.model.report();
        let counters = report.nodes[0].counters.methods[&method];
        assert_eq!((counters.initiations, counters.refused), (1, 0), "{name}");
    }
}

#[test]
fn what_the_device_has() {
    let mut rig = Rig::new();
    assert_eq!(rig.get(0, reg::METHODS), Method::ALL);
    assert_eq!(rig.get(0, reg::METHODS), 0x1f_03ff);
    assert_eq!(rig.get(0, reg::CPUS), 64);
    let methods = Method::Key.bit() | Method::Repeated5.bit();
    let shape = Shape { methods, ..SHAPE };
    let mut few = Rig::of_shape(shape, Speed::default());
    few.probe(0);
    assert_eq!(few.get(0, reg::METHODS), methods);
    few.guests[0].register(1, SPACE, A.0, place(A), 2 * PAGE);
    let disabled = refused(Status::Disabled);
    assert_eq!(initiate(&mut few, Method::ExtendedShadow, OURS), disabled);
    few.set_method(0, OURS, Method::Repeated5);
    assert_eq!(initiate(&mut few, Method::Repeated5, OURS), STARTED);
    few.set_method(0, OURS, Method::Queue);
    assert_eq!(few.ld(OURS, A), disabled);
}

/// D-026, D-083: a lone load uses the arguments that a victim has stored; and the contexts that are
/// safe from that.
#[test]
fn mixing_arguments() {
    for method in [
        Method::ExtendedShadow,
        Method::ExtendedShadowShared,
        Method::Shrimp2Abort,
        Method::Flash,
        Method::Shrimp2,
        Method::Pal,
        Method::FlashSingle,
    ] {
        let name = method.name();
        let mut rig = rig(method);
        rig.run_on(0, OURS);
        rig.run_on(1, THEIRS);
        rig.st(OURS, B, size());
        let answer = rig.ld(THEIRS, C);
        rig.run();
        if method.mixes_contexts() {
            assert_eq!(answer, 1, "{name}");
            assert!(holds(&rig, B, C), "{name}");
            assert_eq!(rig.guests[0].completed(THEIRS), (1, 0), "{name}");
        } else {
            assert!(answer < 0, "{name}: {answer}");
            assert!(holds(&rig, B, B), "{name}");
            assert_eq!(rig.guests[0].refused(THEIRS), 1, "{name}");
        }
    }
}

#[test]
fn mixed_arguments_have_a_status() {
    let mut rig = rig(Method::ExtendedShadowShared);
    rig.st(OURS, B, size());
    assert_eq!(rig.ld(THEIRS, C), refused(Status::Mixed));
    assert_eq!(rig.ld(OURS, A), refused(Status::NoArgs));
}

#[test]
fn who_runs_has_to_be_told() {
    for method in [Method::Shrimp2Abort, Method::Flash, Method::FlashSingle] {
        let mut rig = rig(method);
        let not_running = refused(Status::NotRunning);
        rig.run_on(64, OURS);
        rig.st(OURS, B, size());
        assert_eq!(rig.ld(OURS, A), not_running, "no such CPU");
        assert_eq!(rig.get_ctx(0, OURS, ctx::REFUSED), 2);
        rig.run_on(63, OURS);
        rig.st(OURS, B, size());
        rig.run_on(63, 0);
        assert_eq!(rig.ld(OURS, A), not_running);
        rig.run_on(63, OURS);
        let expected = match method {
            Method::Shrimp2Abort => refused(Status::NoArgs),
            _ => 1,
        };
        assert_eq!(rig.ld(OURS, A), expected, "{}", method.name());
        rig.set(0, reg::CONTROL, Control::RESET);
        rig.probe(0);
        rig.set_method(0, OURS, method);
        assert_eq!(rig.ld(OURS, A), not_running, "a reset forgets who runs");
    }
}

/// Interleaving B (D-056) with a page that two processes share, with an entry each: the process
/// that may only read A starts the transfer, and its owner reads FAIL.
#[test]
fn shared_pages_are_one_address() {
    let mut rig = rig(Method::Repeated4);
    let shared = (30, 0);
    let page = page_entry(
        PageWord::of_address(place(A)) | PageWord::VALID | PageWord::READ,
        OTHER_SPACE,
        0,
    );
    rig.guests[0].put_page(shared.0, &page);
    rig.st(OURS, B, size());
    assert_eq!(rig.ld(OURS, A), OK1);
    rig.st(OURS, B, size());
    assert_eq!(rig.ld(THEIRS, shared), STARTED);
    assert_eq!(rig.ld(OURS, A), FAIL);
    rig.run();
    assert!(holds(&rig, B, A));
    assert_eq!(rig.guests[0].completed(THEIRS), (1, 0));
    assert_eq!(rig.guests[0].completed(OURS), (0, 0));
    let report = rig.model.report();
    let counters = report.nodes[0].counters.methods[&Method::Repeated4];
    assert_eq!((counters.fails, counters.refused), (1, 0));
}

/// Interleavings A and C (D-053, section 4.4).
#[test]
fn interleavings_of_repeated_passing() {
    let mut three = rig(Method::Repeated3);
    let foo = D;
    assert_eq!(three.ld(OURS, A), OK1);
    three.st(THEIRS, foo, size());
    assert_eq!(three.ld(THEIRS, foo), FAIL);
    assert_eq!(three.ld(THEIRS, C), OK1);
    three.st(OURS, B, size());
    assert_eq!(three.ld(THEIRS, C), STARTED);
    assert_eq!(three.ld(OURS, A), OK1);
    three.run();
    assert!(holds(&three, B, C));

    let mut five = rig(Method::Repeated5);
    five.st(OURS, A, size());
    assert_eq!(five.ld(OURS, B), OK1);
    five.st(OURS, A, size());
    assert_eq!(five.ld(OURS, B), OK2);
    five.st(THEIRS, C, size());
    assert_eq!(five.ld(THEIRS, D), FAIL);
    five.st(THEIRS, C, size());
    assert_eq!(five.ld(OURS, A), OK1);
    five.st(OURS, A, size());
    assert_eq!(five.ld(OURS, B), FAIL);
    assert_eq!(initiate(&mut five, Method::Repeated5, OURS), STARTED);
    five.run();
    assert!(holds(&five, B, A) && holds(&five, D, D) && holds(&five, C, C));
}

/// D-050, D-058, D-063.
#[test]
fn rights_that_repeated_passing_needs() {
    let mut rig = rig(Method::Repeated5);
    put_page(&rig, A, SPACE, PageWord::READ);
    assert_eq!(initiate(&mut rig, Method::Repeated5, OURS), STARTED);
    put_page(&rig, B, SPACE, PageWord::WRITE);
    let no_right = refused(Status::NoRight);
    assert_eq!(initiate(&mut rig, Method::Repeated5, OURS), no_right);
    rig.set_method(0, OURS, Method::Repeated4);
    // Tickets continue from the status page's counters.
    let second = STARTED + (1 << 12);
    assert_eq!(initiate(&mut rig, Method::Repeated4, OURS), second);
}

/// Half-passed arguments name page entries that may mean other memory after an invalidation, so
/// nothing can be started with them by methods that trust the MMU.
#[test]
fn invalidation_takes_half_passed_arguments_along() {
    let mut five = rig(Method::Repeated5);
    five.st(OURS, B, size());
    five.ld(OURS, A);
    five.st(OURS, B, size());
    five.ld(OURS, A);
    five.invalidate(0, Invalidation::REGION, 77);
    assert_eq!(five.ld(OURS, B), FAIL);
    let mut own = rig(Method::ExtendedShadow);
    own.st(OURS, B, size());
    own.invalidate(0, Invalidation::REGION, 77);
    assert_eq!(
        own.ld(OURS, A),
        1,
        "other methods check the owner of the pages"
    );
}

#[test]
fn disabling_forgets_what_was_passed() {
    for method in [
        Method::ExtendedShadow,
        Method::Shrimp2,
        Method::Flash,
        Method::FlashSingle,
    ] {
        let mut rig = rig(method);
        rig.run_on(0, OURS);
        rig.st(OURS, B, size());
        rig.set_method(0, OURS, method);
        let no_args = refused(Status::NoArgs);
        assert_eq!(rig.ld(OURS, A), no_args, "{}", method.name());
    }
    let mut rig = rig(Method::Repeated5);
    rig.st(OURS, B, size());
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.ld(THEIRS, A), FAIL);
}

/// D-036 to D-044.
#[test]
fn keys() {
    let mut rig = rig(Method::Key);
    assert_eq!(
        rig.get_ctx(0, OURS, ctx::KEY),
        Key::NONE,
        "it is write-only"
    );
    let page = page_register(OURS, context_page::REMAINING.offset());
    rig.st(OURS, B, Rig::key(OURS));
    let no_args = refused(Status::NoArgs);
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 8) as i64, no_args);
    rig.store(0, BAR_CONTEXT, page, 2, 1);
    let bad_access = refused(Status::BadAccess);
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 8) as i64, bad_access);
    assert_eq!(rig.ld(OURS, A), no_args, "shadow loads pass nothing");

    // Passed by stores, so both have to be writable (D-040).
    put_page(&rig, A, SPACE, PageWord::READ);
    let no_right = refused(Status::NoRight);
    assert_eq!(initiate(&mut rig, Method::Key, OURS), no_right);
    put_page(&rig, A, SPACE, PageWord::READ | PageWord::WRITE);
    let region = RegionEntry {
        flags: ALL_RIGHTS.without(RegionFlags::WRITE),
        space: SPACE,
        length: PAGE,
        run_count: 1,
        first_page: A.0,
        ..RegionEntry::default()
    };
    rig.guests[0].put_region(5, &region);
    rig.st(OURS, B, Rig::key(OURS));
    rig.st(OURS, A, Rig::key(OURS));
    let word = SizeWord {
        bytes: 8,
        src_region: 5,
        ..SizeWord::default()
    };
    rig.store(0, BAR_CONTEXT, page, 8, word.pack());
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 8) as i64, no_right);

    // A process that knows a key passes addresses to the key's context, which has to own them.
    rig.st(THEIRS, D, Rig::key(OURS));
    rig.st(THEIRS, C, Rig::key(OURS));
    rig.store(0, BAR_CONTEXT, page, 8, size());
    let not_owner = refused(Status::NotOwner);
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 8) as i64, not_owner);

    assert_eq!(initiate(&mut rig, Method::Key, OURS), BYTES as i64);
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 4), BYTES as u64, "to go");
    rig.run();
    assert_eq!(rig.load(0, BAR_CONTEXT, page, 8), 0);
    let ticket = page_register(OURS, context_page::TICKET.offset());
    assert_eq!(rig.load(0, BAR_CONTEXT, ticket, 8), 1);
    assert_eq!(rig.get(0, reg::EVENT) & EventCauses::KEY, EventCauses::NONE);
}

/// D-041.
#[test]
fn wrong_keys_are_counted_and_end_service() {
    let mut rig = rig(Method::Key);
    rig.set(0, reg::EVENT, EventCauses::from_bits(u32::MAX));
    let interrupts = |rig: &Rig| rig.model.report().nodes[0].interrupts[0];
    let before = interrupts(&rig);
    for count in 1..=MAX_BAD_KEYS {
        rig.st(THEIRS, D, Rig::key(OURS) ^ (1 << 50));
        assert_eq!(rig.get_ctx(0, THEIRS, ctx::BAD_KEYS), count);
        assert_eq!(rig.get(0, reg::EVENT), EventCauses::KEY);
    }
    let told = before + u64::from(MAX_BAD_KEYS);
    assert_eq!(interrupts(&rig), told);
    let bad_key = refused(Status::BadKey);
    assert_eq!(initiate(&mut rig, Method::Key, THEIRS), bad_key);
    assert_eq!(interrupts(&rig), told, "no storm of interrupts");
    assert_eq!(rig.get_ctx(0, OURS, ctx::BAD_KEYS), 0);
    assert_eq!(initiate(&mut rig, Method::Key, OURS), BYTES as i64);
    rig.set_method(0, THEIRS, Method::Key);
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::BAD_KEYS), 0);
    let not_owner = refused(Status::NotOwner);
    assert_eq!(initiate(&mut rig, Method::Key, THEIRS), not_owner);
    // Off, the key is worth nothing.
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    rig.st(THEIRS, D, Rig::key(OURS));
    assert_eq!(rig.get_ctx(0, THEIRS, ctx::BAD_KEYS), 1);
}

#[test]
fn single_stores_always_take_a_ticket() {
    let mut rig = rig(Method::SingleStore);
    let word = |length, src_offset, src_region, dst_region| {
        PutWord {
            length,
            src_offset,
            src_region,
            dst_region,
        }
        .pack()
    };
    let stores = [
        (word(1, 0, 1, 0), Status::Ok),
        (word(0, 0, 1, 0), Status::BadSize),
        (word(1, 0, 0, 0), Status::NotValid),
        (word(1, 0, 2, 0), Status::NotOwner),
        (word(2, 1023, 1, 0), Status::Bounds),
        (word(513, 0, 1, 0), Status::Bounds),
        (word(512, 512, 1, 1), Status::Ok),
    ];
    for (word, _) in stores {
        rig.st(OURS, B, word);
    }
    rig.store(0, BAR_SHADOW, Rig::shadow(OURS, B.0, 0), 2, 1);
    assert_eq!(rig.guests[0].completed(OURS), (0, 0), "in their order");
    rig.run();
    for (ticket, (_, status)) in (1..).zip(stores) {
        let record = rig.guests[0].record(OURS, ticket);
        assert_eq!((record.0, record.2), (ticket, status as u64));
    }
    assert_eq!(rig.guests[0].record(OURS, 8).2, Status::BadAccess as u64);
    assert_eq!(rig.guests[0].completed(OURS), (8, 6));
    assert_eq!(rig.guests[0].refused(OURS), 0);
    assert_eq!(rig.ld(OURS, A), refused(Status::NoArgs));
    assert_eq!(rig.guests[0].refused(OURS), 1);

    for _ in 0..70 {
        rig.st(OURS, B, word(1, 0, 1, 0));
    }
    assert_eq!(rig.guests[0].refused(OURS), 7, "six are lost");
    rig.run();
    assert_eq!(rig.guests[0].completed(OURS), (72, 6));
    rig.st(OURS, B, word(0, 0, 1, 0));
    assert_eq!(rig.guests[0].completed(OURS), (73, 7), "at once");
}

#[test]
fn pages_that_are_mapped_out() {
    let mut rig = rig(Method::Shrimp1);
    assert_eq!(rig.ld(OURS, A), refused(Status::NotValid), "not mapped out");
    assert_eq!(initiate(&mut rig, Method::Shrimp1, OURS), 1);
    let map = |rig: &Rig, to: u32| {
        let page = page_entry(PageWord::of_address(place(A)) | PAGE_RIGHTS, SPACE, to + 1);
        rig.guests[0].put_page(A.0, &page);
    };
    assert_eq!(rig.ld(OURS, (A.0, PAGE - 8)), 2, "all of it");
    map(&rig, C.0);
    assert_eq!(rig.ld(OURS, A), refused(Status::NotOwner));
    map(&rig, 999);
    assert_eq!(rig.ld(OURS, A), refused(Status::NotValid));
    put_page(&rig, (12, 0), SPACE, PageWord::READ);
    map(&rig, 12);
    assert_eq!(rig.ld(OURS, A), refused(Status::NoRight));
    // To the peer.
    rig.guests[1].register(3, OTHER_SPACE, 77, FREE, PAGE);
    rig.guests[0].import(4, SPACE, 1000, (1, 3), PAGE);
    map(&rig, 1000);
    assert_eq!(rig.ld(OURS, (A.0, 56)), 3);
    assert_eq!(
        rig.ld(OURS, (1000, 0)),
        refused(Status::NotValid),
        "an import is no source"
    );
    rig.run();
    assert_eq!(rig.guests[0].record(OURS, 2), (2, PAGE, 0));
    assert_eq!(rig.guests[1].get(FREE, BYTES), [A.0 as u8; BYTES]);
    rig.st(OURS, A, 8);
    assert_eq!(rig.guests[0].refused(OURS), 6);
}

#[test]
fn loads_that_add() {
    let mut rig = rig(Method::FetchAdd);
    let word = (B.0, 0x108);
    rig.guests[0].put64(place(word), u64::MAX - 1);
    for expected in [-2, -1, 0, 1] {
        assert_eq!(rig.ld(OURS, word), expected);
    }
    assert_eq!(rig.guests[0].get64(place(word)), 2);
    assert_eq!(rig.get_ctx(0, OURS, ctx::INITIATIONS), 4);
    assert_eq!(rig.get_ctx(0, OURS, ctx::TICKET), 0);

    assert_eq!(rig.ld(OURS, C), -1, "another's");
    put_page(&rig, A, SPACE, PageWord::READ);
    assert_eq!(rig.ld(OURS, A), -1, "not writable");
    put_page(&rig, A, SPACE, PageWord::WRITE);
    assert_eq!(rig.ld(OURS, A), -1, "not readable");
    assert_eq!(rig.guests[0].refused(OURS), 3);

    rig.guests[1].register(3, OTHER_SPACE, 77, FREE + 16, PAGE);
    rig.guests[0].import(4, SPACE, 1000, (1, 3), PAGE);
    rig.guests[1].put64(FREE + 16 + 8, 41);
    assert_eq!(rig.ld(OURS, (1000, 8)), 41);
    assert_eq!(rig.guests[1].get64(FREE + 16 + 8), 42);
    rig.guests[1].register(3, OTHER_SPACE, 77, FREE + 4, PAGE);
    assert_eq!(rig.ld(OURS, (1000, 8)), -1, "not aligned there");

    let control = ContextControl::ENABLE | ContextControl::NO_DATA;
    rig.set_ctx(0, OURS, ctx::CONTROL, control);
    assert_eq!(rig.ld(OURS, word), 0);
    assert_eq!(rig.guests[0].get64(place(word)), 2);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    assert_eq!(rig.ld(OURS, word), -1);
}

#[test]
fn without_data() {
    let mut rig = rig(Method::ExtendedShadow);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    let control = ContextControl::ENABLE | ContextControl::NO_DATA;
    rig.set_ctx(0, OURS, ctx::CONTROL, control);
    assert_eq!(rig.get_ctx(0, OURS, ctx::CONTROL), control);
    assert_eq!(initiate(&mut rig, Method::ExtendedShadow, OURS), 1);
    assert_eq!(rig.guests[0].record(OURS, 1), (1, 0, 0));
    assert_eq!(rig.guests[0].completed(OURS), (1, 0), "at once");
    rig.st(OURS, D, size());
    assert_eq!(rig.ld(OURS, A), refused(Status::NotOwner), "but checked");
    assert!(!rig.step());
    assert!(holds(&rig, B, B));
}

#[test]
fn refusals_are_told_by_the_status_page() {
    let mut rig = rig(Method::ExtendedShadow);
    rig.ld(OURS, A);
    rig.st(OURS, B, size());
    rig.ld(OURS, C);
    assert_eq!(rig.guests[0].refused(OURS), 2);
    assert_eq!(rig.get_ctx(0, OURS, ctx::REFUSED), 2);
    // A disabled context writes nothing.
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::NONE);
    rig.ld(OURS, A);
    assert_eq!(rig.guests[0].refused(OURS), 2);
    rig.set_ctx(0, OURS, ctx::CONTROL, ContextControl::ENABLE);
    rig.set(0, reg::CONTROL, Control::NONE);
    rig.ld(OURS, A);
    assert_eq!(rig.guests[0].refused(OURS), 2);
    // Nor one that has no page.
    rig.set(0, reg::CONTROL, Control::ENABLE);
    rig.set(0, reg::EVENT, EventCauses::from_bits(u32::MAX));
    rig.set_ctx(0, OURS, ctx::STATUS_PAGE, 0);
    rig.ld(OURS, A);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::NONE);
    rig.set_ctx(0, OURS, ctx::STATUS_PAGE, 8);
    rig.ld(OURS, A);
    assert_eq!(rig.get(0, reg::EVENT), EventCauses::ERROR);
}
