// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of uldma: one file for each verb.

mod args;
mod atomic;
mod charge;
mod connect;
mod connection;
mod counters;
mod dma;
mod export;
mod failure;
mod info;
mod listen;
mod lmm;
mod memory;
mod method;
mod open_files;
mod output;
mod peers;
mod ping;
mod progress;
mod register;
mod ring;
mod schema;
mod stat;
mod transfer;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Verb};

fn main() -> ExitCode {
    // Started by ourselves to count system calls?
    uldma::measure::tracer_main();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let common = &cli.common;
    let result = match &cli.verb {
        Verb::Info => info::run(common),
        Verb::Stat => stat::run(common),
        Verb::Lmm => lmm::run(common),
        Verb::Charge(verb) => charge::run(common, verb),
        Verb::Register(verb) => register::run(common, verb),
        Verb::Dma(verb) => dma::run(common, verb),
        Verb::Export(verb) => export::run(common, verb),
        Verb::Atomic(verb) => atomic::run(common, verb),
        Verb::SendFile(verb) => transfer::send::run(common, verb),
        Verb::RecvFile(verb) => transfer::recv::run(common, verb),
        Verb::Ping(verb) => ping::run(common, verb),
        Verb::Peers => peers::run(common),
        Verb::Listen(verb) => listen::run(common, verb),
        Verb::Connect(verb) => connect::run(common, verb),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(common.json),
    }
}
