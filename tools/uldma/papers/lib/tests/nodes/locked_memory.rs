// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests the library's interface to the locked memory manager. It needs a device, and CAP_SYS_ADMIN
//! for bus addresses: `make test` runs it on a node.
//!
//! It has its own main function, as pinned memory is accounted per process, and tests in several
//! threads would see each other's.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use uldma::device::Event;
use uldma::memory::Kind;
use uldma::region::{Memlock, Registered};
use uldma::{Access, Buffer, Device, Error, Memory};
use uldma_papers::lmm::{
    lmm_cleanup, lmm_get_blocks, lmm_get_pages, lmm_lock_area, lmm_unlock_area, LaHandle,
};
use uldma_papers::registrar::{Action, Mode, Registrar};

/// A test and its name.
type Test = (&'static str, fn(&Device));

const PAGE: u64 = 4096;
const SOON: Duration = Duration::from_secs(20);

fn pinned() -> u64 {
    Memlock::read().pinned
}

fn locked() -> u64 {
    Memlock::read().locked
}

fn the_papers_functions(device: &Device) {
    let memory = Memory::new(Kind::SysV, 8 * PAGE).unwrap();
    let lock = |offset, length| -> LaHandle {
        // SAFETY: no reference to bytes of a `Memory` exists.
        unsafe { lmm_lock_area(device, memory.address() + offset, length) }.unwrap()
    };
    let (first, second) = (lock(0, 4 * PAGE), lock(2 * PAGE + 5, 5 * PAGE));
    assert_ne!(first.handle(), second.handle());
    assert_eq!(pinned(), 8 * PAGE);

    let pages = lmm_get_pages(&first).unwrap();
    let others = lmm_get_pages(&second).unwrap();
    assert_eq!((pages.len(), others.len()), (4, 6));
    assert_eq!(pages[2..], others[..2]);
    let blocks = lmm_get_blocks(&second).unwrap();
    let bytes: u64 = blocks.iter().map(|block| block.length).sum();
    assert_eq!(bytes, 6 * PAGE);

    lmm_unlock_area(first).unwrap();
    assert_eq!(pinned(), 6 * PAGE);
    assert_eq!(lmm_get_pages(&second).unwrap(), others);
    lmm_cleanup(device).unwrap();
    assert_eq!(pinned(), 0);
    lmm_unlock_area(second).unwrap();
}

fn owners_survive_a_clean_up(device: &Device) {
    let mut buffer = Buffer::new(4096).unwrap();
    buffer.fill(7);
    let ended = device.register(buffer, Access::ReadWrite).unwrap();
    device.cleanup().unwrap();
    let next = device
        .register(Buffer::new(4096).unwrap(), Access::Read)
        .unwrap();
    assert!(ended.unregister().unwrap().iter().all(|&byte| byte == 7));
    // The old handle has ended nothing of the new one's.
    assert_eq!(next.query().unwrap().access, Some(Access::Read));

    let mut own = [1; 100];
    let work = |_: &uldma::region::Borrowed| device.cleanup();
    let cleaned = device.with_registered(&mut own, Access::Read, work);
    cleaned.unwrap().unwrap();
    assert_eq!(own, [1; 100]);
}

/// A message that arrives in slots that have ended, or is sent from a buffer, would meet others.
fn exchangeable_memory_is_not_cleaned_up(device: &Device) {
    let region = device
        .register(Buffer::new(4096).unwrap(), Access::Read)
        .unwrap();
    let mut buffer = device.exchangeable(100).unwrap();
    buffer.fill(7);
    let refused = device.cleanup().unwrap_err();
    assert_eq!(refused.errno(), Some(Errno::EBUSY));
    assert!(region.query().is_ok() && buffer.iter().all(|&byte| byte == 7));
    drop(buffer);
    device.cleanup().unwrap();
    assert!(region.query().is_err());
    // The pages of a later buffer are not those that have ended.
    device.exchangeable(100).unwrap().fill(7);
}

fn charges_are_foretold(device: &Device) {
    let memory = Memory::new(Kind::Memfd, 16 * PAGE).unwrap();
    let ask = |offset, length| {
        let charge = device.charge(memory.address() + offset, length, Access::Read);
        charge.unwrap()
    };
    let charge = ask(1, PAGE);
    assert_eq!(
        (charge.charge, charge.locked, charge.pinned),
        (2 * PAGE, 0, 0)
    );
    let part = PAGE..3 * PAGE;
    let _region = device.register_memory(&memory, part, Access::ReadWrite);
    let charge = ask(0, 4 * PAGE);
    assert_eq!(charge.charge, 2 * PAGE);
    assert_eq!((charge.locked, charge.pinned), (2 * PAGE, 2 * PAGE));
    assert!(device.charge(memory.address(), 0, Access::Read).is_err());
}

fn blocks_are_the_pages_in_order(device: &Device) {
    let memory = Memory::new(Kind::Private, 1000 * PAGE).unwrap();
    let part = 10..1000 * PAGE;
    let region = device
        .register_memory(&memory, part, Access::Write)
        .unwrap();
    let pages: Result<Vec<_>, Error> = region.pages().unwrap().collect();
    let blocks: Result<Vec<_>, Error> = region.blocks().unwrap().collect();
    let (pages, blocks) = (pages.unwrap(), blocks.unwrap());
    assert_eq!(pages.len(), 1000);
    let in_blocks = blocks.iter().flat_map(|block| {
        let numbers = 0..block.length / PAGE;
        numbers.map(|number| block.address + number * PAGE)
    });
    assert!(in_blocks.eq(pages.iter().map(|page| page.address)));
}

fn stale_regions_keep_their_bytes(device: &Device) {
    let memory = Memory::new(Kind::Private, 4 * PAGE).unwrap();
    let register = || {
        let region = device.register_memory(&memory, 0..4 * PAGE, Access::Read);
        region.unwrap()
    };
    memory.write(0, b"old").unwrap();
    let old = register();
    memory.discard().unwrap();
    memory.write(0, b"new").unwrap();

    let told = Event::Stale {
        handle: old.handle(),
        bytes: 4 * PAGE,
    };
    let end = Instant::now() + SOON;
    while !device.wait_events(SOON).unwrap().contains(&told) {
        assert!(Instant::now() < end, "no event came");
    }
    assert_eq!(old.query().unwrap().stale, 4 * PAGE);
    let new = register();
    assert_eq!(new.query().unwrap().stale, 0);
    assert_eq!(pinned(), 8 * PAGE);

    let target = device.register(Buffer::new(16).unwrap(), Access::Write);
    let target = target.unwrap();
    for (source, expected) in [(&old, b"old"), (&new, b"new")] {
        let ticket = device.dma((source, 0), (&target, 0), 3).unwrap();
        device.dma_wait(ticket, SOON).unwrap();
        let mut bytes = [0; 3];
        target.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, expected);
    }
}

