// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench semantics`: messages that the device matches, by each technique of sending and of
//! receiving, beside the engine alone, connections and TCP. The rounds are those of `link`.

mod series;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::{Args, ValueEnum};
use uldma::measure::Clock;
use uldma::{Device, Spin};

use self::series::{Part, Series, SHORTEST, SIZES};
use crate::failure::Failure;
use crate::figure::{Bases, Figures};
use crate::link::order::{Kind, What};
use crate::link::rounds::{Samples, Session, Totals, Transport};
use crate::peer::{RemoteProcess, Request};
use crate::timing::{throughput, times};

/// Sizes of messages whose system calls and interrupts are counted, and the length of the stream:
/// each round takes some calls of its own.
const COUNTED: [&str; 2] = ["4k", "64k"];
const MANY: u32 = 1000;

/// Options of `uldma-bench semantics`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Few sizes only
    #[arg(long)]
    brief: bool,
    /// These parts only
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,
    /// Messages of these sizes only, such as 8, 64k or 1m
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    sizes: Vec<String>,
    /// Send streams of so many messages, and print no figures
    #[arg(long, value_name = "MESSAGES")]
    count: Option<u32>,
    /// Append a word to the names of all figures: how this run is special
    #[arg(long, value_name = "WORD")]
    suffix: Option<String>,
}

/// Measures with the help of a `serve` at the peer.
pub(crate) fn run(
    number: u32,
    port: u32,
    timeout: Duration,
    options: &Options,
) -> Result<Figures, Failure> {
    let device = Device::open(number)?;
    let mut peer = RemoteProcess::meet(&device, port, timeout)?;
    // A wake-up of this process would be counted.
    peer.channel.set_spin(Spin::MEASURE);
    peer.ask(&Request::Link)?;
    let clock = Clock::start();
    let suffix = options.suffix.as_ref().map(|word| format!(".{word}"));
    let mut run = Run {
        session: Session::new(&mut peer, &device, &clock),
        clock: &clock,
        suffix: suffix.unwrap_or_default(),
        absent: BTreeSet::new(),
        reasons: BTreeSet::new(),
        figures: Figures::default(),
    };
    for part in Part::value_variants() {
        let is_wanted =
            |size: &str| options.sizes.is_empty() || options.sizes.iter().any(|it| it == size);
        for size in SIZES.into_iter().filter(|size| is_wanted(size.0)) {
            if !options.parts.is_empty() && !options.parts.contains(part) {
                continue;
            }
            let series = part.series(size, options.brief);
            match options.count {
                Some(count) => run.count(series, size, count)?,
                None => run.part(*part, series, size)?,
            }
        }
    }
    let Run {
        session, figures, ..
    } = run;
    session.end()?;
    peer.quit()?;
    Ok(figures)
}

/// A run, part by part.
struct Run<'a> {
    session: Session<'a>,
    clock: &'a Clock,
    suffix: String,
    /// Series that were refused: they are not tried with other sizes.
    absent: BTreeSet<String>,
    /// Reasons that were printed.
    reasons: BTreeSet<String>,
    figures: Figures,
}

