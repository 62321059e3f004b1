// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma ping`: measures round trips of messages, and those of a bare cache line.

use std::time::Duration;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};
use uldma::connection::Link;
use uldma::measure::Clock;
use uldma::{Channel, ChannelListener, Device, Error};

use crate::args::{Common, Ping};
use crate::failure::{complain, Failure, Kind, Result};
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// Bytes of each ring.
const CAPACITY: u64 = 64 * 1024;
/// Peers that can wait for their turn.
const BACKLOG: u32 = 8;
/// Round trips that are not measured, to warm up.
const WARM_UP: u32 = 200;
/// Round trips from which the time of many is estimated.
const FEW: u32 = 20;
/// Approximate time of the round trips of each kind. Where both nodes share one processor, each of
/// them waits for the host's scheduler.
const TIME: Duration = Duration::from_secs(4);
/// Time before a server that lacks a file or memory looks for the next peer.
const PAUSE: Duration = Duration::from_millis(100);
const VERSION: u32 = 1;

/// First message of the measuring side.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Request {
    version: u32,
    /// Bare round trips, before and after.
    raw: u32,
    /// Round trips of messages.
    count: u32,
    /// Bytes of a message.
    size: u32,
}

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    count: u32,
    size: u64,
    min_ns: f64,
    p50_ns: f64,
    p99_ns: f64,
    raw_min_ns: f64,
    raw_p50_ns: f64,
    raw_p99_ns: f64,
    /// p50 of messages divided by p50 of bare words.
    ratio: f64,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Ping) -> Result<()> {
    let device = common.open()?;
    if args.serve {
        return serve_sessions(&device, args, common.timeout);
    }
    let (peer, options) = (args.node.peer(), common.connect());
    let mut channel = Channel::connect(&device, peer, args.port, CAPACITY, options)?;
    let report = ask(&mut channel, args, common.timeout)?;
    output::print(common.json, &report, words)
}

/// Answers peers one after the other.
fn serve_sessions(device: &Device, args: &Ping, timeout: Duration) -> Result<()> {
    let listener = ChannelListener::new(device, args.port, BACKLOG, CAPACITY)?;
    for _ in 0..args.sessions {
        let (mut channel, _) = listener.accept(timeout)?;
        serve(&mut channel, timeout)?;
    }
    if args.sessions == 0 {
        loop {
            serve_whatever_comes(&listener, timeout)?;
        }
    }
    Ok(())
}

/// Answers the next peer of unlimited ones: it need not arrive in time, its session is its own, and what
/// this process or the device lacks may be there for a later one.
fn serve_whatever_comes(listener: &ChannelListener, timeout: Duration) -> Result<()> {
    let failure = match listener.accept(timeout) {
        Ok((mut channel, node)) => {
            let failed = serve(&mut channel, timeout).err();
            failed
                .map(|failure| format!("the session of node {node} has ended: {}", failure.message))
        }
        Err(Error::Timeout { .. }) => None,
        Err(error) if is_shortage(&error) => {
            // Nothing tells when others have given up what is missing.
            std::thread::sleep(PAUSE);
            Some(error.to_string())
        }
        Err(error) => return Err(error.into()),
    };
    if let Some(failure) = failure {
        complain(format!("uldma: {failure}"));
    }
    Ok(())
}

fn is_shortage(error: &Error) -> bool {
    let passing = [
        Errno::EMFILE,
        Errno::ENFILE,
        Errno::ENOMEM,
        Errno::ENOSPC,
        Errno::EDQUOT,
    ];
    error.errno().is_some_and(|errno| passing.contains(&errno))
}

/// Requests round trips and measures them.
fn ask(channel: &mut Channel<impl Link>, args: &Ping, timeout: Duration) -> Result<Report> {
    let fits = u32::try_from(args.size)
        .ok()
        .filter(|&size| size as usize <= channel.max_message());
    let Some(size) = fits.filter(|_| args.count > 0) else {
        let most = channel.max_message();
        let text = format!("--count must not be zero and --size at most {most}");
        return Err(Failure::new(Kind::Failed, text));
    };
    let few = measure(
        channel,
        FEW.min(args.count),
        FEW.min(args.count),
        size,
        timeout,
    )?;
    let (raw, count) = (few.raw.fitting(args.count), few.ring.fitting(args.count));
    let all = measure(channel, raw, count, size, timeout)?;
    let (p50, raw_p50) = (all.ring.quantile(0.5), all.raw.quantile(0.5));
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        count,
        size: args.size,
        min_ns: all.ring.quantile(0.0),
        p50_ns: p50,
        p99_ns: all.ring.quantile(0.99),
        raw_min_ns: all.raw.quantile(0.0),
        raw_p50_ns: raw_p50,
        raw_p99_ns: all.raw.quantile(0.99),
        ratio: p50 / raw_p50.max(1e-9),
    })
}

/// Times of round trips in nanoseconds, the shortest first.
struct Samples(Vec<f64>);

impl Samples {
    fn new(ticks: &[u64], rate: f64) -> Self {
        let mut times: Vec<f64> = ticks.iter().map(|&ticks| ticks as f64 * rate).collect();
        times.sort_unstable_by(f64::total_cmp);
        Self(times)
    }

