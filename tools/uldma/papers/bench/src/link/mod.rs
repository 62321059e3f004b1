// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench link`: round trips and streams between two nodes by size, beside bare words, copies
//! into the window, the engine alone, TCP, a conventional read and write, and a character device.
//!
//! | | |
//! | --- | --- |
//! | [`transport`], [`opening`] | transports: an end here and one at the peer |
//! | [`ring`], [`memcpy`], [`engine`], [`conn`], [`carried`], [`tcp`], [`conventional`], [`character`] | all of them |
//! | [`meeting`] | channels of `ring` and `conventional` |
//! | [`messages`] | the transport of `uldma-bench semantics` |
//! | [`way`] | how a message connection sends and receives |
//! | [`bounce`] | memory of the kernel behind a conventional read and write |
//! | [`order`], [`serve`], [`rounds`] | rounds, in which all transports take turns |
//! | [`counters`] | interrupts, doorbells, copies |
//! | [`sizes`], [`names`] | sizes of messages, names of figures |

mod bounce;
mod carried;
mod character;
mod conn;
mod conventional;
mod counters;
mod engine;
mod meeting;
mod memcpy;
mod messages;
mod names;
mod opening;
pub(crate) mod order;
mod ring;
pub(crate) mod rounds;
mod serve;
pub(crate) mod sizes;
mod tcp;
mod transport;
pub(crate) mod way;

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use uldma::measure::Clock;
use uldma::{Device, Spin};

use self::names::{Names, QUANTILES};
use self::order::{Kind, What};
use self::rounds::{Samples, Session, Transport};
use self::sizes::{SHORTEST, SIZES};
use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{RemoteProcess, Request};
use crate::timing::{throughput, times};

pub(crate) use self::serve::serve;

/// Sizes of a brief run, and of one about rings.
const BRIEF: [&str; 4] = [SHORTEST, SMALL, MIDDLE, LARGE];
const OF_RINGS: [&str; 2] = [SHORTEST, MIDDLE];
/// Of messages owner stream by ring is to be as fast as memcpy.
const MIDDLE: &str = "64k";
/// Of messages owner interrupts are counted by message, and of those by bytes.
const SMALL: &str = "4k";
const LARGE: &str = "256k";

/// Sizes that take TCP seconds.
const SLOW: [&str; 2] = ["4m", "16m"];

/// Options of `uldma-bench link`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Few sizes only, and no copies to compare with
    #[arg(long)]
    brief: bool,
    /// Rings only, of two sizes, beside bare words, copies into the window and TCP
    #[arg(long, conflicts_with = "brief")]
    rings: bool,
    /// Messages of these sizes only, such as 8, 64k or 1m
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size)]
    sizes: Vec<&'static str>,
    /// These transports only
    #[arg(long, value_name = "TRANSPORT,...", value_delimiter = ',')]
    transports: Vec<Kind>,
    /// Append a word to the names of all figures: how this run is special
    #[arg(long, value_name = "WORD")]
    suffix: Option<String>,
}

impl Options {
    fn scope(&self) -> Scope {
        match (self.brief, self.rings) {
            (_, true) => Scope::Rings,
            (true, false) => Scope::Brief,
            (false, false) => Scope::All,
        }
    }

    fn has_size(&self, size: &'static str) -> bool {
        let listed = self.sizes.is_empty() || self.sizes.contains(&size);
        listed && self.scope().has_size(size)
    }

    /// Returns the transports to measure with messages of this size.
    fn kinds(&self, size: &str) -> Vec<Kind> {
        let mut kinds = kinds(size, self.scope());
        kinds.retain(|kind| self.transports.is_empty() || self.transports.contains(kind));
        kinds
    }
}

/// Parses the name of a size.
fn size(text: &str) -> Result<&'static str, String> {
    let names = SIZES.map(|(name, _)| name);
    let found = names.into_iter().find(|name| *name == text);
    found.ok_or_else(|| format!("not one of {}", names.join(", ")))
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Brief,
    Rings,
}

impl Scope {
    fn has_size(self, size: &str) -> bool {
        match self {
            Scope::All => true,
            Scope::Brief => BRIEF.contains(&size),
            Scope::Rings => OF_RINGS.contains(&size),
        }
    }
}

/// Measures with the help of a `serve` at the peer.
pub(crate) fn run(
    number: u32,
    port: u32,
    timeout: Duration,
    options: &Options,
) -> Result<Figures, Failure> {
    let device = Device::open(number)?;
    let suffix = options.suffix.as_ref().map(|word| format!(".{word}"));
    let names = Names {
        prefix: names::prefix(device.query()?.backend),
        suffix: suffix.as_deref().unwrap_or_default(),
    };
    let mut peer = RemoteProcess::meet(&device, port, timeout)?;
    // A wake-up of this process would be counted.
    peer.channel.set_spin(Spin::MEASURE);
    peer.ask(&Request::Link)?;
    let clock = Clock::start();
    let mut session = Session::new(&mut peer, &device, &clock);
    let mut figures = Figures::default();
    let mut absent = BTreeSet::new();
    let scope = options.scope();
    for (size, bytes) in SIZES {
        if !options.has_size(size) {
            continue;
        }
        let mut kinds = options.kinds(size);
        kinds.retain(|kind| !absent.contains(kind));
        for (kind, samples) in measure(&mut session, &kinds, (size, bytes), scope, &mut absent)? {
            add(&mut figures, names, kind, (size, bytes), &samples, &clock);
        }
    }
    session.end()?;
    peer.quit()?;
    Ok(figures)
}

