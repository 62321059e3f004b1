// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program that copies memory by user-level DMA.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example copy`.

use std::time::Duration;
use uldma::{Access, Buffer, Device, Spin};

const LENGTH: usize = 1 << 20;

fn main() -> uldma::Result<()> {
    let device = Device::open(0)?;
    let mut bytes = Buffer::new(LENGTH)?;
    bytes.fill(42);
    let source = device.register(bytes, Access::Read)?;
    let destination = device.register(Buffer::new(LENGTH)?, Access::Write)?;

    let context = device.context()?;
    let (from, to) = (context.shadow(&source)?, context.shadow(&destination)?);
    let ticket = context.initiate(from.at(0)?, to.at(0)?, LENGTH as u64)?;
    context.wait(ticket, Spin::Adaptive, Duration::from_secs(1))?;

    drop((from, to));
    assert!(destination.unregister()?.iter().all(|&byte| byte == 42));
    println!("copied {LENGTH} bytes with one store and one load");
    Ok(())
}
