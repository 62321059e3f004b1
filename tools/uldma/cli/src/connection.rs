// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data between a connection and standard input and output.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use uldma::connection::ConnectionInfo;
use uldma::{Connection, Error, Receiving, Sending, StreamOptions};

use crate::args::{Common, StreamArgs};
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::{Progress, Style};
use crate::schema::SCHEMA_VERSION;
use crate::standard;

/// Time that reading has for what standard input has when the connection has ended.
const LAST_INPUT: Duration = Duration::from_secs(10);

/// Action at the end of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// Disconnect, once the program at the other side has taken all.
    Disconnect,
    /// Nothing: the peer disconnects.
    Stay,
}

/// The report of a connection, from the kernel's counters.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    schema_version: u32,
    node: u32,
    port: u32,
    pull: bool,
    engine: bool,
    window: bool,
    /// The devices have matched the stream, without system calls.
    matched: bool,
    bytes_sent: u64,
    /// Of the bytes sent, those that the program at the other side has taken.
    bytes_taken: u64,
    bytes_received: u64,
    /// From the connection until its end.
    seconds: f64,
    mb_per_s: f64,
    /// Bytes that this node has copied.
    copied: u64,
    /// Copies per byte of both directions; the sum of both sides' is the number of copies.
    copies: Option<f64>,
    /// Control messages that this side has sent.
    messages: u64,
    /// Times that memory was pinned.
    locks: u64,
}

impl Report {
    fn new(info: &ConnectionInfo, taken: u64, seconds: f64) -> Self {
        let bytes = info.sent + info.received;
        Self {
            schema_version: SCHEMA_VERSION,
            node: info.node,
            port: info.port,
            pull: info.pull,
            engine: info.engine,
            window: info.window,
            matched: info.matched,
            bytes_sent: info.sent,
            bytes_taken: taken,
            bytes_received: info.received,
            seconds,
            mb_per_s: output::megabytes_per_second(bytes, seconds),
            copied: info.copied,
            copies: (bytes > 0).then(|| info.copied as f64 / bytes as f64),
            messages: info.messages,
            locks: info.locks,
        }
    }
}

/// Prints the report to standard error, if it is requested.
pub(crate) fn print(common: &Common, report: &Report) -> Result<()> {
    output::print_beside_data(common.json, report)
}

/// Returns the style of the progress display. It must not disturb the text that a user types and
/// reads.
pub(crate) fn style(common: &Common, carry: &StreamArgs) -> Style {
    if standard::are_terminals() && !carry.progress.progress {
        return Style::Hidden;
    }
    Style::new(common, &carry.progress)
}

/// Returns the progress of standard input if its size is known, otherwise of both directions.
pub(crate) fn progress(style: Style) -> Progress {
    match bytes_left(io::stdin()) {
        Some(bytes) => Progress::new(style, "send", Some(bytes)),
        None => Progress::new(style, "carry", None),
    }
}

/// Returns the number of bytes up to the end of a file; none if it is no regular file, or empty.
fn bytes_left(file: impl AsFd) -> Option<u64> {
    let mut file = File::from(file.as_fd().try_clone_to_owned().ok()?);
    let metadata = file.metadata().ok().filter(Metadata::is_file)?;
    let left = metadata.len().checked_sub(file.stream_position().ok()?);
    left.filter(|&bytes| bytes > 0)
}

/// The end of sending.
struct Sent {
    /// Bytes that were read from standard input.
    bytes: u64,
    /// Of these, how many the program at the other side has taken.
    taken: u64,
    /// Standard input has ended.
    ended: bool,
    result: Result<()>,
    /// The counters, before this side disconnects.
    info: Option<ConnectionInfo>,
}

/// The reason for which a direction has failed.
enum Broken {
    /// Standard input cannot be read, or standard output not be written.
    Here(Failure),
    /// The connection has failed.
    Connection(Failure),
}