fn the_cache_keeps_pins_while_they_are_good(device: &Device) {
    let before = device.set_pin_cache(true).unwrap();
    let memory = Memory::new(Kind::Shared, 64 * PAGE).unwrap();
    for _ in 0..5 {
        let region = device.register_memory(&memory, 0..64 * PAGE, Access::ReadWrite);
        region.unwrap().unregister().unwrap();
    }
    let now = device.locked_memory().unwrap();
    assert_eq!(now.pins - before.pins, 64);
    assert_eq!(now.cache_hits - before.cache_hits, 4);
    assert_eq!((now.cached, now.cached_regions), (64 * PAGE, 1));
    drop(memory);
    let end = Instant::now() + SOON;
    while device.locked_memory().unwrap().cached > 0 {
        assert!(Instant::now() < end, "stale pins stay in the cache");
        std::thread::yield_now();
    }
    device.set_pin_cache(false).unwrap();
}

fn every_mode_ends_what_it_began(device: &Device) {
    for kind in [Kind::Private, Kind::Shared, Kind::Memfd, Kind::SysV] {
        for mode in [Mode::Pinned, Mode::Mlock, Mode::ShmCtl] {
            let case = format!("{kind:?} {mode:?}");
            let memory = Memory::new(kind, 16 * PAGE).unwrap();
            let by_address = mode == Mode::Mlock && kind != Kind::Private;
            let whole = if by_address { 16 * PAGE } else { 0 };
            let registrar = Registrar::new(device, mode);
            let segment = registrar.segment(&memory).unwrap();
            let register =
                |part| registrar.register(&memory, segment.as_ref(), part, Access::ReadWrite);
            let first = register(PAGE..2 * PAGE).unwrap();
            let second = register(5 * PAGE..9 * PAGE).unwrap();
            assert_eq!((locked(), pinned()), (whole, 5 * PAGE), "{case}");
            let answers = [&first, &second].map(|area| area.answer().map(|answer| answer.action));
            let expected = match (mode, kind) {
                (Mode::Mlock, Kind::Private) => [Some(Action::Unlock); 2],
                (Mode::Mlock, _) => [Some(Action::Lock), Some(Action::Nop)],
                _ => [None; 2],
            };
            assert_eq!(answers, expected, "{case}");
            first.unregister().unwrap();
            assert_eq!((locked(), pinned()), (whole, 4 * PAGE), "{case}");
            drop(second);
            assert_eq!((locked(), pinned()), (0, 0), "{case}");
        }
    }
}

