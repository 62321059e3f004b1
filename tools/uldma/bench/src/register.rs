// SPDX-License-Identifier: MIT OR Apache-2.0

//! What it costs to register memory, beside locking it.

use nix::sys::mman::{mlock, munlock};
use uldma::measure::Clock;
use uldma::{Access, Buffer, Device};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

const LENGTH: usize = 16 << 20;
const ROUNDS: u32 = 9;

/// Registers 16 MiB of memory that is there already.
pub(crate) fn measure(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let clock = Clock::start();
    let mut buffer = Buffer::new(LENGTH)?;
    buffer.fill(1);
    let rival = lock(&clock, &mut buffer);
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let before = clock.ticks();
        let region = device.register(buffer, Access::ReadWrite)?;
        samples.push(clock.ticks() - before);
        buffer = region.unregister()?;
    }
    let median = times(&clock, &samples, 1).median();
    figures.add("register.16m.time", median, "ns", None, rival);
    Ok(())
}

/// Median nanoseconds of mlock() of the same memory; none where it is not allowed.
fn lock(clock: &Clock, buffer: &mut Buffer) -> Option<f64> {
    let address = std::ptr::NonNull::new(buffer.as_mut_ptr().cast())?;
    let mut samples = Vec::new();
    for _ in 0..ROUNDS {
        let before = clock.ticks();
        // SAFETY: the range is the buffer's; locking changes nothing that a program can see.
        unsafe { mlock(address, LENGTH) }.ok()?;
        samples.push(clock.ticks() - before);
        // SAFETY: as above.
        unsafe { munlock(address, LENGTH) }.ok()?;
    }
    Some(times(clock, &samples, 1).median())
}
