// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench initiation`: the measurements of *User-Level DMA without Operating System Kernel
//! Modification*, for all initiation methods.
//!
//! An emulator distorts times: an access to an emulated device leaves the guest and costs far more
//! than a system call; on the paper's machine it was the other way round. Counts hold on any machine:
//! accesses, system calls, errors by switch.

mod destinations;
mod realtime;
mod subject;
mod switches;
mod table;

use std::time::Duration;

use clap::{Args, ValueEnum};
use uldma::{Device, Method};

use crate::failure::Failure;
use crate::figure::Figures;

pub(crate) use self::switches::take_turns;
pub(crate) use self::table::nop;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The paper's table 1, for all methods
    Table,
    /// Its verification run: what a switch costs processes that pass arguments repeatedly
    Switches,
    /// What other destinations cost, with and without the kernel
    Destinations,
}

/// Options of `uldma-bench initiation`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this part; can be repeated
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
    /// Only times of initiations
    #[arg(long, conflicts_with = "parts")]
    times: bool,
}

/// Measures with one device.
pub(crate) fn run(number: u32, options: &Options, timeout: Duration) -> Result<Figures, Failure> {
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let device = Device::open(number)?;
    let mut figures = Figures::default();
    let all: Vec<Method> = Method::all().collect();
    if options.times {
        table::times_only(number, &all, timeout, &mut figures)?;
        return Ok(figures);
    }
    if wanted(Part::Table) {
        nop(&device, &mut figures)?;
        table::measure(number, &all, timeout, &mut figures)?;
    }
    if wanted(Part::Destinations) {
        destinations::measure(number, timeout, &mut figures)?;
    }
    if wanted(Part::Switches) {
        switches::measure(number, &mut figures)?;
    }
    Ok(figures)
}