fn what_the_driver_refuses_is_not_left_locked(device: &Device) {
    let memory = Memory::new(Kind::SysV, 16 * PAGE).unwrap();
    let read_only = Memory::attach(memory.segment_id().unwrap(), false).unwrap();
    for mode in [Mode::Pinned, Mode::Mlock, Mode::ShmCtl] {
        let registrar = Registrar::new(device, mode);
        let segment = registrar.segment(&read_only).unwrap();
        let register = |access| registrar.register(&read_only, segment.as_ref(), 0..PAGE, access);
        assert!(register(Access::Write).is_err());
        assert_eq!((locked(), pinned()), (0, 0), "{mode:?}");
        let area = register(Access::Read).unwrap();
        let before = locked();
        assert!(register(Access::Write).is_err());
        assert_eq!((locked(), pinned()), (before, PAGE), "{mode:?}");
        drop(area);
        assert_eq!((locked(), pinned()), (0, 0), "{mode:?}");
    }
}

/// Returns true if the kernel has locked the segment as a whole.
fn is_locked(shmid: i32) -> bool {
    const SHM_LOCKED: u32 = 0o2000;
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap();
    let modes = table.lines().skip(1).filter_map(|line| {
        let mut words = line.split_whitespace().skip(1);
        (words.next()?.parse() == Ok(shmid)).then(|| words.next())?
    });
    let modes: Vec<u32> = modes
        .map(|mode| u32::from_str_radix(mode, 8).unwrap())
        .collect();
    assert_eq!(modes.len(), 1);
    modes[0] & SHM_LOCKED != 0
}

/// A second process, which has an area in the segment until a line of its input.
fn have_area(shmid: i32) {
    let device = Device::open(0).unwrap();
    let memory = Memory::attach(shmid, true).unwrap();
    let registrar = Registrar::new(&device, Mode::ShmCtl);
    let segment = registrar.segment(&memory).unwrap();
    let area = registrar
        .register(&memory, segment.as_ref(), 0..PAGE, Access::Read)
        .unwrap();
    let mut lines = std::io::stdin().lines();
    println!("has");
    lines.next().unwrap().unwrap();
    drop(area);
    println!("has no more");
    // It has the segment attached until the end.
    assert!(lines.next().is_none());
}

fn one_counter_for_all_processes(device: &Device) {
    let memory = Memory::new(Kind::SysV, 4 * PAGE).unwrap();
    let shmid = memory.segment_id().unwrap();
    let mut process = Command::new("/proc/self/exe")
        .arg(shmid.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(process.stdout.take().unwrap()).lines();
    let mut answer = move || answers.next().unwrap().unwrap();
    assert_eq!(answer(), "has");
    assert!(is_locked(shmid));
    let registrar = Registrar::new(device, Mode::ShmCtl);
    let segment = registrar.segment(&memory).unwrap();
    let area = registrar
        .register(&memory, segment.as_ref(), 0..2 * PAGE, Access::Read)
        .unwrap();
    process.stdin.as_ref().unwrap().write_all(b"end\n").unwrap();
    assert_eq!(answer(), "has no more");
    assert!(is_locked(shmid), "this process has an area");
    area.unregister().unwrap();
    assert!(!is_locked(shmid), "the other one has none");
    drop(process.stdin.take());
    assert!(process.wait().unwrap().success());
}

fn main() {
    if let Some(shmid) = std::env::args().nth(1) {
        return have_area(shmid.parse().unwrap());
    }
    let tests: [Test; 10] = [
        ("the_papers_functions", the_papers_functions),
        ("owners_survive_a_clean_up", owners_survive_a_clean_up),
        (
            "exchangeable_memory_is_not_cleaned_up",
            exchangeable_memory_is_not_cleaned_up,
        ),
        ("charges_are_foretold", charges_are_foretold),
        (
            "blocks_are_the_pages_in_order",
            blocks_are_the_pages_in_order,
        ),
        (
            "stale_regions_keep_their_bytes",
            stale_regions_keep_their_bytes,
        ),
        (
            "the_cache_keeps_pins_while_they_are_good",
            the_cache_keeps_pins_while_they_are_good,
        ),
        (
            "every_mode_ends_what_it_began",
            every_mode_ends_what_it_began,
        ),
        (
            "what_the_driver_refuses_is_not_left_locked",
            what_the_driver_refuses_is_not_left_locked,
        ),
        (
            "one_counter_for_all_processes",
            one_counter_for_all_processes,
        ),
    ];
    for (name, test) in tests {
        // Each test has its own open file, so that nothing is left of the others.
        test(&Device::open(0).unwrap());
        assert_eq!((locked(), pinned()), (0, 0), "{name} left something");
        println!("test {name} ... ok");
    }
}
