// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-fuzz`: feeds random input to the code that reads data of other processes and nodes.
//!
//! The driver's decoders of messages are compiled into this program as they are: what they use of
//! the kernel is in a crate of that name, and of the rest of the driver in modules of the same names.

#![forbid(unsafe_code)]

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};

mod chance;
#[path = "../../lib/tests/common/hostile_memory.rs"]
mod hostile_memory;
mod hostile_ring;
mod hw;
mod kernel_ext;
mod messages;
mod outcomes;
#[cfg(test)]
mod retraction;
mod tools;
mod uapi;

#[allow(dead_code, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/user_abi"]
mod user_abi {
    pub(crate) mod access;
    pub(crate) mod offer;
}

#[path = "."]
mod mem {
    pub(crate) mod tpt;
}

#[allow(dead_code, unused_imports, missing_docs, unreachable_pub, clippy::all)]
#[path = "../../../../drivers/uldma/link"]
mod link {
    pub(crate) mod area;
    pub(crate) mod handshake;
    pub(crate) mod message;
    pub(crate) mod ring;
    // Needs access to items that are private to the link.
    #[path = "../../../tools/uldma/fuzz/src/peer.rs"]
    pub(crate) mod peer;
}

use chance::Chance;
use outcomes::Outcomes;
use tools::Programs;
pub(crate) use uldma::ring;

/// Code to fuzz.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Target {
    /// The driver's decoders of messages and handshakes, and the rings that carry messages.
    Messages,
    /// The library's rings.
    Ring,
    /// The sockets and command lines of programs
    Tools,
}

/// Feed random input to the code that reads data of other processes and nodes.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Code to fuzz
    target: Target,
    /// Time limit
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Of the first case; the next ones are those that follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Only so many cases
    #[arg(long)]
    cases: Option<u64>,
}

type Case = Box<dyn FnMut(&mut Chance, &mut Outcomes)>;

impl Target {
    fn case(self) -> io::Result<Case> {
        Ok(match self {
            Self::Messages => Box::new(messages::case),
            Self::Ring => Box::new(hostile_ring::case),
            Self::Tools => {
                let mut programs = Programs::start()?;
                Box::new(move |chance, outcomes| programs.case(chance, outcomes))
            }
        })
    }
}

/// Runs cases of these seeds. Returns the seed of the first one that fails.
fn run(options: &Options, case: &mut Case, outcomes: &mut Outcomes) -> (u64, Result<(), u64>) {
    let until = Instant::now() + Duration::from_secs(options.seconds);
    let mut done = 0;
    while Instant::now() < until && options.cases.is_none_or(|cases| done < cases) {
        let seed = options.seed.wrapping_add(done);
        let run = AssertUnwindSafe(|| case(&mut Chance::new(seed), outcomes));
        if panic::catch_unwind(run).is_err() {
            return (done, Err(seed));
        }
        done += 1;
    }
    (done, Ok(()))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let mut case = match options.target.case() {
        Ok(case) => case,
        Err(error) => {
            eprintln!("uldma-fuzz: {error}");
            return ExitCode::from(2);
        }
    };
    let mut outcomes = Outcomes::default();
    let (done, result) = run(&options, &mut case, &mut outcomes);
    for (outcome, count) in outcomes.iter() {
        println!("{count:12} {outcome}");
    }
    println!("{done} cases, {} outcomes", outcomes.iter().count());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(seed) => {
            println!("failed: --seed {seed} --cases 1");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Inputs that failed once.
    const FOUND: [(Target, u64); 1] = [(Target::Ring, 3_302_585_255)];

    #[test]
    fn what_was_found_stays_mended() {
        for (target, seed) in FOUND {
            let mut case = target.case().unwrap();
            case(&mut Chance::new(seed), &mut Outcomes::default());
        }
    }

    /// Runs a few cases of each target, so that the fuzzers themselves are tested.
    #[test]
    fn nothing_panics() {
        for target in [Target::Messages, Target::Ring] {
            let options = Options {
                target,
                seconds: 5,
                seed: 1,
                cases: Some(2000),
            };
            let (mut case, mut outcomes) = (target.case().unwrap(), Outcomes::default());
            let (done, result) = run(&options, &mut case, &mut outcomes);
            assert_eq!(result, Ok(()), "{target:?}");
            assert!(
                done > 0 && outcomes.iter().count() > 3,
                "{target:?}: {outcomes:?}"
            );
        }
    }
}