/// Returns the transports to measure with messages of this size.
fn kinds(size: &str, scope: Scope) -> Vec<Kind> {
    use Kind::{
        Carried, Character, Conventional, Engine, Memcpy, Polling, Pull, Push, Raw, Ring, Tcp,
        Unpinned,
    };
    let mut kinds = vec![Ring, Memcpy];
    if scope != Scope::Rings {
        kinds.extend([Engine, Push, Pull]);
    }
    if !SLOW.contains(&size) {
        kinds.push(Tcp);
        if scope == Scope::All {
            kinds.push(Character);
        }
    }
    if size == SHORTEST {
        kinds.push(Raw);
    }
    if size == SHORTEST || size == MIDDLE {
        kinds.push(Polling);
    }
    if scope == Scope::All {
        kinds.extend([Conventional, Carried]);
        if size == LARGE {
            kinds.push(Unpinned);
        }
    }
    kinds
}

fn makes_round_trips(kind: Kind, size: &str, scope: Scope) -> bool {
    match kind {
        Kind::Raw => true,
        Kind::Polling => size == SHORTEST,
        Kind::Ring | Kind::Push | Kind::Pull | Kind::Carried | Kind::Tcp | Kind::Character => {
            scope == Scope::All || size == SHORTEST
        }
        Kind::Memcpy | Kind::Engine | Kind::Unpinned | Kind::Conventional | Kind::Messages(_) => {
            false
        }
    }
}

fn makes_streams(kind: Kind, size: &str, scope: Scope) -> bool {
    kind != Kind::Raw && (scope == Scope::All || size != SHORTEST)
}

/// Measures all transports with one size, and reports those that are absent.
fn measure(
    session: &mut Session<'_>,
    kinds: &[Kind],
    (size, bytes): (&str, usize),
    scope: Scope,
    absent: &mut BTreeSet<Kind>,
) -> Result<Vec<(Kind, Samples)>, Failure> {
    let mut all: Vec<Transport> = Vec::new();
    for &kind in kinds {
        match session.open(kind, bytes) {
            Ok(transport) => all.push(transport),
            Err(failure) => {
                let transport = kind.title();
                eprintln!("uldma-bench: no figures of {transport} from {size} bytes on: {failure}");
                absent.insert(kind);
            }
        }
    }
    for (what, takes_part) in [
        (What::RoundTrips, makes_round_trips as fn(_, _, _) -> _),
        (What::Stream, makes_streams),
    ] {
        let mut some: Vec<&mut Transport> = all
            .iter_mut()
            .filter(|transport| takes_part(transport.kind, size, scope))
            .collect();
        session.measure(&mut some, what, size == SHORTEST)?;
    }
    all.into_iter()
        .map(|transport| session.close(transport))
        .collect()
}

/// Adds the figures of one transport with one size.
fn add(
    figures: &mut Figures,
    names: Names<'_>,
    kind: Kind,
    (size, bytes): (&str, usize),
    samples: &Samples,
    clock: &Clock,
) {
    let (transport, mode) = (kind.name(), kind.suffix());
    if !samples.trips.is_empty() {
        let trips = times(clock, &samples.trips, 1);
        for (quantile, part) in QUANTILES {
            let name = names.rtt(transport, size, quantile, mode);
            figures.add(name, trips.quantile(part), "ns");
        }
    }
    if !samples.streams.is_empty() {
        let median = times(clock, &samples.streams, 1).median();
        let value = throughput(u64::from(samples.count) * bytes as u64, median);
        figures.add(names.stream(transport, size, mode), value, "MB/s");
    }
    for (what, value) in counts(kind, (size, bytes), samples) {
        figures.add(names.of(&format!("{what}{mode}")), value, "count");
    }
}

