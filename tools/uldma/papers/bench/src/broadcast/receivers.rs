// SPDX-License-Identifier: MIT OR Apache-2.0

//! The receivers: A, which the sender talks to, and B, a second process on the same node.
//!
//! What they share is a segment for the data, and a page with a lock and two words: the number of the
//! last broadcast that A has announced, and of the last one that B has read.

use std::io::{BufRead, BufReader, Write};
use std::mem::forget;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use uldma::memory::Kind;
use uldma::region::Borrowed;
use uldma::{Access, Channel, ChannelListener, Device, Memory, Name, SharedLock};

use super::{second_port, stamp, Names, Step, Way};
use crate::failure::Failure;
use crate::peer::{receive, send, Answer, CAPACITY};
use crate::Common;

const PAGE: u64 = 4096;
/// Where the words are in the shared page.
const ANNOUNCED: u64 = 0;
const READ: u64 = 8;

fn failed(error: std::io::Error) -> Failure {
    Failure::Io("the second receiver", error)
}

fn broken() -> Failure {
    failed(std::io::ErrorKind::InvalidData.into())
}

/// Words that both processes access under a lock.
struct Board {
    lock: SharedLock,
    words: Memory,
    timeout: Duration,
}

impl Board {
    fn set(&self, word: u64, value: u64) -> Result<(), Failure> {
        let _guard = self.lock.lock()?;
        Ok(self.words.write(word, &value.to_le_bytes())?)
    }

    /// Waits until the word has this value.
    fn wait(&self, word: u64, value: u64) -> Result<(), Failure> {
        let end = Instant::now() + self.timeout;
        let mut bytes = [0; 8];
        loop {
            {
                let _guard = self.lock.lock()?;
                self.words.read(word, &mut bytes)?;
            }
            if u64::from_le_bytes(bytes) == value {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(failed(std::io::ErrorKind::TimedOut.into()));
            }
            std::thread::yield_now();
        }
    }
}

/// Memory that the sender writes to.
struct Target {
    memory: Memory,
    _region: Borrowed,
}

impl Target {
    /// Registers memory and exports it under a name, until it is dropped.
    fn new(device: &Device, memory: Memory, name: Name) -> Result<Self, Failure> {
        let all = 0..memory.length();
        let region = device.register_memory(&memory, all, Access::ReadWrite)?;
        // An export ends with its region.
        forget(region.export(name, Access::Write)?);
        Ok(Self {
            memory,
            _region: region,
        })
    }
}

/// Checks that the memory has the data of this round.
fn check(memory: &Memory, round: u64) -> Result<(), Failure> {
    let wanted = stamp(round);
    for at in [0, memory.length() - wanted.len() as u64] {
        let mut found = wanted;
        memory.read(at, &mut found)?;
        if found != wanted {
            return Err(Failure::Peer(format!("sent no data in round {round}")));
        }
    }
    Ok(())
}

/// The second process, as A sees it.
struct Second {
    process: Child,
    answers: BufReader<ChildStdout>,
}

