// SPDX-License-Identifier: MIT OR Apache-2.0

//! Guests and clients that act by random bytes: `make fuzz TARGET=device`.
//!
//! The corpus consists of inputs that each have a mark of their own, from the device's counters.
//! Every run of the tests executes them and a few new ones.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

#[path = "../fuzz/accesses.rs"]
mod accesses;
mod common;
#[path = "../fuzz/input.rs"]
mod input;
#[path = "../fuzz/messages.rs"]
mod messages;

use std::fmt::Write;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::str::FromStr;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::host;
use input::{Chance, Corpus};
use tempfile::TempDir;
use uldma_device::abi::Method;
use uldma_device::engine::Speed;
use uldma_device::method::Compare;
use uldma_device::node::Shape;

const SHAPE: Shape = Shape {
    contexts: 4,
    shadow_bits: 30,
    window_size: 1 << 16,
    methods: Method::ALL,
    compare: Compare::Full,
};
const CORPUS: &str = include_str!("../fuzz/corpus.txt");
/// New inputs of a run that is not about them.
const FEW: u64 = 500;
/// One in this many inputs is messages of a client instead of accesses of a guest.
const MESSAGES: u64 = 8;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text
        .chars()
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let pairs = digits.chunks_exact(2);
    pairs.map(|pair| ((pair[0] << 4) | pair[1]) as u8).collect()
}

/// Returns the caller's setting, or a default that is the same in all runs.
fn setting<T: FromStr>(name: &str, otherwise: T) -> T {
    let value = std::env::var(name).ok();
    value
        .and_then(|text| text.parse().ok())
        .unwrap_or(otherwise)
}

struct Fuzz {
    corpus: Corpus<String>,
    chance: Chance,
    directory: TempDir,
    done: u64,
}

impl Fuzz {
    fn new(seed: u64) -> Self {
        let directory = TempDir::new().unwrap();
        host::start(directory.path(), SHAPE, Speed::default());
        let mut fuzz = Self {
            corpus: Corpus::default(),
            chance: Chance::new(seed),
            directory,
            done: 0,
        };
        let lines = CORPUS.lines().filter(|line| !line.starts_with('#'));
        for input in lines.map(unhex) {
            fuzz.access(input);
        }
        fuzz
    }

    /// Runs an action; if it fails, first prints how to repeat it.
    fn telling<T>(&mut self, what: &str, bytes: &[u8], act: impl FnOnce(&[u8]) -> T) -> T {
        self.done += 1;
        catch_unwind(AssertUnwindSafe(|| act(bytes))).unwrap_or_else(|panic| {
            eprintln!("{what} fail; again: INPUT={}", hex(bytes));
            std::panic::resume_unwind(panic)
        })
    }

    fn access(&mut self, input: Vec<u8>) {
        let marks = self.telling("accesses", &input, accesses::run);
        self.corpus.keep(input, marks);
    }

    fn say(&mut self, input: &[u8]) {
        let path = self.directory.path().to_owned();
        let (hostile, honest) = (path.join("a"), path.join("b"));
        self.telling("messages", input, |input| {
            messages::run(input, &hostile, &honest);
        });
    }

    fn round(&mut self) {
        let input = self.corpus.next(&mut self.chance);
        if self.chance.next() % MESSAGES == 0 {
            self.say(&input);
        } else {
            self.access(input);
        }
    }
}

/// Returns the shortest inputs that together have all marks.
fn least(inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut inputs = inputs.to_vec();
    inputs.sort_by_key(Vec::len);
    let mut corpus = Corpus::default();
    for input in inputs {
        let marks = accesses::run(&input);
        corpus.keep(input, marks);
    }
    corpus.inputs
}

#[test]
fn what_was_found_and_a_little_more() {
    let mut fuzz = Fuzz::new(1);
    for _ in 0..FEW {
        fuzz.round();
    }
}

/// Runs for `ULDMA_FUZZ_SECONDS`. `ULDMA_FUZZ_INPUT` is executed instead, if it is set, and
/// `ULDMA_FUZZ_KEEP` names a file for the corpus of the run.
#[test]
#[ignore = "make fuzz TARGET=device"]
fn for_a_while() {
    let input: String = setting("ULDMA_FUZZ_INPUT", String::new());
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seed = setting("ULDMA_FUZZ_SEED", now.as_secs());
    let seconds = setting("ULDMA_FUZZ_SECONDS", 60);
    println!("fuzz: SEED={seed} SECONDS={seconds}");
    let mut fuzz = Fuzz::new(seed);
    if !input.is_empty() {
        let bytes = unhex(&input);
        fuzz.say(&bytes);
        fuzz.access(bytes);
        return;
    }
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        fuzz.round();
    }
    let corpus = &fuzz.corpus;
    println!(
        "fuzz: {} executions in {:.0} s, {} marks, {} inputs in the corpus",
        fuzz.done,
        began.elapsed().as_secs_f64(),
        corpus.seen(),
        corpus.inputs.len()
    );
    let path: String = setting("ULDMA_FUZZ_KEEP", String::new());
    if !path.is_empty() {
        let head = "# SPDX-License-Identifier: MIT OR Apache-2.0";
        let least = least(&corpus.inputs);
        let lines = least.iter().map(|input| hex(input));
        let lines: Vec<_> = std::iter::once(head.to_owned()).chain(lines).collect();
        std::fs::write(path, lines.join("\n") + "\n").unwrap();
    }
}