    fn quantile(&self, part: f64) -> f64 {
        let index = ((self.0.len() - 1) as f64 * part).round() as usize;
        self.0[index]
    }

    /// Returns how many of them fit into [`TIME`], at most `most`.
    fn fitting(&self, most: u32) -> u32 {
        let mean = self.0.iter().sum::<f64>() / self.0.len() as f64;
        let fitting = TIME.as_nanos() as f64 / mean.max(1.0);
        most.min((fitting as u32).max(1))
    }
}

/// Round trips of both kinds.
struct Measured {
    raw: Samples,
    ring: Samples,
}

fn measure(
    channel: &mut Channel<impl Link>,
    raw: u32,
    count: u32,
    size: u32,
    timeout: Duration,
) -> Result<Measured> {
    let request = Request {
        version: VERSION,
        raw,
        count,
        size,
    };
    let text = serde_json::to_vec(&request).map_err(|error| Failure::io("JSON", &error.into()))?;
    channel.send(&text, timeout)?;
    let mut answer = [0; 64];
    let length = channel.receive(&mut answer, timeout)?;
    if &answer[..length] != b"ok" {
        let reason = String::from_utf8_lossy(&answer[..length]).into_owned();
        return Err(Failure::new(
            Kind::Peer,
            format!("the peer failed: {reason}"),
        ));
    }

    let clock = Clock::start();
    let message = vec![0x5a; size as usize];
    channel.raw_ping(WARM_UP, &clock, timeout)?;
    channel.ping(&message, WARM_UP, &clock, timeout)?;
    let mut raw = channel.raw_ping(request.raw, &clock, timeout)?;
    let ring = channel.ping(&message, request.count, &clock, timeout)?;
    raw.extend(channel.raw_ping(request.raw, &clock, timeout)?);

    let rate = clock.rate();
    Ok(Measured {
        raw: Samples::new(&raw, rate),
        ring: Samples::new(&ring, rate),
    })
}

/// Answers a peer until it closes.
fn serve(channel: &mut Channel<impl Link>, timeout: Duration) -> Result<()> {
    let mut text = [0; 512];
    loop {
        let length = match channel.receive(&mut text, timeout) {
            Ok(length) => length,
            Err(Error::Closed) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let most = channel.max_message();
        let request = serde_json::from_slice::<Request>(&text[..length])
            .ok()
            .filter(|request| request.version == VERSION && request.size as usize <= most);
        let Some(request) = request else {
            channel.send(b"not a request of this version", timeout)?;
            continue;
        };
        channel.send(b"ok", timeout)?;
        let size = request.size as usize;
        channel.raw_pong(WARM_UP, timeout)?;
        channel.pong(size, WARM_UP, timeout)?;
        channel.raw_pong(request.raw, timeout)?;
        channel.pong(size, request.count, timeout)?;
        channel.raw_pong(request.raw, timeout)?;
    }
}

fn words(report: &Report) -> String {
    format!(
        "{} round trips of {} bytes: min {:.0} ns, median {:.0} ns, p99 {:.0} ns\n\
         bare cache line:           min {:.0} ns, median {:.0} ns, p99 {:.0} ns\n\
         ratio of the medians: {:.2}",
        report.count,
        report.size,
        report.min_ns,
        report.p50_ns,
        report.p99_ns,
        report.raw_min_ns,
        report.raw_p50_ns,
        report.raw_p99_ns,
        report.ratio,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    const TIMEOUT: Duration = Duration::from_secs(20);

    fn args(arguments: &[&str]) -> Ping {
        let all = [&["uldma", "ping"], arguments].concat();
        match crate::args::Cli::parse_from(all).command {
            crate::args::Command::Ping(args) => args,
            _ => unreachable!(),
        }
    }

    #[test]
    fn both_sides_agree() {
        let (left, right) = uldma::connection::loopback::pair(CAPACITY);
        let peer = std::thread::spawn(move || {
            serve(&mut Channel::over(right, CAPACITY).unwrap(), TIMEOUT)
        });
        let mut channel = Channel::over(left, CAPACITY).unwrap();
        let report = ask(
            &mut channel,
            &args(&["--count", "50", "--size", "100"]),
            TIMEOUT,
        )
        .unwrap();
        assert!(report.min_ns <= report.p50_ns && report.p50_ns <= report.p99_ns);
        assert!(report.raw_min_ns > 0.0 && report.ratio > 0.0);
        drop(channel);
        peer.join().unwrap().unwrap();
    }

    #[test]
    fn nonsense_is_answered_and_survived() {
        let (left, right) = uldma::connection::loopback::pair(CAPACITY);
        let peer = std::thread::spawn(move || {
            serve(&mut Channel::over(right, CAPACITY).unwrap(), TIMEOUT)
        });
        let mut channel = Channel::over(left, CAPACITY).unwrap();
        let mut answer = [0; 64];
        for request in [
            &b"bytes"[..],
            br#"{"version":9,"raw":1,"count":1,"size":1}"#,
        ] {
            channel.send(request, TIMEOUT).unwrap();
            let length = channel.receive(&mut answer, TIMEOUT).unwrap();
            assert!(answer[..length].starts_with(b"not a request"));
        }
        drop(channel);
        peer.join().unwrap().unwrap();
    }
}