impl Second {
    fn start(common: &Common, name: Name, lock: &Memory, words: &Memory) -> Result<Self, Failure> {
        let id = |memory: &Memory| memory.segment_id().ok_or_else(broken);
        let mut process = Command::new("/proc/self/exe")
            .args(["--device", &common.device.to_string()])
            .args(["--port", &common.port.to_string()])
            .args(["--timeout", &common.timeout.to_string()])
            .args(["broadcast-second", &format!("{:#x}", name.get())])
            .args([id(lock)?.to_string(), id(words)?.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let answers = BufReader::new(process.stdout.take().ok_or_else(broken)?);
        Ok(Self { process, answers })
    }

    /// Gives an order, and waits until the process has begun with it.
    fn order(&mut self, order: &str) -> Result<(), Failure> {
        let mut input = self.process.stdin.as_ref().ok_or_else(broken)?;
        writeln!(input, "{order}").map_err(failed)?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(failed)?;
        match line.trim() {
            "ok" => Ok(()),
            _ => Err(broken()),
        }
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Serves a sender, as A.
pub(crate) fn serve(
    (common, name): (&Common, Name),
    device: &Device,
    channel: &mut Channel,
) -> Result<(), Failure> {
    let timeout = common.timeout();
    let names = Names::of(name);
    let (lock, words) = (
        Memory::new(Kind::SysV, PAGE)?,
        Memory::new(Kind::SysV, PAGE)?,
    );
    let mut second = Second::start(common, name, &lock, &words)?;
    let board = Board {
        lock: SharedLock::create(lock)?,
        words,
        timeout,
    };
    second.order("begin")?;
    send(channel, &Answer::Ready, timeout)?;
    let mut open: Option<(Target, Target)> = None;
    loop {
        match receive(channel, timeout)? {
            Step::Open { size } => {
                drop(open.take());
                let size = size as u64;
                let shared = Memory::new(Kind::SysV, size)?;
                let segment = shared.segment_id().ok_or_else(broken)?;
                second.order(&format!("open {segment} {size}"))?;
                let own = Memory::new(Kind::Private, size)?;
                open = Some((
                    Target::new(device, shared, names.shared)?,
                    Target::new(device, own, names.first)?,
                ));
                send(channel, &Answer::Ready, timeout)?;
            }
            Step::Rounds { way, count } => {
                let (shared, own) = open.as_ref().ok_or_else(broken)?;
                board.set(ANNOUNCED, u64::MAX)?;
                board.set(READ, u64::MAX)?;
                let name = way.name();
                second.order(&format!("{name} {count}"))?;
                let mut message = [0; 8];
                for round in 0..count {
                    channel.receive(&mut message, timeout)?;
                    match way {
                        Way::Shared => {
                            check(&shared.memory, round)?;
                            board.set(ANNOUNCED, round)?;
                            board.wait(READ, round)?;
                        }
                        Way::Two => check(&own.memory, round)?,
                    }
                    channel.send(&message, timeout)?;
                }
            }
            Step::End => return Ok(()),
        }
    }
}

/// Runs the second process, as B: carries out the orders of its input.
pub(crate) fn second(
    common: &Common,
    name: Name,
    (lock, words): (i32, i32),
) -> Result<(), Failure> {
    let timeout = common.timeout();
    let device = Device::open(common.device)?;
    let names = Names::of(name);
    let mut begun: Option<Board> = None;
    let mut channel: Option<Channel> = None;
    let mut open: Option<(Memory, Target)> = None;
    for line in std::io::stdin().lines() {
        let line = line.map_err(failed)?;
        let words_of: Vec<&str> = line.split_whitespace().collect();
        match words_of[..] {
            ["begin"] => {
                begun = Some(Board {
                    lock: SharedLock::open(Memory::attach(lock, true)?)?,
                    words: Memory::attach(words, true)?,
                    timeout,
                });
                let port = second_port(common.port);
                let listener = ChannelListener::new(&device, port, 1, CAPACITY)?;
                ok()?;
                channel = Some(listener.accept(timeout)?.0);
            }
            ["open", segment, size] => {
                drop(open.take());
                let segment = segment.parse().map_err(|_| broken())?;
                let size = size.parse().map_err(|_| broken())?;
                let own = Memory::new(Kind::Private, size)?;
                let target = Target::new(&device, own, names.second)?;
                open = Some((Memory::attach(segment, false)?, target));
                ok()?;
            }
            [way, count] => {
                let count: u64 = count.parse().map_err(|_| broken())?;
                let (shared, own) = open.as_ref().ok_or_else(broken)?;
                let board = begun.as_ref().ok_or_else(broken)?;
                let channel = channel.as_mut().ok_or_else(broken)?;
                ok()?;
                let mut message = [0; 8];
                for round in 0..count {
                    if way == Way::Shared.name() {
                        board.wait(ANNOUNCED, round)?;
                        check(shared, round)?;
                        board.set(READ, round)?;
                    } else {
                        channel.receive(&mut message, timeout)?;
                        check(&own.memory, round)?;
                        channel.send(&message, timeout)?;
                    }
                }
            }
            _ => return Err(broken()),
        }
    }
    Ok(())
}

fn ok() -> Result<(), Failure> {
    let mut out = std::io::stdout();
    writeln!(out, "ok")
        .and_then(|()| out.flush())
        .map_err(failed)
}
