// SPDX-License-Identifier: MIT OR Apache-2.0

//! A load that shows if it pays to merge neighbouring areas with the same count, which the paper leaves
//! open.
//!
//! A buffer stays registered as a whole while parts of it come and go, as a message-passing
//! library does it. The same load runs on a module that merges and on one that does not.

use std::collections::VecDeque;

use uldma::measure::Clock;
use uldma::region::Borrowed;
use uldma::Device;

use super::areas::merges;
use super::backend::add;
use super::memory::{Pages, Subject};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::timing::times;

/// Pages of the buffer.
const BUFFER: usize = 16 << 10;
/// Parts that are registered at a time.
const LIVE: usize = 256;
/// Parts that come and go in all.
const PARTS: usize = 20_000;
/// Pages of the longest part.
const LONGEST: usize = 16;
/// A prime, so that starts of parts go through all of the buffer without a pattern that matters.
const STRIDE: usize = 7919;
/// Registrations of the whole buffer after it.
const WHOLE: usize = 21;

/// Adds `lmm.load.merge.*`, or `lmm.load.apart.*` where the module does not merge.
pub(crate) fn measure(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let subject = Subject::new(Pages::Private, BUFFER)?;
    let range = subject.range();
    let kind = if merges(device, range)? {
        "merge"
    } else {
        "apart"
    };
    let held = add(device, range)?;
    let areas = || device.locked_memory().map(|lmm| lmm.areas);
    let slab = kernel_memory();

    let clock = Clock::start();
    let (mut register, mut deregister) = (Vec::new(), Vec::new());
    let mut live = VecDeque::with_capacity(LIVE);
    let mut most = 0;
    for part in 0..PARTS {
        if live.len() == LIVE {
            let before = clock.ticks();
            live.pop_front().map(Borrowed::unregister).transpose()?;
            deregister.push(clock.ticks() - before);
        }
        let length = 1 + part % LONGEST;
        let start = part * STRIDE % (range.count() - LONGEST);
        let before = clock.ticks();
        live.push_back(add(device, range.pages(start, start + length))?);
        register.push(clock.ticks() - before);
        if part % LIVE == 0 {
            most = most.max(areas()?);
        }
    }
    live.into_iter().try_for_each(Borrowed::unregister)?;
    let left = areas()?;
    let grown = kernel_memory().zip(slab).map(|(now, then)| now - then);
    let mut whole = Vec::new();
    for _ in 0..WHOLE {
        let before = clock.ticks();
        let again = add(device, range)?;
        whole.push(clock.ticks() - before);
        again.unregister()?;
    }
    held.unregister()?;

    for (what, value, unit) in [
        ("areas.most", f64::from(most), "count"),
        ("areas.left", f64::from(left), "count"),
        ("register", times(&clock, &register, 1).median(), "ns"),
        ("deregister", times(&clock, &deregister, 1).median(), "ns"),
        ("whole", times(&clock, &whole, 1).median(), "ns"),
    ] {
        figures.add(format!("lmm.load.{kind}.{what}"), value, unit);
    }
    if let Some(grown) = grown {
        figures.add(format!("lmm.load.{kind}.memory"), grown, "KiB");
    }
    Ok(())
}

/// Returns the KiB that the kernel has in small objects and in pages that vmalloc() mapped.
fn kernel_memory() -> Option<f64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let of = |name: &str| -> Option<f64> {
        let line = info.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    Some(of("Slab:")? + of("VmallocUsed:")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_memory_is_known() {
        assert!(kernel_memory().unwrap() > 0.0);
    }
}
