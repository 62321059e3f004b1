// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench broadcast`: data for two processes of the other node, by one transfer into memory
//! that both share, and by a connection to each (*locked memory manager*, section 1).
//!
//! | | |
//! | --- | --- |
//! | this module | the sender, C |
//! | [`receivers`] | the receivers: A, which is `serve`, and B, which it starts |

mod receivers;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use uldma::measure::Clock;
use uldma::memory::Kind;
use uldma::region::Borrowed;
use uldma::transfer::Order;
use uldma::{Access, Channel, Context, ContextOptions, Device, Import, Memory, Method, Name, Spin};

use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::peer::{connect, receive, send, Answer, RemoteProcess, Request, CAPACITY};
use crate::timing::times;

pub(crate) use self::receivers::{second, serve};

/// Sizes of the data, and their names.
const SIZES: [(&str, usize); 4] = [
    ("4k", 4 << 10),
    ("64k", 64 << 10),
    ("1m", 1 << 20),
    ("4m", 4 << 20),
];
/// Broadcasts that are timed of each size and way.
const ROUNDS: u64 = 50;
/// First broadcasts, which do not count: pages are mapped at the first touch.
const WARM_UP: u64 = 3;

/// A way to reach both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Way {
    /// Into a segment that both have attached; A tells B.
    Shared,
    /// Into memory of each.
    Two,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Two => "two",
        }
    }
}

/// A message to A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
enum Step {
    /// Export memory for data of this size.
    Open { size: usize },
    /// Receive so many broadcasts.
    Rounds { way: Way, count: u64 },
    /// End.
    End,
}

/// The names of what is imported.
#[derive(Clone, Copy, Debug)]
struct Names {
    shared: Name,
    first: Name,
    second: Name,
}

impl Names {
    fn of(name: Name) -> Self {
        let other = |bits| Name::new(name.get() ^ bits).unwrap_or(name);
        Self {
            shared: other(1 << 60),
            first: other(2 << 60),
            second: other(3 << 60),
        }
    }
}

/// Returns the port at which B listens, if A has listened at that one.
fn second_port(port: u32) -> u32 {
    port + 1
}

/// Returns the bytes that stand at both ends of the data in a round.
fn stamp(round: u64) -> [u8; 8] {
    round.to_le_bytes()
}

/// The sender's side of one size.
struct Sender {
    context: Context,
    memory: Memory,
    source: Borrowed,
    shared: Import,
    first: Import,
    second: Import,
    size: usize,
}

impl Sender {
    fn new(device: &Device, names: Names, size: usize, timeout: Duration) -> Result<Self, Failure> {
        let device = device.reopen()?;
        let memory = Memory::new(Kind::Private, size as u64)?;
        let import = |name| device.import(name, Access::Write, timeout);
        Ok(Self {
            context: device.context_with(Method::Queue, ContextOptions::default())?,
            source: device.register_memory(&memory, 0..size as u64, Access::Read)?,
            shared: import(names.shared)?,
            first: import(names.first)?,
            second: import(names.second)?,
            memory,
            size,
        })
    }

    /// Copies the data to all of these, and waits for it.
    fn copy(&self, targets: &[&Import], timeout: Duration) -> Result<(), Failure> {
        let none = || Failure::Peer("has a context without a queue".into());
        let queue = self.context.queue().ok_or_else(none)?;
        let from = self.context.shadow(&self.source)?;
        let mut last = None;
        for target in targets {
            let to = self.context.shadow(*target)?;
            let ticket = queue
                .copy(from.at(0)?, to.at(0)?, self.size as u64, Order::NONE)
                .map_err(|refusal| Failure::Peer(format!("was not reached: {refusal}")))?;
            last = Some(ticket);
        }
        queue.submit();
        // A queue ends its transfers in order.
        if let Some(last) = last {
            self.context.wait(last, Spin::Adaptive, timeout)?;
        }
        Ok(())
    }

