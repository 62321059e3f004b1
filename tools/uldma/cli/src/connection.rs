// SPDX-License-Identifier: MIT OR Apache-2.0

//! Data between a connection and standard input and output.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsFd;
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use uldma::{Connection, ConnectionInfo, Error, Receiving, Sending, StreamOptions};

use crate::args::{Common, StreamArgs};
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::{Progress, Style};
use crate::schema::SCHEMA_VERSION;
use crate::standard;

/// Action at the end of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AtEnd {
    /// Disconnect, once the peer has received all.
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
    fn new(info: &ConnectionInfo, seconds: f64) -> Self {
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

/// Carries data in both directions until the connection ends.
pub(crate) fn carry(
    connection: Connection,
    options: StreamOptions,
    at_end: AtEnd,
    style: Style,
) -> Result<Report> {
    let progress = Arc::new(progress(style));
    let start = Instant::now();
    let (mut receiving, mut sending) = connection.into_stream(options)?.split();
    let (sender, sent) = mpsc::channel();
    let of_sender = Arc::clone(&progress);
    // This thread may still wait for standard input at the end, and ends with the process.
    thread::spawn(move || {
        let result = send(&mut sending, &of_sender);
        let failed = result.is_err();
        // Reported before disconnecting, so that the reason is known when the connection ends.
        let _ = sender.send(result);
        if failed || at_end == AtEnd::Disconnect {
            let _ = sending.connection().disconnect();
        }
    });
    let received = receive(&mut receiving, &progress);
    progress.finish();
    let info = match sent.try_recv() {
        // This side disconnects, so the result of receiving does not matter.
        Ok(Ok(info)) if at_end == AtEnd::Disconnect => info,
        Ok(Err(failure)) => return Err(cause(failure, received.err())),
        _ => received?,
    };
    receiving.connection().disconnect()?;
    if info.reset {
        return Err(reset());
    }
    if info.unsent > 0 {
        let text = format!(
            "the peer disconnected before it had received the last {} bytes",
            info.unsent
        );
        return Err(Failure::new(Kind::Failed, text));
    }
    Ok(Report::new(&info, start.elapsed().as_secs_f64()))
}

/// Sends standard input, waits until all of it is in the peer's memory, and returns the counters.
fn send(sending: &mut Sending, progress: &Progress) -> Result<ConnectionInfo> {
    let mut bytes = vec![0; 64 * 1024];
    let mut input = standard::input();
    loop {
        let length = match input.read(&mut bytes) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) => return Err(Failure::io("standard input", &error)),
        };
        let written = sending.write_all(&bytes[..length]);
        written.map_err(|error| failure("send", error))?;
        progress.inc(length);
    }
    sending.flush().map_err(|error| failure("send", error))?;
    Ok(sending.connection().query()?)
}

/// Writes received data to standard output until the end of the stream, and returns the counters.
fn receive(receiving: &mut Receiving, progress: &Progress) -> Result<ConnectionInfo> {
    let mut bytes = vec![0; 64 * 1024];
    let mut output = standard::output().map_err(|error| Failure::output(&error))?;
    loop {
        let length = receiving
            .read(&mut bytes)
            .map_err(|error| failure("receive", error))?;
        if length == 0 {
            return Ok(receiving.connection().query()?);
        }
        output
            .write_all(&bytes[..length])
            .map_err(|error| Failure::output(&error))?;
        if !progress.has_total() {
            progress.inc(length);
        }
    }
}

/// Returns the reason of the end, after sending has failed, and perhaps receiving.
pub(crate) fn cause(sending: Failure, receiving: Option<Failure>) -> Failure {
    // A failed sender disconnects, after which the receiver finds no connection: that is not the
    // reason.
    receiving
        .filter(|failure| failure.kind != Kind::Peer)
        .unwrap_or(sending)
}

/// Recovers the library's error from the standard library's.
pub(crate) fn failure(what: &str, error: io::Error) -> Failure {
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
pub(crate) fn reset() -> Failure {
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
