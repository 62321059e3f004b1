// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests two processes that copy to one page, with and without [`SharedLock`]. It needs a device:
//! `make test` runs it on a node.
//!
//! It has its own main function, as it starts itself as the second process.

#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use uldma::memory::Kind;
use uldma::region::Borrowed;
use uldma::{Access, Context, ContextOptions, Device, Memory, Method, SharedLock, Spin};

const PAGE: u64 = 4096;
const BYTES: usize = 64;
/// Transfers of each process under the lock.
const ROUNDS: u32 = 1000;
const PATIENCE: Duration = Duration::from_secs(20);

/// One of the two processes: its own source page, and the destination that both have.
struct Sharer {
    context: Context,
    source: (Memory, Borrowed),
    target: (Memory, Borrowed),
    mark: u8,
}

/// What happened to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    /// Attempts that the other process disturbed.
    disturbed: u64,
    /// Transfers that the kernel had to start.
    by_kernel: u64,
    /// Transfers after which the destination had other bytes.
    other_bytes: u64,
}

impl Sharer {
    fn new(segment: i32, mark: u8) -> Self {
        let device = Device::open(0).unwrap();
        let registered = |memory: Memory| {
            let region = device.register_memory(&memory, 0..PAGE, Access::ReadWrite);
            (memory, region.unwrap())
        };
        Self {
            context: device
                .context_with(Method::Repeated5, ContextOptions::default())
                .unwrap(),
            source: registered(Memory::new(Kind::Private, PAGE).unwrap()),
            target: registered(Memory::attach(segment, true).unwrap()),
            mark,
        }
    }

    /// Copies once, and reads what the destination has then.
    fn round(&self, number: u32, count: &mut Count) {
        let number = number.to_le_bytes();
        let mut bytes = [self.mark; BYTES];
        bytes[..number.len()].copy_from_slice(&number);
        self.source.0.write(0, &bytes).unwrap();
        let context = &self.context;
        let (from, to) = (
            context.shadow(&self.source.1).unwrap(),
            context.shadow(&self.target.1).unwrap(),
        );
        let (from, to) = (from.at(0).unwrap(), to.at(0).unwrap());
        let started = context.dma(from, to, BYTES as u64).unwrap();
        context.dma_wait(started, Spin::Adaptive, PATIENCE).unwrap();
        let mut found = [0; BYTES];
        self.target.0.read(0, &mut found).unwrap();
        count.disturbed += u64::from(started.retries);
        count.by_kernel += u64::from(started.via == Method::Kernel);
        count.other_bytes += u64::from(found != bytes);
    }

    fn under(&self, lock: &SharedLock) -> Count {
        let mut count = Count::default();
        for number in 0..ROUNDS {
            let guard = lock.lock().unwrap();
            assert!(!guard.holder_died());
            self.round(number, &mut count);
        }
        count
    }
}

/// The second process: copies under the lock, then without it until its input ends.
fn partner(target: i32, lock: i32) {
    let lock = SharedLock::open(Memory::attach(lock, true).unwrap()).unwrap();
    let sharer = Sharer::new(target, 2);
    println!("ready");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    println!("{:?}", sharer.under(&lock));
    std::io::stdin().read_line(&mut line).unwrap();
    let end = std::thread::spawn(|| std::io::stdin().read_line(&mut String::new()));
    println!("ready");
    let mut count = Count::default();
    while !end.is_finished() {
        sharer.round(0, &mut count);
    }
}

struct Partner {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Partner {
    fn start(target: i32, lock: i32) -> Self {
        let mut process = Command::new("/proc/self/exe")
            .args([target.to_string(), lock.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap());
        Self { process, answers }
    }

    fn go(&mut self) {
        let mut input = self.process.stdin.as_ref().unwrap();
        input.write_all(b"go\n").unwrap();
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim().into()
    }
}

fn main() {
    let arguments: Vec<i32> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().unwrap())
        .collect();
    if let [target, lock] = arguments[..] {
        return partner(target, lock);
    }
    let target = Memory::new(Kind::SysV, PAGE).unwrap();
    let page = Memory::new(Kind::SysV, PAGE).unwrap();
    let (segment, lock_segment) = (target.segment_id().unwrap(), page.segment_id().unwrap());
    let lock = SharedLock::create(page).unwrap();
    let mut partner = Partner::start(segment, lock_segment);
    let sharer = Sharer::new(segment, 1);
    assert_eq!(partner.answer(), "ready");

    partner.go();
    let ours = sharer.under(&lock);
    let theirs = partner.answer();
    assert_eq!(ours, Count::default());
    assert_eq!(theirs, format!("{:?}", Count::default()));
    println!("test sharers_with_the_lock_are_undisturbed ... ok");

    partner.go();
    assert_eq!(partner.answer(), "ready");
    let end = Instant::now() + PATIENCE;
    let mut count = Count::default();
    for number in 0.. {
        sharer.round(number, &mut count);
        if count.disturbed > 0 && count.other_bytes > 0 {
            break;
        }
        assert!(Instant::now() < end, "{count:?}");
    }
    partner.go();
    assert!(partner.process.wait().unwrap().success());
    println!("test sharers_without_it_are_not ... ok");
}