/// Returns the counts, by message and by bytes.
fn counts(kind: Kind, (size, bytes): (&str, usize), samples: &Samples) -> Vec<(String, f64)> {
    let transport = kind.name();
    // The link counts for connections.
    let owner = match kind {
        Kind::Push | Kind::Pull | Kind::Unpinned | Kind::Carried => String::new(),
        _ => format!("{transport}."),
    };
    let (tripped, streamed) = (samples.tripped, samples.streamed);
    let mut found = Vec::new();
    if matches!(kind, Kind::Raw | Kind::Memcpy) {
        return found;
    }
    let by = |count: u64, base: f64| count as f64 / base;
    if size == SHORTEST && tripped.messages > 0 {
        let (counters, base) = (tripped.counters, tripped.messages as f64 / 2.0);
        found.extend([
            (
                format!("{owner}irqs_per_round_trip"),
                by(interrupts(kind, samples).0, base),
            ),
            (
                format!("{owner}doorbells_per_round_trip"),
                by(counters.doorbells, base),
            ),
            (
                format!("{transport}.calls_per_round_trip"),
                by(counters.calls, base),
            ),
            (
                format!("{transport}.switches_per_round_trip"),
                by(counters.switches, base),
            ),
        ]);
    }
    if streamed.messages == 0 {
        return found;
    }
    let (counters, messages) = (streamed.counters, streamed.messages as f64);
    let (irqs, megabytes) = (interrupts(kind, samples).1, messages * bytes as f64 / 1e6);
    if size == SMALL {
        found.extend([
            (format!("{owner}irqs_per_message"), by(irqs, messages)),
            (
                format!("{owner}doorbells_per_message"),
                by(counters.doorbells, messages),
            ),
            (
                format!("{transport}.calls_per_message"),
                by(counters.calls, messages),
            ),
            (
                format!("{transport}.switches_per_message"),
                by(counters.switches, messages),
            ),
        ]);
    }
    if size == LARGE {
        found.push((format!("{owner}irqs_per_mb"), by(irqs, megabytes)));
        if counters.copied > 0 {
            let copies = by(counters.copied, messages * bytes as f64);
            found.extend([
                (format!("{transport}.copies"), copies),
                (
                    format!("{transport}.event_irqs_per_mb"),
                    by(counters.events, megabytes),
                ),
                (
                    format!("{transport}.control_messages_per_mb"),
                    by(counters.messages, megabytes),
                ),
                (
                    format!("{transport}.polls_per_mb"),
                    by(counters.polls, megabytes),
                ),
                (
                    format!("{transport}.locks_per_mb"),
                    by(counters.locks, megabytes),
                ),
                (
                    format!("{transport}.switches_per_mb"),
                    by(counters.switches, megabytes),
                ),
                (
                    format!("{transport}.calls_per_mb"),
                    by(counters.calls, megabytes),
                ),
                (
                    format!("{owner}doorbells_per_mb"),
                    by(counters.doorbells, megabytes),
                ),
            ]);
        }
    }
    found
}

/// Returns the transport's interrupts of the round trips and of the streams.
fn interrupts(kind: Kind, samples: &Samples) -> (u64, u64) {
    let of = |counters: counters::Counters| match kind {
        Kind::Tcp => counters.network,
        Kind::Engine => counters.events,
        Kind::Conventional => counters.events + counters.interrupts,
        _ => counters.interrupts,
    };
    (of(samples.tripped.counters), of(samples.streamed.counters))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_interrupts_are_counted_by_bytes_and_messages() {
        let counters = counters::Counters {
            interrupts: 4,
            network: 9,
            copied: 8 * (256 << 10),
            ..Default::default()
        };
        let mut samples = Samples::default();
        samples.streamed.messages = 8;
        samples.streamed.counters = counters;
        let found = counts(Kind::Pull, (LARGE, 256 << 10), &samples);
        let of = |name: &str| {
            found
                .iter()
                .find(|(other, _)| other == name)
                .map(|found| found.1)
        };
        assert_eq!(of("conn.copies"), Some(1.0));
        assert!((of("irqs_per_mb").unwrap() - 4.0 / 2.097_152).abs() < 1e-6);
        assert_eq!(of("irqs_per_message"), None);
        let found = counts(Kind::Tcp, (SMALL, 4096), &samples);
        assert_eq!(found[0], ("tcp.irqs_per_message".to_owned(), 9.0 / 8.0));
        assert!(counts(Kind::Raw, (LARGE, 1), &samples).is_empty());
    }

    #[test]
    fn a_brief_run_has_what_the_aims_are_about() {
        assert!(kinds(SHORTEST, Scope::Brief).contains(&Kind::Raw));
        assert!(kinds(LARGE, Scope::All).contains(&Kind::Unpinned));
        assert!(makes_round_trips(Kind::Push, SHORTEST, Scope::Brief));
        assert!(!makes_round_trips(Kind::Push, LARGE, Scope::Brief));
        assert!(makes_streams(Kind::Ring, MIDDLE, Scope::Brief));
        for size in OF_RINGS {
            assert!(
                Scope::Rings.has_size(size) && !kinds(size, Scope::Rings).contains(&Kind::Push)
            );
        }
        let is_size = |name: &str| SIZES.iter().any(|(size, _)| *size == name);
        assert!(BRIEF.into_iter().chain(OF_RINGS).all(is_size));
    }

    #[test]
    fn sizes_and_transports_can_be_listed() {
        assert_eq!((size("1m"), size("1").is_err()), (Ok("1m"), true));
        let options = Options {
            brief: false,
            rings: false,
            sizes: vec![LARGE],
            transports: vec![Kind::Push, Kind::Engine],
            suffix: None,
        };
        assert!(options.has_size(LARGE) && !options.has_size(SMALL));
        assert_eq!(options.kinds(LARGE), [Kind::Engine, Kind::Push]);
    }
}
