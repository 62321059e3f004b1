// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rounds: all transports take turns with one size of messages, so that drift hits all.

use uldma::measure::Clock;
use uldma::{Device, Name};

use super::counters::Counters;
use super::opening::near;
use super::order::{Kind, Order, Report, What};
use super::transport::{Near, Setup};
use crate::failure::Failure;
use crate::peer::{receive, send, RemoteProcess};

/// Rounds that count.
const ROUNDS: usize = 5;
/// A transport ends early after this many rounds, this many nanoseconds in all, and more than all rounds
/// should take.
const FEW: usize = 2;
const LONG: f64 = 300e6;
/// How long a stream should take, in nanoseconds, and of how many messages it should be where that
/// takes longer, since it begins and ends with a wake-up; and the limit of both.
const STREAM: f64 = 50e6;
const STREAM_MESSAGES: f64 = 50.0;
const LONGEST_STREAM: f64 = 250e6;
/// How long the round trips of a round should take.
const ROUND_TRIPS: f64 = 25e6;
/// The same for the shortest messages, whose rarest times are of interest.
const MANY_ROUND_TRIPS: f64 = 100e6;
/// Messages of a round, between these two bounds.
const COUNT: std::ops::RangeInclusive<u32> = 1..=100_000;
/// Limit of the rounds that calibrate the number of messages, and the part of a round's time that is long
/// enough to calibrate by.
const TRIES: usize = 10;
const ENOUGH: f64 = 0.25;

/// Samples of one transport with one size.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    /// Ticks of all round trips.
    pub(crate) trips: Vec<u64>,
    /// Their counts.
    pub(crate) tripped: Totals,
    /// Ticks of each stream.
    pub(crate) streams: Vec<u64>,
    /// Messages of each stream.
    pub(crate) count: u32,
    /// Their counts.
    pub(crate) streamed: Totals,
}

/// Counts over all rounds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    pub(crate) messages: u64,
    pub(crate) counters: Counters,
}

/// One transport, open at both ends.
pub(crate) struct Transport {
    pub(crate) kind: Kind,
    near: Box<dyn Near>,
    pub(crate) samples: Samples,
}

/// A session with the process that answers.
pub(crate) struct Session<'a> {
    peer: &'a mut RemoteProcess,
    device: &'a Device,
    clock: &'a Clock,
    /// The last port that was listened at.
    port: u32,
}

/// The result of one round.
struct Round {
    /// Of each round trip, or of the whole stream.
    ticks: Vec<u64>,
    counters: Counters,
}

impl<'a> Session<'a> {
    /// Begins a session; the other process serves already.
    pub(crate) fn new(peer: &'a mut RemoteProcess, device: &'a Device, clock: &'a Clock) -> Self {
        Self {
            port: peer.port,
            peer,
            device,
            clock,
        }
    }

    fn ask(&mut self, order: Order) -> Result<Report, Failure> {
        send(&mut self.peer.channel, &order, self.peer.timeout)?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Report, Failure> {
        // A failure may come instead of any answer.
        match receive(&mut self.peer.channel, self.peer.timeout)? {
            Report::Failed { message } => Err(Failure::Peer(format!("failed: {message}"))),
            report => Ok(report),
        }
    }

    /// Opens a transport for messages of `size` bytes.
    pub(crate) fn open(&mut self, kind: Kind, size: usize) -> Result<Transport, Failure> {
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
            Ok(near) => Ok(Transport {
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

    /// Closes a transport, and returns its samples.
    pub(crate) fn close(&mut self, transport: Transport) -> Result<(Kind, Samples), Failure> {
        let Transport {
            kind,
            near,
            samples,
        } = transport;
        drop(near);
        self.ask(Order::Close { kind })?;
        Ok((kind, samples))
    }

    /// Ends the session.
    pub(crate) fn end(mut self) -> Result<(), Failure> {
        self.ask(Order::End).map(drop)
    }

    /// Lets all of them take turns.
    pub(crate) fn measure(
        &mut self,
        transports: &mut [&mut Transport],
        what: What,
        shortest: bool,
    ) -> Result<(), Failure> {
        let target = |message: f64| match what {
            What::Stream => stream_target(message),
            What::RoundTrips if shortest => MANY_ROUND_TRIPS,
            What::RoundTrips => ROUND_TRIPS,
        };
        let mut plans = Vec::new();
        for transport in transports.iter_mut() {
            plans.push(self.calibrate(transport, what, target)?);
        }
        let all = transports.len();
        for round in 0..ROUNDS {
            for turn in 0..all {
                let number = (turn + round) % all;
                let transport = &mut *transports[number];
                let (count, length) = plans[number];
                let taken = transport.samples.ticks(what) as f64 * self.clock.rate();
                if round >= FEW && taken > LONG.max(ROUNDS as f64 * length) {
                    continue;
                }
                let done = self.round(transport, what, count)?;
                transport.samples.add(what, count, done);
            }
        }
        Ok(())
    }

    /// Returns the number of messages of a round, and the nanoseconds that it should take: `target` of
    /// those of a message. The first ones have to wake the other process, so short rounds are not
    /// representative.
    fn calibrate(
        &mut self,
        transport: &mut Transport,
        what: What,
        target: impl Fn(f64) -> f64,
    ) -> Result<(u32, f64), Failure> {
        let (mut count, mut length) = (*COUNT.start(), 0.0);
        for _ in 0..TRIES {
            let done = self.round(transport, what, count)?;
            let ticks: u64 = done.ticks.iter().sum();
            let took = ticks as f64 * self.clock.rate();
            length = target(took / f64::from(count));
            count = next_count(count, took, length);
            if took > ENOUGH * length {
                break;
            }
        }
        Ok((count, length))
    }

    /// Sends a stream of `count` messages, which is not timed. Returns the counts of both nodes.
    pub(crate) fn stream(
        &mut self,
        transport: &mut Transport,
        count: u32,
    ) -> Result<Totals, Failure> {
        let round = self.round(transport, What::Stream, count)?;
        Ok(Totals {
            messages: count.into(),
            counters: round.counters,
        })
    }

    fn round(
        &mut self,
        transport: &mut Transport,
        what: What,
        count: u32,
    ) -> Result<Round, Failure> {
        let kind = transport.kind;
        let near = transport.near.as_mut();
        let order = Order::Round { kind, what, count };
        send(&mut self.peer.channel, &order, self.peer.timeout)?;
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
        match self.receive()? {
            Report::Done { counters } => Ok(Round {
                ticks,
                counters: here + counters,
            }),
            other => Err(unexpected(&other)),
        }
    }

    fn expect(&mut self, is_meant: impl Fn(&Report) -> bool) -> Result<(), Failure> {
        let report = self.receive()?;
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
            // A round trip is two messages.
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

/// Returns the nanoseconds that a stream should take, if each message takes `message`.
fn stream_target(message: f64) -> f64 {
    (STREAM_MESSAGES * message).clamp(STREAM, LONGEST_STREAM)
}

/// Returns the number of messages that take `target` nanoseconds, if `count` of them took `took`.
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
        let targets = [1e3, 4e6, 1e9].map(stream_target);
        assert_eq!(targets, [50e6, 200e6, 250e6]);
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
