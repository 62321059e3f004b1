// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line of uldma: one file for each command.

mod args;
mod atomic;
mod calibrate;
mod charge;
mod connect;
mod connection;
mod counters;
mod dma;
mod export;
mod failure;
mod file;
mod info;
mod listen;
mod lmm;
mod memory;
mod message;
mod method;
mod net;
mod open_files;
mod output;
mod peers;
mod ping;
mod progress;
mod register;
mod ring;
mod schema;
mod standard;
mod stat;
mod transfer;
mod usage;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    // Started by ourselves to count system calls?
    uldma_papers::tracer::tracer_main();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage::report(&error),
    };
    let common = &cli.common;
    let result = match &cli.command {
        Command::Info => info::run(common),
        Command::Stat => stat::run(common),
        Command::Lmm => lmm::run(common),
        Command::Charge(command) => charge::run(common, command),
        Command::Register(command) => register::run(common, command),
        Command::Dma(command) => dma::run(common, command),
        Command::Export(command) => export::run(common, command),
        Command::Atomic(command) => atomic::run(common, command),
        Command::SendFile(command) => transfer::send::run(common, command),
        Command::RecvFile(command) => transfer::recv::run(common, command),
        Command::Send(command) => message::send(common, command),
        Command::Recv(command) => message::recv(common, command),
        Command::Calibrate => calibrate::run(common),
        Command::Ping(command) => ping::run(common, command),
        Command::Peers => peers::run(common),
        Command::Listen(command) => listen::run(common, command),
        Command::Connect(command) => connect::run(common, command),
        Command::Net => net::run(common),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(common.json),
    }
}
