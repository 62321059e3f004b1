// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench lmm`: the cost to register memory, as the paper of the locked memory manager
//! measured it, beside io_uring, ibv_reg_mr() and mlock() with the same memory in the same run.
//!
//! | | |
//! | --- | --- |
//! | [`memory`] | memory to register |
//! | [`backend`], [`verbs`] | uldma, io_uring, mlock(), ibv_reg_mr() |
//! | [`series`] | registrations of 13 sizes |
//! | [`neighbour`] | the second process of the paper's Table 1 |
//! | [`areas`], [`load`] | many pages, many areas, merging |
//! | [`counts`] | system calls, pins, accesses to the device |

mod areas;
mod backend;
mod counts;
mod load;
mod memory;
mod neighbour;
mod series;
mod verbs;

use std::rc::Rc;

use clap::{Args, ValueEnum};
use uldma::Device;

use self::backend::{Again, Backend, Locking, Mlock, Ring, Uldma};
use self::memory::Pages;
use self::neighbour::Beside;
use self::series::Named;
use self::verbs::{Domain, Verbs};
use crate::failure::Failure;
use crate::figure::Figures;

pub(crate) use self::counts::steps;
pub(crate) use self::neighbour::be_neighbour;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The paper's tables and its figures 7 and 8: 13 sizes, private and shared
    Sizes,
    /// System calls and pins
    Counts,
    /// One more registration with many pages locked
    Pages,
    /// One more registration with many locked memory areas; needs a module that does not merge
    Areas,
    /// A load under which areas are merged or not
    Load,
    /// Registrations that find their pins in the cache
    Cache,
}

/// Options of `uldma-bench lmm`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this part; can be repeated
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
}

/// Measures with one device.
pub(crate) fn run(number: u32, options: &Options) -> Result<Figures, Failure> {
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let device = Device::open(number)?;
    let mut figures = Figures::default();
    let domain = if wanted(Part::Sizes) || wanted(Part::Counts) {
        rdma()
    } else {
        None
    };
    if wanted(Part::Sizes) {
        sizes(number, &device, domain.as_ref(), &mut figures)?;
        crate::initiation::nop(&device, &mut figures)?;
    }
    if wanted(Part::Counts) {
        counts::measure(&device, domain.as_ref(), &mut figures)?;
    }
    if wanted(Part::Pages) {
        areas::pages(&device, &mut figures)?;
    }
    if wanted(Part::Areas) && !areas::areas(&device, &mut figures)? {
        eprintln!("uldma-bench: no figures of many areas: the module merges them (merge=0)");
    }
    if wanted(Part::Load) {
        load::measure(&device, &mut figures)?;
    }
    // Last, as later registrations of the same addresses would find its pins in the cache.
    if wanted(Part::Cache) {
        cache(number, &mut figures)?;
    }
    Ok(figures)
}

/// Opens the domain of ibv_reg_mr(), if it can be measured.
fn rdma() -> Option<Rc<Domain>> {
    Domain::new()
        .map(Rc::new)
        .inspect_err(|why| eprintln!("uldma-bench: ibv_reg_mr(): not measured: {why}"))
        .ok()
}

/// All backends with private, shared and huge pages.
fn sizes(
    number: u32,
    device: &Device,
    domain: Option<&Rc<Domain>>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let mut verbs = domain.map(Verbs::new);
    let mut verbs_again = domain.map(|domain| Again::new(|| Verbs::new(domain)));
    series::measure(
        &mut with(
            [
                ("first", &mut Uldma::new(device)),
                ("io_uring", &mut Ring::new()?),
                ("again", &mut Again::new(|| Uldma::new(device))),
                ("mlock", &mut Mlock::default()),
                ("mlock-mode", &mut Locking::mlock(device)),
            ],
            [
                named("ibv_reg_mr", &mut verbs),
                named("ibv_reg_mr.again", &mut verbs_again),
            ],
        ),
        Pages::Private,
        figures,
    )?;
    series::measure(
        &mut with(
            [
                ("first.shared", &mut Uldma::new(device)),
                ("io_uring.shared", &mut Ring::new()?),
                ("again.shared", &mut Again::new(|| Uldma::new(device))),
                ("mlock.shared", &mut Mlock::default()),
                ("mlock-mode.shared", &mut Locking::mlock(device)),
                ("shm-ctl.shared", &mut Locking::shm_ctl(device)),
            ],
            [named("ibv_reg_mr.shared", &mut verbs)],
        ),
        Pages::Shared,
        figures,
    )?;
    // Apart, since the other process wakes up between two registrations.
    let [mut second, mut alone] = Beside::both(number, device)?;
    series::measure(
        &mut [("second.shared", &mut second), ("alone.shared", &mut alone)],
        Pages::Shared,
        figures,
    )?;
    series::measure(
        &mut with(
            [
                ("first.huge", &mut Uldma::new(device)),
                ("io_uring.huge", &mut Ring::new()?),
                ("again.huge", &mut Again::new(|| Uldma::new(device))),
                ("mlock.huge", &mut Mlock::default()),
            ],
            [named("ibv_reg_mr.huge", &mut verbs)],
        ),
        Pages::Huge,
        figures,
    )
}

/// Names a backend, if it can be measured.
fn named<'a>(name: &'static str, backend: &'a mut Option<impl Backend>) -> Option<Named<'a>> {
    let backend: &mut dyn Backend = backend.as_mut()?;
    Some((name, backend))
}

/// Joins backends and those of some more that can be measured.
fn with<'a, const ALL: usize, const MORE: usize>(
    all: [Named<'a>; ALL],
    more: [Option<Named<'a>>; MORE],
) -> Vec<Named<'a>> {
    all.into_iter().chain(more.into_iter().flatten()).collect()
}

/// Measures the pin cache: registrations that find the pins of earlier ones.
fn cache(number: u32, figures: &mut Figures) -> Result<(), Failure> {
    // The cache is turned on for one open file.
    let device = Device::open(number)?;
    let before = device.set_pin_cache(true)?;
    series::measure(
        &mut [("cached", &mut Uldma::new(&device))],
        Pages::Private,
        figures,
    )?;
    let after = device.set_pin_cache(false)?;
    for (name, value) in [
        ("lmm.cache.hits", after.cache_hits - before.cache_hits),
        ("lmm.cache.misses", after.cache_misses - before.cache_misses),
    ] {
        figures.add(name, value as f64, "count");
    }
    Ok(())
}
