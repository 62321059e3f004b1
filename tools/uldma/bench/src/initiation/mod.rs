// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench initiation`: what *User-Level DMA without Operating System Kernel Modification*
//! measured, for all initiation methods.
//!
//! An emulator distorts times: an access to an emulated device leaves the guest and costs far more
//! than a system call, where on the paper's machine it was the other way round. What holds anywhere is
//! counted: accesses, system calls, errors by switch.

mod model;
mod paper;
mod plot;
mod realtime;
mod relate;
mod report;
mod subject;
mod switches;
mod table;

use std::path::Path;
use std::time::Duration;

use clap::{Args, ValueEnum};
use uldma::{Device, Method};

use crate::failure::Failure;
use crate::figure::Figures;

pub(crate) use self::switches::contend;
pub(crate) use self::table::nop;

/// What can be measured for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The paper's table 1, for all methods
    Table,
    /// Its verification run: what a switch costs processes that pass arguments repeatedly
    Switches,
}

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only this part; can be repeated
    #[arg(long = "part", value_name = "PART")]
    parts: Vec<Part>,
    /// Only times, and under names that say that the device delays each access by this many
    /// nanoseconds (which it was started with, --access-ns)
    #[arg(long, value_name = "NS", conflicts_with = "parts")]
    latency: Option<u64>,
}

/// Measures with one device.
pub(crate) fn run(number: u32, options: &Options, timeout: Duration) -> Result<Figures, Failure> {
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let device = Device::open(number)?;
    let mut figures = Figures::default();
    let all: Vec<Method> = Method::all().collect();
    if let Some(latency) = options.latency {
        let mut here = Figures::default();
        table::times_only(number, &all, timeout, &mut here)?;
        relate::rename(&here, latency, &mut figures);
        return Ok(figures);
    }
    if wanted(Part::Table) {
        nop(&device, &mut figures)?;
        table::measure(number, &all, timeout, &mut figures)?;
        relate::relate(&mut figures);
    }
    if wanted(Part::Switches) {
        switches::measure(number, &mut figures)?;
    }
    Ok(figures)
}

/// Prints what `run` found, as `--json` printed it, for people, and draws it in `directory`.
pub(crate) fn report(json: &Path, directory: Option<&Path>) -> Result<(), Failure> {
    let text = std::fs::read_to_string(json).map_err(|error| Failure::Io("figures", error))?;
    let figures = Figures::parse(&text).map_err(|error| Failure::Io("figures", error.into()))?;
    println!("{}", report::render(&figures));
    directory.map_or(Ok(()), |directory| plot::draw(&figures, directory))
}
