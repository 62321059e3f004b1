// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench`: probes, which measure and print JSON. `make bench` starts them, and reports.
//!
//! `lmm` and `initiation` measure on one node. `link` measures on one node while `serve` answers on the
//! other. Under an emulator times mean little and ratios of the same run mean a lot, so both kinds are
//! always printed.

mod broadcast;
mod failure;
mod figure;
mod initiation;
mod link;
mod lmm;
mod optimistic;
mod peer;
mod semantics;
mod serve;
mod timing;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use uldma::{Device, Name};

use crate::failure::Failure;

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
    /// Port at which `serve` listens; those that follow are used, too
    #[arg(long, global = true, default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=0xffff))]
    port: u32,
    /// Give up waiting after this many seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value_t = 30)]
    timeout: u32,
    /// Have so many more threads, which never sleep, run in this process
    #[arg(long, global = true, value_name = "THREADS", default_value_t = 0)]
    busy_threads: u32,
}

impl Common {
    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Answer one `link` of the peer
    Serve,
    /// Measure the cost to register memory, beside io_uring and mlock(); needs no peer
    Lmm(lmm::Options),
    /// Measure the cost to start a transfer, by every method; needs no peer
    Initiation(initiation::Options),
    /// Measure round trips and streams by size, with the help of a `serve` at the peer
    Link(link::Options),
    /// Measure messages by each technique, with the help of a `serve` at the peer
    Semantics(semantics::Options),
    /// Measure transfers of memory that is not pinned, with the help of a `serve` at the peer
    Optimistic(optimistic::Options),
    /// Measure data for two processes of the other node, with the help of a `serve` at the peer
    Broadcast,
    /// The second receiver of `broadcast`, which `serve` starts
    #[command(hide = true)]
    BroadcastSecond { name: Name, lock: i32, words: i32 },
    /// Pass arguments repeatedly in turns with others: a process of `initiation`
    #[command(hide = true)]
    InitiationWorker { segment: i32 },
    /// Register and deregister step by step, as a FIFO says: `make bench` counts accesses to the device
    #[command(hide = true)]
    LmmSteps { go: PathBuf },
    /// Register shared memory as the input says: the second process of `lmm`
    #[command(hide = true)]
    LmmNeighbour,
}

fn main() -> ExitCode {
    // The tracer starts this program, too, to count system calls.
    uldma_papers::tracer::tracer_main();
    let cli = Cli::parse();
    for _ in 0..cli.common.busy_threads {
        std::thread::spawn(stay_busy);
    }
    let result = match &cli.verb {
        Verb::Serve => serve::run(&cli.common),
        Verb::Lmm(options) => {
            lmm::run(cli.common.device, options).and_then(|figures| figures.print())
        }
        Verb::Initiation(options) => {
            initiation::run(cli.common.device, options, cli.common.timeout())
                .and_then(|figures| figures.print())
        }
        Verb::Link(options) => {
            let common = &cli.common;
            link::run(common.device, common.port, common.timeout(), options)
                .and_then(|figures| figures.print())
        }
        Verb::Semantics(options) => {
            let common = &cli.common;
            semantics::run(common.device, common.port, common.timeout(), options)
                .and_then(|figures| figures.print())
        }
        Verb::Optimistic(options) => {
            let common = &cli.common;
            optimistic::run(common.device, common.port, common.timeout(), options)
                .and_then(|figures| figures.print())
        }
        Verb::Broadcast => broadcast::run(cli.common.device, cli.common.port, cli.common.timeout())
            .and_then(|figures| figures.print()),
        Verb::BroadcastSecond { name, lock, words } => {
            broadcast::second(&cli.common, *name, (*lock, *words))
        }
        Verb::InitiationWorker { segment } => {
            initiation::take_turns(cli.common.device, *segment, cli.common.timeout())
        }
        Verb::LmmSteps { go } => with_device(&cli.common, |device| lmm::steps(device, go)),
        Verb::LmmNeighbour => with_device(&cli.common, lmm::be_neighbour),
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

/// Keeps a processor in this process's memory, so that it has to take part when translations change.
fn stay_busy() {
    loop {
        std::hint::spin_loop();
    }
}

fn with_device(
    common: &Common,
    work: impl FnOnce(&Device) -> Result<(), Failure>,
) -> Result<(), Failure> {
    work(&Device::open(common.device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert!(Cli::try_parse_from(["uldma-bench", "lmm", "--part", "counts"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "serve", "--port", "7"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "link", "--brief", "--suffix", "x"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "link", "--rings", "--brief"]).is_err());
        assert!(Cli::try_parse_from(["uldma-bench", "semantics", "--parts", "send,mtu"]).is_ok());
        assert!(Cli::try_parse_from(["uldma-bench", "optimistic", "--parts", "hits"]).is_ok());
    }
}