impl Run<'_> {
    /// Measures all series of a part with one size, beside the engine alone.
    fn part(
        &mut self,
        part: Part,
        series: Vec<Series>,
        size: (&str, usize),
    ) -> Result<(), Failure> {
        let mut all: Vec<(Option<String>, Transport)> = Vec::new();
        for Series { name, kind } in series {
            let title = name.trim_end_matches(&format!(".{}", size.0)).to_owned();
            if self.absent.contains(&title) {
                continue;
            }
            match self.session.open(kind, size.1) {
                Ok(transport) => all.push((Some(name), transport)),
                Err(failure) => {
                    let reason = failure.to_string();
                    // Most series are refused because of one of their two techniques.
                    if self.reasons.insert(reason.clone()) {
                        eprintln!("uldma-bench: no figures such as {title}: {reason}");
                    }
                    self.absent.insert(title);
                }
            }
        }
        if all.is_empty() {
            return Ok(());
        }
        let what = match part {
            Part::Rtt => What::RoundTrips,
            _ => What::Stream,
        };
        if what == What::Stream {
            all.push((None, self.session.open(Kind::Engine, size.1)?));
        }
        let mut turns: Vec<&mut Transport> = all.iter_mut().map(|it| &mut it.1).collect();
        self.session.measure(&mut turns, what, size.0 == SHORTEST)?;
        let mut closed = Vec::new();
        for (name, mut transport) in all {
            let is_counted = part.is_counted()
                && matches!(transport.kind, Kind::Messages(_))
                && COUNTED.contains(&size.0);
            if let (Some(name), true) = (&name, is_counted) {
                let totals = self.session.stream(&mut transport, MANY)?;
                self.add_counts(name, totals);
            }
            closed.push((name, self.session.close(transport)?));
        }
        self.add(&closed, size);
        Ok(())
    }

    /// Sends a stream of each series of messages, for a count that others make.
    fn count(
        &mut self,
        series: Vec<Series>,
        size: (&str, usize),
        count: u32,
    ) -> Result<(), Failure> {
        for Series { kind, .. } in series {
            if matches!(kind, Kind::Messages(_)) {
                let mut transport = self.session.open(kind, size.1)?;
                self.session.stream(&mut transport, count)?;
                self.session.close(transport)?;
            }
        }
        Ok(())
    }

    /// Adds the figures of a part with one size.
    fn add(&mut self, closed: &[(Option<String>, (Kind, Samples))], (size, bytes): (&str, usize)) {
        let rate = |samples: &Samples| {
            let median = times(self.clock, &samples.streams, 1).median();
            let rate = throughput(u64::from(samples.count) * bytes as u64, median);
            (!samples.streams.is_empty()).then_some(rate)
        };
        let of = |wanted: Kind| {
            let found = closed.iter().find(|(_, (kind, _))| *kind == wanted);
            found.and_then(|(_, (_, samples))| rate(samples))
        };
        let bases = Bases {
            floor: of(Kind::Engine),
            rival: of(Kind::Push),
        };
        for (name, (kind, samples)) in closed {
            if let Some(rate) = rate(samples) {
                let (name, bases) = match name {
                    Some(name) => (name.clone(), bases),
                    None => (format!("sem.engine.stream.{size}"), Bases::default()),
                };
                let name = format!("{name}{}", self.suffix);
                self.figures.add_beside(name, rate, "MB/s", bases);
            }
            let Some(name) = name else { continue };
            if !samples.trips.is_empty() {
                let trips = times(self.clock, &samples.trips, 1);
                for (quantile, part) in [("p50", 0.5), ("p99", 0.99)] {
                    let name = format!("{name}.{quantile}{}", self.suffix);
                    self.figures.add(name, trips.quantile(part), "ns");
                }
            }
            let copied = samples.streamed.counters.copied;
            if copied > 0 && matches!(kind, Kind::Messages(_)) {
                let name = format!("{name}.copies{}", self.suffix);
                let all = samples.streamed.messages as f64 * bytes as f64;
                self.figures.add(name, copied as f64 / all, "count");
            }
        }
    }

    /// Adds what both nodes did for one message of a stream.
    fn add_counts(&mut self, name: &str, totals: Totals) {
        let (counters, messages) = (totals.counters, totals.messages as f64);
        for (what, count) in [
            ("syscalls_per_message", counters.calls),
            ("irqs_per_message", counters.interrupts + counters.events),
            ("doorbells_per_message", counters.doorbells),
            ("switches_per_message", counters.switches),
            ("shootdowns_per_message", counters.shootdowns),
        ] {
            let name = format!("{name}.{what}{}", self.suffix);
            self.figures.add(name, count as f64 / messages, "count");
        }
    }
}