    /// Makes one broadcast. Returns its time in ticks.
    fn broadcast(
        &self,
        way: Way,
        round: u64,
        (first, second): (&mut Channel, &mut Channel),
        clock: &Clock,
        timeout: Duration,
    ) -> Result<u64, Failure> {
        let stamp = stamp(round);
        self.memory.write(0, &stamp)?;
        self.memory
            .write((self.size - stamp.len()) as u64, &stamp)?;
        let mut answer = [0; 8];
        let before = clock.ticks();
        match way {
            Way::Shared => {
                self.copy(&[&self.shared], timeout)?;
                first.send(&stamp, timeout)?;
                first.receive(&mut answer, timeout)?;
            }
            Way::Two => {
                self.copy(&[&self.first, &self.second], timeout)?;
                first.send(&stamp, timeout)?;
                second.send(&stamp, timeout)?;
                first.receive(&mut answer, timeout)?;
                second.receive(&mut answer, timeout)?;
            }
        }
        Ok(clock.ticks() - before)
    }
}

/// Measures with the help of a `serve` at the peer.
pub(crate) fn run(number: u32, port: u32, timeout: Duration) -> Result<Figures, Failure> {
    let device = Device::open(number)?;
    let mut peer = RemoteProcess::meet(&device, port, timeout)?;
    let name = Name::random()?;
    peer.ask(&Request::Broadcast { name: name.get() })?;
    let names = Names::of(name);
    let mut other = connect(&device, second_port(port), CAPACITY, timeout)?;
    let clock = Clock::start();
    let mut figures = Figures::default();
    for (name, size) in SIZES {
        send(&mut peer.channel, &Step::Open { size }, timeout)?;
        // Memory of the last size has the same names.
        let Answer::Ready = receive(&mut peer.channel, timeout)? else {
            return Err(Failure::Peer("has no memory".into()));
        };
        let sender = Sender::new(&device, names, size, timeout)?;
        for way in [Way::Two, Way::Shared] {
            let count = WARM_UP + ROUNDS;
            send(&mut peer.channel, &Step::Rounds { way, count }, timeout)?;
            let mut samples = Vec::new();
            let mut before = 0;
            for round in 0..count {
                if round == WARM_UP {
                    before = sender.context.stats()?.bytes;
                }
                let channels = (&mut peer.channel, &mut other);
                let ticks = sender.broadcast(way, round, channels, &clock, timeout)?;
                if round >= WARM_UP {
                    samples.push(ticks);
                }
            }
            let moved = sender.context.stats()?.bytes - before;
            add(
                &mut figures,
                way,
                (name, size),
                &times(&clock, &samples, 1),
                moved,
            );
        }
    }
    send(&mut peer.channel, &Step::End, timeout)?;
    peer.quit()?;
    Ok(figures)
}

/// Adds `broadcast.WAY.SIZE.time`, of the shared way beside the other, and `.copies`: bytes that the
/// device moved, by bytes of the data.
fn add(
    figures: &mut Figures,
    way: Way,
    (size, bytes): (&str, usize),
    times: &crate::timing::Times,
    moved: u64,
) {
    let bases = Bases {
        floor: None,
        rival: match way {
            Way::Shared => figures.get(&format!("broadcast.{}.{size}.time", Way::Two.name())),
            Way::Two => None,
        },
    };
    let name = format!("broadcast.{}.{size}", way.name());
    figures.add_beside(format!("{name}.time"), times.median(), "ns", bases);
    let copies = moved as f64 / (ROUNDS as f64 * bytes as f64);
    figures.add(format!("{name}.copies"), copies, "count");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let name = Name::new(0x1234).unwrap();
        let names = Names::of(name);
        let all = [names.shared, names.first, names.second, name];
        for (number, one) in all.iter().enumerate() {
            assert!(!all[..number].contains(one));
        }
    }

    #[test]
    fn one_way_is_beside_the_other() {
        let clock = Clock::start();
        let mut figures = Figures::default();
        for (way, moved) in [(Way::Two, 2), (Way::Shared, 1)] {
            let moved = moved * ROUNDS * 4096;
            add(
                &mut figures,
                way,
                ("4k", 4096),
                &times(&clock, &[1000], 1),
                moved,
            );
        }
        assert_eq!(figures.get("broadcast.two.4k.copies"), Some(2.0));
        assert_eq!(figures.get("broadcast.shared.4k.copies"), Some(1.0));
    }
}
