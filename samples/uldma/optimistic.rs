// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program that lets the device access memory which nothing pins.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example optimistic`.

use std::time::Duration;
use uldma::memory::Kind;
use uldma::method::Refusal;
use uldma::region::Miss;
use uldma::{Access, Buffer, Device, Error, Memory};

const LENGTH: usize = 1 << 20;
const HALF: usize = LENGTH / 2;
const SECOND: Duration = Duration::from_secs(1);

fn main() -> uldma::Result<()> {
    let device = Device::open(0)?;
    let memory = Memory::new(Kind::Private, LENGTH as u64)?;
    memory.write(0, &[42; HALF])?;
    // What is not mapped may come within a second. What was never touched does not.
    let miss = Miss::LookUp(SECOND);
    let source = device.register_optimistic(&memory, 0..LENGTH as u64, Access::Read, miss)?;
    let destination = device.register(Buffer::new(LENGTH)?, Access::Write)?;
    let copy = || {
        let ticket = device.dma((&source, 0), (&destination, 0), LENGTH as u64)?;
        device.dma_wait(ticket, SECOND)
    };

    let Err(Error::Transfer {
        bytes,
        status: Refusal::NotResident,
        ..
    }) = copy()
    else {
        panic!("memory that was never touched is there");
    };
    println!("{bytes} of {LENGTH} bytes, then a page that is not in memory");
    // A peer would ask the owner to do this.
    memory.write(HALF as u64, &[43; HALF])?;
    println!("{} of {LENGTH} bytes", copy()?.bytes);
    assert_eq!(destination.unregister()?[HALF - 1..=HALF], [42, 43]);
    source.unregister()
}
