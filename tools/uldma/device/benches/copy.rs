// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures the speed of the device on this machine: transfers and, alternating with them, plain
//! copies of the same memory, and accesses over the socket.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "../tests/common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

use common::host::{start, Host};
use common::{page_entry, BASE, FREE, PAGE, PAGE_RIGHTS};
use tempfile::TempDir;
use uldma_device::abi::Method;
use uldma_device::engine::Speed;
use uldma_device::layout::{reg, BAR_SHADOW};
use uldma_device::method::Compare;
use uldma_device::node::Shape;
use vm_memory::mmap::MmapRegion;
use vm_memory::{FileOffset, VolatileMemory};

const SHAPE: Shape = Shape {
    contexts: 8,
    shadow_bits: 34,
    window_size: 1 << 20,
    methods: Method::ALL,
    compare: Compare::Full,
};
const SLICE: u64 = 1 << 31;
const MEMORY: u64 = 128 << 20;
const LARGEST: u64 = 16 << 20;
/// Bus addresses of the source, and of the destination on either node.
const NEAR: u64 = FREE + (32 << 20);
const FAR: u64 = FREE + (64 << 20);
const ROUNDS: usize = 31;

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Returns the position of a page among `pages` scattered ones.
fn frame(page: u64, pages: u64) -> u64 {
    page * 1021 % pages
}

/// Scatters the memory of page entries, as user pages can be.
fn scatter(host: &Host, first: u32, space: u32, address: u64) {
    let pages = LARGEST / PAGE;
    for page in 0..pages {
        let entry = page_entry(
            PAGE_RIGHTS.with_address(address + frame(page, pages) * PAGE),
            space,
            0,
        );
        host.guest.put_page(first + page as u32, &entry);
    }
}

/// The memories of both hosts once more, for the copies to compare with.
struct Baseline {
    from: MmapRegion,
    to: MmapRegion,
}

impl Baseline {
    fn new(from: &Host, to: &Host) -> Self {
        let map = |host: &Host| {
            let file = FileOffset::new(host.guest.file.try_clone().unwrap(), 0);
            MmapRegion::from_file(file, MEMORY as usize).unwrap()
        };
        Self {
            from: map(from),
            to: map(to),
        }
    }

    /// Copies `bytes` in pieces, scattered ones in the order of [`frame`].
    fn copy(&self, bytes: u64, block: u64) -> Duration {
        let start = Instant::now();
        for number in 0..bytes / block {
            let offset = frame(number, LARGEST / block) * block - BASE;
            let source = self
                .from
                .get_slice((NEAR + offset) as usize, block as usize);
            let destination = self.to.get_slice((FAR + offset) as usize, block as usize);
            source.unwrap().copy_to_volatile_slice(destination.unwrap());
        }
        start.elapsed()
    }
}

/// Makes one transfer by context 1 from region 1, from the store that initiates to the interrupt.
fn transfer(host: &mut Host, to: (u64, u32), bytes: u64) -> Duration {
    let start = Instant::now();
    let ticket = host.initiate(SLICE, (0, 1), to, bytes as u32);
    assert!(ticket > 0);
    host.interrupt(0);
    let time = start.elapsed();
    assert_eq!(host.guest.completed(1), (ticket as u64, 0));
    time
}

fn main() {
    let directory = TempDir::new().unwrap();
    start(directory.path(), SHAPE, Speed::default());
    let mut first = Host::connect(&directory.path().join("a"), MEMORY);
    let mut second = Host::connect(&directory.path().join("b"), MEMORY);
    first.probe(3);
    second.probe(4);
    first.interrupt(0);
    first.guest.put(NEAR, &vec![0x5a; LARGEST as usize]);
    first.guest.register(1, 3, 0, NEAR, LARGEST);
    first.guest.register(2, 3, 4096, FAR, LARGEST);
    second.guest.register(9, 4, 0, FAR, LARGEST);
    first.guest.import(3, 3, 8192, (1, 9), LARGEST);
    let (local, remote) = ((4096 * PAGE, 2), (8192 * PAGE, 3));
    let baseline = Baseline::new(&first, &second);

    for pages in ["consecutive", "scattered"] {
        if pages == "scattered" {
            scatter(&first, 0, 3, NEAR);
            scatter(&first, 4096, 3, FAR);
            scatter(&second, 0, 4, FAR);
        }
        for bytes in [64 << 10, 1 << 20, LARGEST] {
            let (mut here, mut there) = (Vec::new(), Vec::new());
            let (mut plain, mut paged) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                plain.push(baseline.copy(bytes, bytes));
                here.push(transfer(&mut first, local, bytes));
                paged.push(baseline.copy(bytes, PAGE));
                there.push(transfer(&mut first, remote, bytes));
            }
            let speed = |times| bytes as f64 / median(times).as_secs_f64() / 1e6;
            let (plain, paged) = (speed(plain), speed(paged));
            println!(
                "{pages} pages, {} KiB: memcpy {plain:.0} MB/s, of scattered pages {paged:.0} MB/s",
                bytes >> 10
            );
            for (name, times) in [("local", here), ("to the peer", there)] {
                let speed = speed(times);
                let (first, second) = (speed / plain, speed / paged);
                println!("    {name}: {speed:.0} MB/s, ratios {first:.2} and {second:.2}");
            }
        }
    }
    type Access = fn(&mut Host) -> u64;
    let accesses: [(&str, Access); 3] = [
        ("register load", |host| host.get(reg::ID).into()),
        ("shadow store", |host| {
            host.store(BAR_SHADOW, SLICE, 8, 1);
            1
        }),
        ("shadow load", |host| host.load(BAR_SHADOW, SLICE, 8)),
    ];
    for (name, access) in accesses {
        let times = (0..ROUNDS * 100).map(|_| {
            let start = Instant::now();
            assert_ne!(access(&mut first), 0);
            start.elapsed()
        });
        let time = median(times.collect()).as_secs_f64() * 1e6;
        println!("{name}: {time:.1} us over the socket");
    }
}
