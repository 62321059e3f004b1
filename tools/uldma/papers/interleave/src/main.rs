// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-interleave`: prints the results of the studies.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use uldma_interleave::{buffer, simulate, table};

/// Tries every order of accesses on the state machines of the initiation methods.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print the tables of attacks for the documentation
    Table,
    /// Print which accesses a write buffer lets through, with and without barriers
    Barriers,
    /// Count how often processes that use repeated-5 disturb each other
    Simulate {
        /// Context switches
        #[arg(long, value_name = "N", default_value_t = 100_000,
              value_parser = clap::value_parser!(u64).range(1..))]
        switches: u64,
    },
}

fn main() -> ExitCode {
    match Options::parse().what {
        What::Table => print!("{}", table::Study::new().document()),
        What::Barriers => print!("{}", buffer::document()),
        What::Simulate { switches } => {
            println!("errors and FAILs per 100 switches; the paper: 112-115 and 93-97");
            for processes in 2..=4 {
                for rearming in [false, true] {
                    let rates = simulate::run(processes, switches, rearming);
                    println!(
                        "{processes} processes, {}: {:.1} and {:.1}",
                        if rearming { "re-arming" } else { "prototype" },
                        rates.errors_per_100,
                        rates.fails_per_100
                    );
                }
            }
        }
    }
    ExitCode::SUCCESS
}
