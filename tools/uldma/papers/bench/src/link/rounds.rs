// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rounds: all contenders take turns with one size of messages, so that drift hits all.

use uldma::measure::Clock;
use uldma::{Device, Name};

use super::contender::{Near, Setup};
use super::counters::Counters;
use super::opening::near;
use super::order::{Kind, Order, Report, What};
use crate::failure::Failure;
use crate::peer::{hear, say, Peer};

/// Rounds that count.
const ROUNDS: usize = 5;
/// Who has had this many and has taken this long in all, in nanoseconds, has had enough.
const FEW: usize = 2;
const LONG: f64 = 300e6;
/// How long a round should take, in nanoseconds.
const STREAM: f64 = 50e6;
const ROUND_TRIPS: f64 = 25e6;
/// The same for the shortest messages, whose rarest times are of interest.
const MANY_ROUND_TRIPS: f64 = 100e6;
/// Messages of a round, between these two bounds.
const COUNT: std::ops::RangeInclusive<u32> = 1..=100_000;
/// Most rounds that find out how many messages make one, and the part of a round that tells.
const TRIES: usize = 10;
const ENOUGH: f64 = 0.25;
/// First port to listen at.
const PORT: u32 = 4000;

/// What was measured of one contender with one size.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Ticks of all round trips.
    pub(crate) trips: Vec<u64>,
    /// What was counted of them.
    pub(crate) tripped: Totals,
    /// Ticks of each stream.
    pub(crate) streams: Vec<u64>,
    /// Messages of each stream.
    pub(crate) count: u32,
    /// What was counted of them.
    pub(crate) streamed: Totals,
}

/// Counts over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) counters: Counters,
}

/// One contender, open at both ends.
pub(crate) struct Contender {
    pub(crate) kind: Kind,
    near: Box<dyn Near>,
    pub(crate) samples: Samples,
}

/// The other side, and who is open there.
pub(crate) struct Session<'a> {
    peer: &'a mut Peer,
    device: &'a Device,
    clock: &'a Clock,
    port: u32,
}

/// How one round went.
struct Round {
    /// Of each round trip, or of the whole stream.
    ticks: Vec<u64>,
    counters: Counters,
}

impl<'a> Session<'a> {
    /// The other side serves already.
    pub(crate) fn new(peer: &'a mut Peer, device: &'a Device, clock: &'a Clock) -> Self {
        Self {
            peer,
            device,
            clock,
            port: PORT,
        }
    }

    fn ask(&mut self, order: Order) -> Result<Report, Failure> {
        say(&mut self.peer.channel, &order, self.peer.timeout)?;
        self.hear()
    }

    fn hear(&mut self) -> Result<Report, Failure> {
        // The other side's failures may come instead of anything.
        match hear(&mut self.peer.channel, self.peer.timeout)? {
            Report::Failed { message } => Err(Failure::Peer(format!("failed: {message}"))),
            report => Ok(report),
        }
    }

    /// Opens a contender for messages of `size` bytes.
    pub(crate) fn open(&mut self, kind: Kind, size: usize) -> Result<Contender, Failure> {
        let name = Name::random()?;
        self.port += 1;
        let order = Order::Open {
            kind,
            size,
            name: name.get(),
            port: self.port,
        };
        let (addresses, tcp_port) = match self.ask(order)? {
            Report::Open { addresses, port } => (addresses, port),
            other => return Err(unexpected(&other)),
        };
        let setup = Setup {
            device: self.device,
            kind,
            size,
            name,
            port: self.port,
            timeout: self.peer.timeout,
        };
        match near(setup, &addresses, tcp_port) {
            Ok(near) => Ok(Contender {
                kind,
                near,
                samples: Samples::default(),
            }),
            Err(failure) => {
                self.ask(Order::Close { kind })?;
                Err(failure)
            }
        }
    }

    /// Ends a contender; what was measured of it.
    pub(crate) fn close(&mut self, contender: Contender) -> Result<(Kind, Samples), Failure> {
        let Contender {
            kind,
            near,
            samples,
        } = contender;
        drop(near);
        self.ask(Order::Close { kind })?;
        Ok((kind, samples))
    }

