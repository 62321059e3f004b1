// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench`: figures, each beside the floor of the machine and what one would use instead.
//!
//! `serve` runs on one node and answers, `run` and `link` run on the other and measure. Under an emulator
//! times mean little and ratios of the same run mean a lot, so both kinds are always printed.

mod dma;
mod drawing;
mod failure;
mod figure;
mod initiation;
mod link;
mod lmm;
mod memcpy;
mod peer;
mod register;
mod ring;
mod serve;
mod tables;
mod tcp;
mod timing;
mod window;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use uldma::{Device, Name};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::Peer;

/// Measure user-level DMA, beside the machine's floor and what one would use instead
#[derive(Debug, Parser)]
#[command(name = "uldma-bench", version)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Args)]
struct Common {
    /// Use /dev/uldma<N>
    #[arg(long, global = true, value_name = "N", default_value_t = 0)]
    device: u32,
    /// Name that both sides say
    #[arg(long, global = true, default_value = "bench")]
    name: Name,
    /// Print JSON: an array of name, value, unit, floor, rival, ratio
    #[arg(long, global = true)]
    json: bool,
    /// Give up waiting after this many seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30)]
    timeout: u32,
}

impl Common {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer a `run` or `link` at the peer, then end
    Serve,
    /// Measure, with the help of a `serve` at the peer
    Run(Run),
    /// Measure memory copies on this machine: the floor of transfers
    HostMemcpy,
    /// Measure what it costs to register memory, beside io_uring and mlock(); needs no peer
    Lmm(lmm::Options),
    /// Print what `lmm --json` found as tables, beside the paper's
    LmmReport {
        /// File with the JSON
        #[arg(value_name = "JSON")]
        file: PathBuf,
        /// Draw it, too: SVG files in this directory
        #[arg(long, value_name = "DIRECTORY")]
        plots: Option<PathBuf>,
    },
    /// Measure what it costs to start a transfer, by every method; needs no peer
    Initiation(initiation::Options),
    /// Print what `initiation --json` found as tables, beside the paper's
    InitiationReport {
        /// File with the JSON
        #[arg(value_name = "JSON")]
        file: PathBuf,
        /// Draw it, too: SVG files in this directory
        #[arg(long, value_name = "DIRECTORY")]
        plots: Option<PathBuf>,
    },
    /// Measure round trips and streams by size, with the help of a `serve` at the peer
    Link(link::Options),
    /// Print what `link --json` found as tables
    LinkReport {
        /// File with the JSON
        #[arg(value_name = "JSON")]
        file: PathBuf,
        /// Draw it, too: SVG files in this directory
        #[arg(long, value_name = "DIRECTORY")]
        plots: Option<PathBuf>,
    },
    /// Pass arguments repeatedly in turns with others: a process of `initiation`
    #[command(hide = true)]
    InitiationContender { segment: i32 },
    /// Register and deregister when told to, for who counts what reaches the device
    #[command(hide = true)]
    LmmSteps { go: PathBuf },
    /// Register shared memory as told by the input: the second process of `lmm`
    #[command(hide = true)]
    LmmNeighbour,
}

#[derive(Debug, Args)]
struct Run {
    /// With a peer (there is no other way yet)
    #[arg(long, hide = true)]
    peer: bool,
    /// The peer's IP address [default: what the peer says]
    #[arg(long, value_name = "ADDRESS")]
    peer_addr: Option<std::net::IpAddr>,
    /// Throughput of a host's memory copies in MB/s: the floor of transfers
    #[arg(long, value_name = "MB/S")]
    floor_memcpy: Option<f64>,
}

fn main() -> ExitCode {
    // Started by ourselves to count system calls?
    uldma::measure::tracer_main();
    let cli = Cli::parse();
    let result = match &cli.verb {
        Verb::Serve => serve::run(&cli.common),
        Verb::Run(verb) => {
            run(&cli.common, verb).and_then(|figures| figures.print(cli.common.json))
        }
        Verb::Lmm(options) => {
            lmm::run(cli.common.device, options).and_then(|figures| figures.print(cli.common.json))
        }
        Verb::LmmReport { file, plots } => lmm::report(file, plots.as_deref()),
        Verb::Initiation(options) => {
            initiation::run(cli.common.device, options, cli.common.timeout())
                .and_then(|figures| figures.print(cli.common.json))
        }
        Verb::InitiationReport { file, plots } => initiation::report(file, plots.as_deref()),
        Verb::Link(options) => {
            let common = &cli.common;
            link::run(common.device, common.name, common.timeout(), options)
                .and_then(|figures| figures.print(common.json))
        }
        Verb::LinkReport { file, plots } => link::report(file, plots.as_deref()),
        Verb::InitiationContender { segment } => {
            initiation::contend(cli.common.device, *segment, cli.common.timeout())
        }
        Verb::LmmSteps { go } => with_device(&cli.common, |device| lmm::steps(device, go)),
        Verb::LmmNeighbour => with_device(&cli.common, lmm::be_neighbour),
        Verb::HostMemcpy => memcpy::run().and_then(|figures| figures.print(cli.common.json)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("uldma-bench: {failure}");
            if let Some(hint) = failure.hint() {
                eprintln!("  hint: {hint}");
            }
            ExitCode::FAILURE
        }
    }
}

fn with_device(
    common: &Common,
    work: impl FnOnce(&Device) -> Result<(), Failure>,
) -> Result<(), Failure> {
    work(&Device::open(common.device)?)
}

fn run(common: &Common, verb: &Run) -> Result<Figures, Failure> {
    let timeout = common.timeout();
    let device = Device::open(common.device)?;
    let mut figures = Figures::default();
    initiation::nop(&device, &mut figures)?;
    register::measure(&device, &mut figures)?;
    initiation::brief(common.device, timeout, &mut figures)?;

    let mut peer = Peer::meet(&device, common.name, timeout)?;
    ring::measure(&mut peer, &mut figures)?;
    dma::measure(&device, &mut peer, verb.floor_memcpy, &mut figures)?;
    window::measure(&device, &mut peer, &mut figures)?;
    match tcp::measure(&mut peer, verb.peer_addr, &mut figures) {
        Ok(()) => figures.set_rivals(),
        Err(Failure::Tcp(why)) => eprintln!("uldma-bench: no figures of TCP: {why}"),
        Err(failure) => return Err(failure),
    }
    peer.quit()?;
    Ok(figures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["uldma-bench", "run", "--json", "--peer"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "serve", "--name", "x"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "link", "--brief", "--suffix", "x"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "link", "--rings", "--brief"]).is_err());
    }
}
