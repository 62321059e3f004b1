// SPDX-License-Identifier: MIT OR Apache-2.0

//! Contexts of one method, and the accesses by which their programs initiate.

use super::rig::{Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use super::{page_entry, FREE, PAGE, PAGE_RIGHTS};
use uldma_device::abi::{Method, REPEATED_FAIL, REPEATED_OK1, REPEATED_OK2, REPEATED_OK3};
use uldma_device::layout::{context_page, PageWord, BAR_CONTEXT};
use uldma_device::method::PutWord;
use uldma_device::shadow::SizeWord;

/// Page entries of ours: source and destination; and the other process's two.
pub(crate) const A: (u32, u64) = (10, 0);
pub(crate) const B: (u32, u64) = (11, 0);
pub(crate) const C: (u32, u64) = (20, 0);
pub(crate) const D: (u32, u64) = (21, 0);
pub(crate) const BYTES: usize = 64;

pub(crate) const OK1: i64 = REPEATED_OK1 as i64;
pub(crate) const OK2: i64 = REPEATED_OK2 as i64;
pub(crate) const FAIL: i64 = REPEATED_FAIL as i64;
pub(crate) const STARTED: i64 = (1 << 12) | REPEATED_OK3 as i64;

/// Returns the bus address of a page entry of [`rig`].
pub(crate) fn place((entry, offset): (u32, u64)) -> u64 {
    FREE + u64::from(entry) * PAGE + offset
}

pub(crate) fn put_page(rig: &Rig, (entry, _): (u32, u64), space: u32, rights: PageWord) {
    let word = PageWord::of_address(place((entry, 0))) | PageWord::VALID | rights;
    let page = page_entry(word, space, 0);
    rig.guests[0].put_page(entry, &page);
}

/// Contexts of one method: ours with pages A and B, which region 1 covers, and theirs with C and D.
/// The first bytes of each page are the number of its entry.
pub(crate) fn rig(method: Method) -> Rig {
    let mut rig = Rig::new();
    rig.guests[0].register(1, SPACE, A.0, place(A), 2 * PAGE);
    rig.guests[0].register(2, OTHER_SPACE, C.0, place(C), 2 * PAGE);
    for page in [A, B, C, D] {
        rig.guests[0].put(place(page), &[page.0 as u8; BYTES]);
    }
    rig.set_method(0, OURS, method);
    rig.set_method(0, THEIRS, method);
    rig
}

pub(crate) fn size() -> u64 {
    SizeWord {
        bytes: BYTES as u32,
        ..SizeWord::default()
    }
    .pack()
}

pub(crate) fn holds(rig: &Rig, page: (u32, u64), expected: (u32, u64)) -> bool {
    rig.guests[0].get(place(page), BYTES) == [expected.0 as u8; BYTES]
}

pub(crate) fn page_register(context: u32, register: usize) -> u64 {
    u64::from(context) * PAGE + register as u64
}

/// Initiates a transfer from A to B by a method, as its program does. Returns the last answer.
pub(crate) fn initiate(rig: &mut Rig, method: Method, context: u32) -> i64 {
    match method {
        Method::Key => {
            rig.st(context, B, Rig::key(context));
            rig.st(context, A, Rig::key(context));
            rig.store(0, BAR_CONTEXT, page_register(context, 0x48), 8, size());
            let page = page_register(context, context_page::REMAINING.offset());
            rig.load(0, BAR_CONTEXT, page, 8) as i64
        }
        Method::SingleStore => {
            let word = PutWord {
                length: BYTES as u32 / 8,
                src_offset: 0,
                src_region: 1,
                dst_region: 0,
            };
            rig.st(context, B, word.pack());
            0
        }
        Method::Repeated3 => {
            assert_eq!(rig.ld(context, A), OK1);
            rig.st(context, B, size());
            rig.ld(context, A)
        }
        Method::Repeated4 | Method::Repeated5 => {
            let five = method == Method::Repeated5;
            rig.st(context, B, size());
            assert_eq!(rig.ld(context, A), OK1);
            rig.st(context, B, size());
            let fourth = rig.ld(context, A);
            if !five {
                return fourth;
            }
            assert_eq!(fourth, OK2);
            rig.ld(context, B)
        }
        Method::Shrimp1 => {
            let page = page_entry(PageWord::of_address(place(A)) | PAGE_RIGHTS, SPACE, B.0 + 1);
            rig.guests[0].put_page(A.0, &page);
            rig.ld(context, (A.0, BYTES as u64 - 8))
        }
        _ => {
            rig.run_on(3, context);
            rig.st(context, B, size());
            rig.ld(context, A)
        }
    }
}