    /// That was all.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.ask(Order::End).map(drop)
    }

    /// Has all of them take turns, as many rounds as count.
    pub(crate) fn measure(
        &mut self,
        contenders: &mut [&mut Contender],
        what: What,
        shortest: bool,
    ) -> Result<(), Failure> {
        let target = match what {
            What::Stream => STREAM,
            What::RoundTrips if shortest => MANY_ROUND_TRIPS,
            What::RoundTrips => ROUND_TRIPS,
        };
        let mut counts = Vec::new();
        for contender in contenders.iter_mut() {
            counts.push(self.calibrate(contender, what, target)?);
        }
        let all = contenders.len();
        for round in 0..ROUNDS {
            for turn in 0..all {
                let number = (turn + round) % all;
                let contender = &mut *contenders[number];
                let taken = contender.samples.ticks(what) as f64 * self.clock.rate();
                if round >= FEW && taken > LONG {
                    continue;
                }
                let done = self.round(contender, what, counts[number])?;
                contender.samples.add(what, counts[number], done);
            }
        }
        Ok(())
    }

    /// How many messages make a round that takes about so long. The first ones have to wake the other
    /// side, so short rounds tell little.
    fn calibrate(
        &mut self,
        contender: &mut Contender,
        what: What,
        target: f64,
    ) -> Result<u32, Failure> {
        let mut count = *COUNT.start();
        for _ in 0..TRIES {
            let done = self.round(contender, what, count)?;
            let ticks: u64 = done.ticks.iter().sum();
            let took = ticks as f64 * self.clock.rate();
            count = next_count(count, took, target);
            if took > ENOUGH * target {
                break;
            }
        }
        Ok(count)
    }

    fn round(
        &mut self,
        contender: &mut Contender,
        what: What,
        count: u32,
    ) -> Result<Round, Failure> {
        let kind = contender.kind;
        let near = contender.near.as_mut();
        let order = Order::Round { kind, what, count };
        say(&mut self.peer.channel, &order, self.peer.timeout)?;
        near.begin()?;
        self.expect(|report| matches!(report, Report::Ready))?;
        let before = Counters::read(self.device)?.with(near.counted()?);
        let ticks = match what {
            What::RoundTrips => {
                let ticks = near.round_trips(count, self.clock)?;
                self.expect(|report| matches!(report, Report::Finished))?;
                ticks
            }
            What::Stream => {
                let began = near.stream(count, self.clock)?;
                self.expect(|report| matches!(report, Report::Finished))?;
                vec![self.clock.ticks() - began]
            }
        };
        let here = Counters::read(self.device)?.with(near.counted()?) - before;
        match self.hear()? {
            Report::Done { counters } => Ok(Round {
                ticks,
                counters: here + counters,
            }),
            other => Err(unexpected(&other)),
        }
    }

    fn expect(&mut self, is_meant: impl Fn(&Report) -> bool) -> Result<(), Failure> {
        let report = self.hear()?;
        if is_meant(&report) {
            Ok(())
        } else {
            Err(unexpected(&report))
        }
    }
}

impl Samples {
    fn ticks(&self, what: What) -> u64 {
        match what {
            What::RoundTrips => self.trips.iter().sum(),
            What::Stream => self.streams.iter().sum(),
        }
    }

    fn add(&mut self, what: What, count: u32, round: Round) {
        let (ticks, totals, messages) = match what {
            // There and back.
            What::RoundTrips => (&mut self.trips, &mut self.tripped, 2 * u64::from(count)),
            What::Stream => {
                self.count = count;
                (&mut self.streams, &mut self.streamed, count.into())
            }
        };
        ticks.extend(round.ticks);
        totals.messages += messages;
        totals.counters = totals.counters + round.counters;
    }
}

/// So many messages as take `target` nanoseconds, if `count` of them took `took`.
fn next_count(count: u32, took: f64, target: f64) -> u32 {
    let fitting = f64::from(count) * target / took.max(1.0);
    (fitting as u32).clamp(*COUNT.start(), *COUNT.end())
}

fn unexpected(report: &Report) -> Failure {
    Failure::Peer(format!("answered {report:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_take_about_as_long() {
        assert_eq!(next_count(4, 1e6, 80e6), 320);
        assert_eq!(next_count(4, 1e9, 80e6), *COUNT.start());
        assert_eq!(next_count(4, 0.0, 80e6), *COUNT.end());
    }

    #[test]
    fn rounds_add_up() {
        let mut samples = Samples::default();
        for what in [What::RoundTrips, What::Stream, What::Stream] {
            let counters = Counters {
                interrupts: 3,
                ..Counters::default()
            };
            let ticks = vec![1];
            samples.add(what, 10, Round { ticks, counters });
        }
        assert_eq!(
            (samples.tripped.messages, samples.streamed.messages),
            (20, 20)
        );
        assert_eq!(samples.streamed.counters.interrupts, 6);
        assert_eq!(samples.streams.len(), 2);
    }
}
