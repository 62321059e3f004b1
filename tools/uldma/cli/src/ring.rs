// SPDX-License-Identifier: MIT OR Apache-2.0

//! Carries data through a ring, from `connect` to `listen`.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use uldma::{Channel, Error, Link};

use crate::args::Common;
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::Progress;
use crate::schema::SCHEMA_VERSION;

/// Time of one sleep for data: practically unlimited.
const FOREVER: Duration = Duration::from_secs(86_400);

/// The report of a ring.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    ring: bool,
    bytes_sent: u64,
    bytes_received: u64,
    seconds: f64,
    mb_per_s: f64,
    /// Records of the ring.
    messages: u64,
    /// System calls by the library during the transfer.
    syscalls: u64,
}

impl Report {
    fn new(start: Instant, calls: u64, messages: u64) -> Self {
        Self {
            schema_version: SCHEMA_VERSION,
            ring: true,
            seconds: start.elapsed().as_secs_f64(),
            messages,
            syscalls: uldma::calls() - calls,
            ..Self::default()
        }
    }
}

/// Prints the report to standard error, if it is requested.
pub(crate) fn print(common: &Common, mut report: Report) -> Result<()> {
    let bytes = report.bytes_sent + report.bytes_received;
    report.mb_per_s = output::megabytes_per_second(bytes, report.seconds);
    output::print_beside_data(common.json, &report)
}

/// Sends all of `input` in messages of at most `most` bytes, then an empty one, and waits until the other
/// side has taken that.
pub(crate) fn send(
    channel: &mut Channel<impl Link>,
    mut input: impl Read,
    most: usize,
    timeout: Duration,
    progress: &Progress,
) -> Result<Report> {
    let (start, calls) = (Instant::now(), uldma::calls());
    let mut bytes = vec![0; most.min(channel.max_message())];
    let (mut sent, mut messages) = (0, 0);
    loop {
        let length = match input.read(&mut bytes) {
            Ok(length) => length,
            Err(error) => return Err(Failure::io("standard input", &error)),
        };
        channel.send(&bytes[..length], FOREVER).map_err(ended)?;
        if length == 0 {
            break;
        }
        sent += length as u64;
        progress.inc(length);
        messages += 1;
    }
    channel.wait_closed(timeout)?;
    progress.finish();
    let report = Report::new(start, calls, messages);
    Ok(Report {
        bytes_sent: sent,
        ..report
    })
}

/// Writes all received data to `output`, until the empty message.
pub(crate) fn receive(
    channel: &mut Channel<impl Link>,
    mut output: impl Write,
    progress: &Progress,
) -> Result<Report> {
    let (start, calls) = (Instant::now(), uldma::calls());
    let mut bytes = vec![0; channel.max_message()];
    let (mut received, mut messages) = (0, 0);
    loop {
        let length = channel.receive(&mut bytes, FOREVER).map_err(ended)?;
        if length == 0 {
            break;
        }
        received += length as u64;
        messages += 1;
        output
            .write_all(&bytes[..length])
            .map_err(|error| Failure::output(&error))?;
        progress.inc(length);
    }
    progress.finish();
    let report = Report::new(start, calls, messages);
    Ok(Report {
        bytes_received: received,
        ..report
    })
}

/// Builds the failure for a peer that ended too early.
fn ended(error: Error) -> Failure {
    if matches!(error, Error::Closed | Error::LinkDown) || error.is_reset() {
        return Failure::new(
            Kind::Failed,
            "the other side went away before the end of the data",
        );
    }
    error.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::progress::Style;

    const CAPACITY: u64 = 4096;
    const TIMEOUT: Duration = Duration::from_secs(20);

    fn quiet() -> Progress {
        Progress::new(Style::Hidden, "", None)
    }

    fn channels() -> [Channel<uldma::loopback::Loopback>; 2] {
        let (left, right) = uldma::loopback::pair(CAPACITY);
        [left, right].map(|link| Channel::over(link, CAPACITY).unwrap())
    }

    #[test]
    fn all_of_a_file_arrives() {
        let [mut left, mut right] = channels();
        let data: Vec<u8> = (0..100_000u32).map(|byte| (byte / 7) as u8).collect();
        let arrived = std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut arrived = Vec::new();
                let report = receive(&mut right, &mut arrived, &quiet()).unwrap();
                assert_eq!(report.bytes_received, 100_000);
                arrived
            });
            let report = send(&mut left, &data[..], 1000, TIMEOUT, &quiet()).unwrap();
            assert_eq!((report.bytes_sent, report.messages), (100_000, 100));
            receiver.join().unwrap()
        });
        assert_eq!(arrived, data);
    }

    #[test]
    fn an_early_end_is_a_failure() {
        let [mut left, mut right] = channels();
        left.send(b"half", TIMEOUT).unwrap();
        drop(left);
        let mut arrived = Vec::new();
        let failure = receive(&mut right, &mut arrived, &quiet()).unwrap_err();
        assert_eq!(
            (arrived.as_slice(), failure.kind),
            (&b"half"[..], Kind::Failed)
        );
    }
}