/// Carries data in both directions until the connection ends.
pub(crate) fn carry(
    connection: Connection,
    options: StreamOptions,
    at_end: AtEnd,
    style: Style,
) -> Result<Report> {
    let progress = Arc::new(progress(style));
    let start = Instant::now();
    connection.make_receipts()?;
    let (mut receiving, mut sending) = connection.into_stream(options)?.split();
    let (stop, stopper) =
        nix::unistd::pipe().map_err(|errno| Failure::io("make a pipe", &errno.into()))?;
    let (sender, sent) = mpsc::channel();
    let of_sender = Arc::clone(&progress);
    // Held while received bytes are written, and told to be taken.
    let writing = Arc::new(Mutex::new(()));
    let written = Arc::clone(&writing);
    thread::spawn(move || {
        let sent = send(&mut sending, &of_sender, stop.as_fd());
        let disconnects = sent.result.is_err() || at_end == AtEnd::Disconnect;
        // Reported before disconnecting, so that the reason is known when the connection ends.
        let _ = sender.send(sent);
        if disconnects {
            let _written = written.lock();
            let _ = sending.connection().disconnect();
        }
    });
    let received = receive(&mut receiving, &progress, &writing);
    progress.finish();
    if let Err(Broken::Here(failure)) = received {
        // The peer must not go on.
        receiving.connection().disconnect()?;
        return Err(failure);
    }
    // What standard input still has is read then, which fails.
    drop(stopper);
    let sent = sent.recv_timeout(LAST_INPUT).map_err(|_| {
        let text = "what standard input had was read by another process";
        Failure::new(Kind::Failed, text)
    })?;
    let not_taken = |failure: Failure| match sent.bytes {
        0 => failure,
        bytes => failure.not_taken(sent.taken, bytes),
    };
    let info = match (sent.result, received) {
        (Err(failure), Err(Broken::Connection(receiving))) => {
            return Err(not_taken(cause(failure, Some(receiving))));
        }
        (Err(failure), _) => return Err(not_taken(failure)),
        // This side disconnects, so the result of receiving does not matter.
        (Ok(()), _) if at_end == AtEnd::Disconnect && sent.ended => sent.info,
        (Ok(()), Err(Broken::Connection(failure) | Broken::Here(failure))) => {
            return Err(not_taken(failure));
        }
        (Ok(()), Ok(info)) => Some(info),
    };
    receiving.connection().disconnect()?;
    match info.filter(|info| !info.reset) {
        Some(info) => Ok(Report::new(
            &info,
            sent.taken,
            start.elapsed().as_secs_f64(),
        )),
        None => Err(not_taken(reset())),
    }
}

/// Sends standard input until it ends, or until it has nothing more when `stop` is closed.
fn send(sending: &mut Sending, progress: &Progress, stop: BorrowedFd<'_>) -> Sent {
    let (mut bytes, mut ended) = (0, false);
    let result = send_input(sending, progress, stop, &mut bytes, &mut ended);
    let waited = match result {
        // No program has to take nothing.
        Ok(()) if ended && bytes > 0 => sending.connection().wait_taken(bytes),
        _ => Ok(Some(0)),
    };
    let taken = sending.connection().taken();
    let result = match (result, waited) {
        (Err(Broken::Here(failure)), _) => Err(failure),
        // Whatever failed afterwards.
        _ if taken == bytes => Ok(()),
        (Err(Broken::Connection(failure)), _) => Err(failure),
        (_, Err(error)) => Err(error.into()),
        (Ok(()), Ok(None)) => Err(Failure {
            hint: Some("only `uldma listen` and `uldma connect` do".to_owned()),
            ..Failure::new(
                Kind::Failed,
                "the program at the other side does not say what it takes",
            )
        }),
        (Ok(()), Ok(Some(_))) => Err(Failure::new(Kind::Failed, "the connection has ended")),
    };
    Sent {
        bytes,
        taken,
        ended,
        result,
        info: sending.connection().query().ok(),
    }
}

