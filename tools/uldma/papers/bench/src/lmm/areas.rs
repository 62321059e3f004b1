// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cost of one more registration with many pages locked, and with many locked memory areas.
//!
//! Few frames are enough: shared memory is mapped again and again, and each of its virtual pages
//! is locked for itself.

use uldma::measure::Clock;
use uldma::region::Borrowed;
use uldma::Device;

use super::backend::{add, Backend, Ring, Uldma};
use super::memory::{Range, Repeated};
use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::timing::times;

/// Pages locked, or areas: powers of ten.
const COUNTS: [usize; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
/// Bytes of the shared memory that is mapped many times, and how many times.
const FRAMES: usize = 16 << 20;
const TIMES: usize = 26;
const ROUNDS: usize = 201;
const WARM_UP: usize = 3;

/// Adds `lmm.pages.N`: one page in the middle of a region of N pages is registered once more.
pub(crate) fn pages(device: &Device, figures: &mut Figures) -> Result<(), Failure> {
    let memory = Repeated::new(FRAMES, TIMES)?;
    for count in COUNTS {
        let whole = memory.range().pages(0, count);
        let held = add(device, whole)?;
        one_more(device, "lmm.pages", count, whole.page(count / 2), figures)?;
        held.unregister()?;
    }
    Ok(())
}

/// Adds `lmm.lmas.N`: a page is registered once more with N areas, in their middle; and
/// `lmm.lmas.new.N`: a page in their middle that was not locked. Returns false if the module merges
/// areas, so that they cannot be made.
pub(crate) fn areas(device: &Device, figures: &mut Figures) -> Result<bool, Failure> {
    let memory = Repeated::new(FRAMES, TIMES)?;
    let range = memory.range();
    if merges(device, range)? {
        return Ok(false);
    }
    // Two halves with a hole of one page between them; single pages inside of the halves become
    // areas of their own when they are registered once, and stay that.
    let hole = range.count() / 2;
    let locked = range.page(hole - 2);
    let held = add(device, locked)?;
    measure(device, 1, locked, range.page(hole), figures)?;
    let halves = [
        add(device, range.pages(0, hole))?,
        add(device, range.pages(hole + 1, range.count()))?,
    ];
    held.unregister()?;
    let mut split = 0;
    for count in COUNTS.into_iter().filter(|&count| count > 1) {
        while 2 + 2 * split < count {
            // Alternately below and above the hole, every other page.
            let distance = 2 * (split / 2 + 1);
            let page = if split % 2 == 0 {
                hole - distance
            } else {
                hole + distance
            };
            add(device, range.page(page))?.unregister()?;
            split += 1;
        }
        let made = device.locked_memory()?.areas;
        if made as usize != count {
            eprintln!("uldma-bench: lmm.lmas.{count} is of {made} areas");
        }
        measure(device, count, locked, range.page(hole), figures)?;
    }
    halves.into_iter().try_for_each(Borrowed::unregister)?;
    Ok(true)
}

/// Returns true if the module merges the parts of an area once they have the same count again.
pub(crate) fn merges(device: &Device, range: Range) -> Result<bool, Failure> {
    let before = device.locked_memory()?.areas;
    let held = add(device, range.pages(0, 3))?;
    add(device, range.page(1))?.unregister()?;
    let after = device.locked_memory()?.areas;
    held.unregister()?;
    Ok(after - before == 1)
}

fn measure(
    device: &Device,
    count: usize,
    locked: Range,
    hole: Range,
    figures: &mut Figures,
) -> Result<(), Failure> {
    one_more(device, "lmm.lmas", count, locked, figures)?;
    one_more(device, "lmm.lmas.new", count, hole, figures)
}

/// Adds median and minimum of registrations of `page`; the floor is the time for one page or area, the
/// rival is io_uring's at the same time.
fn one_more(
    device: &Device,
    name: &str,
    count: usize,
    page: Range,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut backends: [&mut dyn Backend; 2] = [&mut Uldma::new(device), &mut Ring::new()?];
    let clock = Clock::start();
    let mut samples = [Vec::new(), Vec::new()];
    for round in 0..ROUNDS + WARM_UP {
        for (backend, samples) in backends.iter_mut().zip(&mut samples) {
            let before = clock.ticks();
            backend.register(page)?;
            let after = clock.ticks();
            backend.deregister()?;
            if round >= WARM_UP {
                samples.push(after - before);
            }
        }
    }
    let [own, rival] = samples.map(|samples| times(&clock, &samples, 1));
    for (name, quantile) in [(name.to_owned(), 0.5), (format!("{name}.min"), 0.0)] {
        let bases = Bases {
            floor: figures.get(&format!("{name}.1")),
            rival: Some(rival.quantile(quantile)),
        };
        let value = own.quantile(quantile);
        figures.add_beside(format!("{name}.{count}"), value, "ns", bases);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lmm::memory::PAGE;

    #[test]
    fn the_memory_is_large_enough() {
        assert!(FRAMES * TIMES / PAGE > COUNTS[COUNTS.len() - 1] + 4);
    }
}
