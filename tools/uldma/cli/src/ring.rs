// SPDX-License-Identifier: MIT OR Apache-2.0

//! Carries data through a ring, from `connect` to `listen`.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use serde::Serialize;
use uldma::connection::Link;
use uldma::{Channel, Error};

use crate::args::Common;
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::Progress;
use crate::schema::SCHEMA_VERSION;

/// Time of one sleep for data: practically unlimited.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Most numbers that are read at a time.
const NUMBERS: u32 = 1024;

/// The report of a ring.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    ring: bool,
    bytes_sent: u64,
    /// Of these, those that the program at the other side has taken.
    bytes_taken: u64,
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
            syscalls: uldma::measure::calls() - calls,
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
/// side has taken all: it tells by messages of the number of bytes, and closes.
pub(crate) fn send(
    channel: &mut Channel<impl Link>,
    input: impl Read,
    most: usize,
    timeout: Duration,
    progress: &Progress,
) -> Result<Report> {
    let (start, calls) = (Instant::now(), uldma::measure::calls());
    let mut sent = Sent::default();
    let result = sent
        .send_input(channel, input, most, progress)
        .and_then(|()| sent.wait(channel, timeout));
    progress.finish();
    // The last number may have come before the end.
    let taken = sent.look(channel);
    if let Err(failure) = result.and(taken) {
        return Err(failure.not_taken(sent.taken, sent.bytes));
    }
    let report = Report::new(start, calls, sent.messages);
    Ok(Report {
        bytes_sent: sent.bytes,
        bytes_taken: sent.taken,
        ..report
    })
}

/// What was sent.
#[derive(Debug, Default)]
struct Sent {
    /// Bytes that were read from the input.
    bytes: u64,
    /// Of these, how many the other side has taken.
    taken: u64,
    messages: u64,
}

impl Sent {
    fn send_input(
        &mut self,
        channel: &mut Channel<impl Link>,
        mut input: impl Read,
        most: usize,
        progress: &Progress,
    ) -> Result<()> {
        let mut bytes = vec![0; most.min(channel.max_message())];
        loop {
            let length = input
                .read(&mut bytes)
                .map_err(|error| Failure::io("standard input", &error))?;
            self.bytes += length as u64;
            self.look(channel)?;
            channel.send(&bytes[..length], FOREVER).map_err(ended)?;
            if length == 0 {
                return Ok(());
            }
            self.messages += 1;
            progress.inc(length);
        }
    }

    /// Reads the numbers that have come.
    fn look(&mut self, channel: &mut Channel<impl Link>) -> Result<()> {
        let mut number = [0; 8];
        // A peer that sends without end must not keep this side here.
        for _ in 0..NUMBERS {
            match channel.try_receive(&mut number) {
                Ok(Some(length)) => self.note(number, length)?,
                // The next call that waits returns the error.
                Ok(None) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Reads numbers until the other side has closed, and fails unless it has taken all.
    fn wait(&mut self, channel: &mut Channel<impl Link>, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut number = [0; 8];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match channel.receive(&mut number, left) {
                Ok(length) => self.note(number, length)?,
                Err(error) if has_ended(&error) && self.taken == self.bytes => return Ok(()),
                Err(error) => return Err(ended(error)),
            }
            // A peer that sends without end must not keep this side here.
            if left.is_zero() {
                let text = "the other side has not closed in time";
                return Err(Failure::new(Kind::Timeout, text));
            }
        }
    }

    fn note(&mut self, number: [u8; 8], length: usize) -> Result<()> {
        let taken = u64::from_le_bytes(number);
        if length != number.len() || taken > self.bytes {
            let text = "the other side tells of more than was sent";
            return Err(Failure::new(Kind::Peer, text));
        }
        self.taken = taken;
        Ok(())
    }
}

/// Writes all received data to `output`, until the empty message, and tells the sender how much it was.
pub(crate) fn receive(
    channel: &mut Channel<impl Link>,
    mut output: impl Write,
    timeout: Duration,
    progress: &Progress,
) -> Result<Report> {
    let (start, calls) = (Instant::now(), uldma::measure::calls());
    let mut bytes = vec![0; channel.max_received()];
    let (mut received, mut messages) = (0_u64, 0);
    loop {
        let length = channel.receive(&mut bytes, FOREVER).map_err(ended)?;
        if length == 0 {
            break;
        }
        output
            .write_all(&bytes[..length])
            .map_err(|error| Failure::output(&error))?;
        received += length as u64;
        messages += 1;
        // A sender that reads none now gets the last one.
        let _ = channel.try_send(&received.to_le_bytes());
        progress.inc(length);
    }
    progress.finish();
    // A sender that has ended does not need it.
    let _ = channel.send(&received.to_le_bytes(), timeout);
    let report = Report::new(start, calls, messages);
    Ok(Report {
        bytes_received: received,
        ..report
    })
}

fn has_ended(error: &Error) -> bool {
    matches!(error, Error::Closed | Error::LinkDown) || error.is_reset()
}

/// Builds the failure for a peer that ended too early.
fn ended(error: Error) -> Failure {
    if has_ended(&error) {
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

    fn channels() -> [Channel<uldma::connection::loopback::Loopback>; 2] {
        let (left, right) = uldma::connection::loopback::pair(CAPACITY);
        [left, right].map(|link| Channel::over(link, CAPACITY).unwrap())
    }

    #[test]
    fn all_of_a_file_arrives() {
        let [mut left, mut right] = channels();
        let data: Vec<u8> = (0..100_000u32).map(|byte| (byte / 7) as u8).collect();
        let arrived = std::thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                let mut arrived = Vec::new();
                let report = receive(&mut right, &mut arrived, TIMEOUT, &quiet()).unwrap();
                assert_eq!(report.bytes_received, 100_000);
                arrived
            });
            let report = send(&mut left, &data[..], 1000, TIMEOUT, &quiet()).unwrap();
            assert_eq!((report.bytes_sent, report.messages), (100_000, 100));
            assert_eq!(report.bytes_taken, 100_000);
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
        let failure = receive(&mut right, &mut arrived, TIMEOUT, &quiet()).unwrap_err();
        assert_eq!(
            (arrived.as_slice(), failure.kind),
            (&b"half"[..], Kind::Failed)
        );
    }

    /// An output that has room for so many bytes.
    struct Room(usize);

    impl Write for Room {
        fn write(&mut self, source: &[u8]) -> std::io::Result<usize> {
            let length = source.len().min(self.0);
            self.0 -= length;
            Ok(length)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_a_receiver_has_not_written_is_not_sent() {
        for (bytes, room) in [(8, 3), (100_000, 70_000), (1000, 0)] {
            let [mut left, mut right] = channels();
            let data = vec![7; bytes];
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    receive(&mut right, Room(room), TIMEOUT, &quiet()).unwrap_err();
                });
                let failure = send(&mut left, &data[..], 1000, TIMEOUT, &quiet()).unwrap_err();
                let taken = (room / 1000 * 1000) as u64;
                assert_eq!(failure.kind, Kind::NotTaken(Some(taken)), "{failure:?}");
                assert_eq!(failure.kind.exit_code(), 1);
            });
        }
    }
}