/// Sends standard input, and counts its bytes; at its end, waits until they are in the peer's memory.
fn send_input(
    sending: &mut Sending,
    progress: &Progress,
    stop: BorrowedFd<'_>,
    sent: &mut u64,
    ended: &mut bool,
) -> std::result::Result<(), Broken> {
    let unsent = |error| Broken::Connection(failure("send", error));
    let mut bytes = vec![0; 64 * 1024];
    let mut input = standard::input();
    loop {
        let length = input
            .read_unless(stop, &mut bytes)
            .map_err(|error| Broken::Here(Failure::io("standard input", &error)))?;
        let Some(length) = length else {
            return Ok(());
        };
        if length == 0 {
            *ended = true;
            return sending.flush().map_err(unsent);
        }
        *sent += length as u64;
        sending.write_all(&bytes[..length]).map_err(unsent)?;
        progress.inc(length);
    }
}

/// Writes received data to standard output until the end of the stream, tells the other side how much
/// it was, and returns the counters.
fn receive(
    receiving: &mut Receiving,
    progress: &Progress,
    writing: &Mutex<()>,
) -> std::result::Result<ConnectionInfo, Broken> {
    let mut bytes = vec![0; 64 * 1024];
    let mut taken = 0;
    loop {
        let length = receiving
            .read(&mut bytes)
            .map_err(|error| Broken::Connection(failure("receive", error)))?;
        if length == 0 {
            let info = receiving.connection().query();
            return info.map_err(|error| Broken::Connection(error.into()));
        }
        let _writing = writing.lock();
        standard::output()
            .and_then(|mut output| output.write_all(&bytes[..length]))
            .map_err(|error| Broken::Here(Failure::output(&error)))?;
        taken += length as u64;
        receiving.connection().tell_taken(taken);
        if !progress.has_total() {
            progress.inc(length);
        }
    }
}

/// Returns the reason of the end, after sending has failed, and perhaps receiving.
fn cause(sending: Failure, receiving: Option<Failure>) -> Failure {
    // A failed sender disconnects, after which the receiver finds no connection: that is not the
    // reason.
    receiving
        .filter(|failure| failure.kind != Kind::Peer)
        .unwrap_or(sending)
}

/// Recovers the library's error from the standard library's.
fn failure(what: &str, error: io::Error) -> Failure {
    let plain = |error: &io::Error| Failure::io(what, error);
    if !error.get_ref().is_some_and(|inner| inner.is::<Error>()) {
        return plain(&error);
    }
    match error.into_inner().map(|inner| inner.downcast::<Error>()) {
        Some(Ok(inner)) if inner.is_reset() => reset(),
        Some(Ok(inner)) => Failure::from(*inner),
        _ => plain(&io::ErrorKind::Other.into()),
    }
}

/// Builds the failure of a connection that was reset.
fn reset() -> Failure {
    Failure {
        kind: Kind::Failed,
        message: "the connection was reset".to_owned(),
        hint: Some("the peer was killed, or the link went down".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_of_a_file_is_known() {
        let name = format!("uldma-left-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, [7; 100]).unwrap();
        let mut file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(bytes_left(&file), Some(100));
        file.seek(io::SeekFrom::Start(60)).unwrap();
        assert_eq!(bytes_left(&file), Some(40));
        file.seek(io::SeekFrom::End(0)).unwrap();
        assert_eq!(bytes_left(&file), None);
        assert_eq!(bytes_left(File::open("/dev/null").unwrap()), None);
    }

    #[test]
    fn a_reset_is_told_whichever_thread_sees_it() {
        let peer_ended = || Failure::new(Kind::Peer, "not connected");
        assert_eq!(cause(reset(), None).message, reset().message);
        assert_eq!(cause(reset(), Some(peer_ended())).message, reset().message);
        assert_eq!(cause(peer_ended(), Some(reset())).message, reset().message);
        assert_eq!(cause(peer_ended(), None).kind, Kind::Peer);
    }
}
