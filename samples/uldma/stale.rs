// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program that is notified when registered memory is unmapped.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example stale`.

use std::time::Duration;
use uldma::device::Event;
use uldma::memory::Kind;
use uldma::region::Registered;
use uldma::{Access, Device, Memory};

const LENGTH: u64 = 1 << 20;

fn main() -> uldma::Result<()> {
    let device = Device::open(0)?;
    let memory = Memory::new(Kind::Private, LENGTH)?;
    let region = device.register_memory(&memory, 0..LENGTH, Access::ReadWrite)?;

    // Unmaps it. The region keeps the pages, which this process cannot access any more.
    drop(memory);

    loop {
        for event in device.wait_events(Duration::from_secs(1))? {
            match event {
                Event::Stale { handle, bytes } if handle == region.handle() => {
                    println!("{bytes} of {LENGTH} bytes are stale");
                    // Until here the pages were pinned, and charged to RLIMIT_MEMLOCK.
                    return region.unregister();
                }
                _ => {}
            }
        }
    }
}
