// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma send` and `uldma recv`: messages by the techniques of sending and receiving.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::ops::DerefMut;
use std::time::{Duration, Instant};

use serde::Serialize;
use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, ExchangeBuffer, ExchangeStats, Fallbacks,
    MessageConnection, MessageListener, MessageOptions, ReceiveTechnique, Redirections, Region,
    SendTechnique, Sent, SentBuffer,
};

use crate::args::{Common, Recv, Send, SlotArgs};
use crate::connection;
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::{Progress, Style};
use crate::schema::SCHEMA_VERSION;

/// Time of a wait for a message: practically unlimited.
const FOREVER: Duration = Duration::from_secs(86_400);

/// The report of one side.
#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    technique: &'static str,
    messages: u64,
    bytes: u64,
    seconds: f64,
    mb_per_s: f64,
    /// System calls by the library during the transfer.
    syscalls: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<Exchange>,
    /// Pieces that arrived where they were received into.
    #[serde(skip_serializing_if = "Option::is_none")]
    redirected: Option<u64>,
    /// Pieces that were copied from slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_slots: Option<u64>,
}

/// What page exchange did: the half of one side.
#[derive(Debug, Serialize)]
struct Exchange {
    /// Messages sent from protected pages.
    sent: u64,
    pages_clean: u64,
    pages_copied: u64,
    pages_exchanged: u64,
    tail_bytes: u64,
    /// Messages, or pieces, that were not exchanged, by reason.
    small: u64,
    ordinary: u64,
    pinned: u64,
    unaligned: u64,
    busy: u64,
    limit: u64,
}

impl Exchange {
    fn new(stats: &ExchangeStats, fallbacks: &Fallbacks) -> Self {
        Self {
            sent: stats.sent,
            pages_clean: stats.pages_clean,
            pages_copied: stats.pages_copied,
            pages_exchanged: stats.pages_exchanged,
            tail_bytes: stats.tail_bytes,
            small: fallbacks.small,
            ordinary: fallbacks.ordinary,
            pinned: fallbacks.pinned,
            unaligned: fallbacks.unaligned,
            busy: fallbacks.busy,
            limit: fallbacks.limit,
        }
    }
}

/// Counts what was moved.
struct Counter {
    start: Instant,
    calls: u64,
    messages: u64,
    bytes: u64,
    progress: Progress,
}

impl Counter {
    fn new(progress: Progress) -> Self {
        Self {
            start: Instant::now(),
            calls: uldma::calls(),
            messages: 0,
            bytes: 0,
            progress,
        }
    }

    fn add(&mut self, length: usize) {
        self.messages += 1;
        self.bytes += length as u64;
        self.progress.inc(length);
    }

    /// Prints the report to standard error, if it is requested.
    fn print(
        self,
        common: &Common,
        technique: &'static str,
        exchange: Option<Exchange>,
        redirections: Option<Redirections>,
    ) -> Result<()> {
        self.progress.finish();
        if !common.json {
            return Ok(());
        }
        let seconds = self.start.elapsed().as_secs_f64();
        let report = Report {
            schema_version: SCHEMA_VERSION,
            technique,
            messages: self.messages,
            bytes: self.bytes,
            seconds,
            mb_per_s: output::megabytes_per_second(self.bytes, seconds),
            syscalls: uldma::calls() - self.calls,
            exchange,
            redirected: redirections.map(|counts| counts.redirected),
            from_slots: redirections.map(|counts| counts.from_slots),
        };
        let text =
            serde_json::to_string(&report).map_err(|error| Failure::io("JSON", &error.into()))?;
        eprintln!("{text}");
        Ok(())
    }
}

fn options(slots: &SlotArgs) -> MessageOptions {
    MessageOptions {
        slot: slots.slot,
        slots: slots.slots,
        exchange_from: slots.exchange_from,
        ..MessageOptions::default()
    }
}

/// Runs `uldma send`.
pub(crate) fn send(common: &Common, args: &Send) -> Result<()> {
    let device = common.open()?;
    let options = MessageOptions {
        sending: args.technique,
        without_credits: args.without_credits,
        ..options(&args.slots)
    };
    let connect = ConnectOptions {
        retry: args.wait,
        timeout: common.timeout,
        ..ConnectOptions::default()
    };
    let mut connection =
        MessageConnection::connect(&device, args.node, args.port, options, connect)?;
    let style = Style::new(common, &args.slots.progress);
    let mut counter = Counter::new(connection::progress(style));
    let (count, length) = (usize::from(args.slots.slots), args.message);
    let mut sender = Sender::new((&device, &connection), args.technique, count, length)?;
    let mut input = io::stdin().lock();
    loop {
        match sender.send_next(&mut connection, &mut input, common.timeout) {
            Ok(0) => break,
            Ok(sent) => counter.add(sent),
            // What failed first is the reason of what failed now.
            Err(error) => return Err(sender.failed(&mut connection).unwrap_or(error)),
        }
    }
    sender.finish(&mut connection, common.timeout)?;
    // An empty message ends the data, unlike the end of the program.
    connection.set_sending(SendTechnique::CopyDma)?;
    connection.send(&[], common.timeout)?;
    connection.flush(common.timeout)?;
    let stats = connection.exchange_stats();
    let exchange =
        (args.technique == SendTechnique::PexDma).then(|| Exchange::new(&stats, &stats.not_sent));
    counter.print(common, args.technique.name(), exchange, None)
}

/// The memory that messages are sent from.
enum Sender {
    /// Copied by the library.
    Bytes(Vec<u8>),
    /// Protected while it is sent, used in turns.
    Pages(VecDeque<ExchangeBuffer>),
    /// Registered once, used in turns.
    Regions(VecDeque<(Region, Option<Sent>)>, usize),
    /// Pinned for each message, used in turns.
    Buffers(VecDeque<Turn>),
}

/// A buffer, or the message that is in it.
enum Turn {
    Free(Buffer),
    Sent(SentBuffer),
}

impl Turn {
    fn sent(&self) -> Option<&Sent> {
        match self {
            Self::Free(_) => None,
            Self::Sent(message) => Some(message.sent()),
        }
    }
}

impl Sender {
    fn new(
        (device, connection): (&Device, &MessageConnection),
        technique: SendTechnique,
        count: usize,
        length: usize,
    ) -> Result<Self> {
        Ok(match technique {
            SendTechnique::PexDma => {
                let buffers = (0..count).map(|_| device.exchangeable(length));
                Self::Pages(buffers.collect::<uldma::Result<_>>()?)
            }
            SendTechnique::DirectDma => {
                let mut regions = VecDeque::new();
                for _ in 0..count {
                    let buffer = Buffer::new(length)?;
                    let region = connection.device().register(buffer, Access::Read)?;
                    regions.push_back((region, None));
                }
                Self::Regions(regions, length)
            }
            SendTechnique::V2pDma => {
                let buffers = (0..count).map(|_| Buffer::new(length).map(Turn::Free));
                Self::Buffers(buffers.collect::<uldma::Result<_>>()?)
            }
            _ => Self::Bytes(vec![0; length]),
        })
    }

    /// Reads one message and sends it. Returns its length; 0 at the end of the input.
    fn send_next(
        &mut self,
        connection: &mut MessageConnection,
        input: &mut impl Read,
        timeout: Duration,
    ) -> Result<usize> {
        match self {
            Self::Bytes(bytes) => {
                let length = fill(input, bytes)?;
                if length > 0 {
                    connection.send(&bytes[..length], timeout)?;
                }
                Ok(length)
            }
            Self::Pages(buffers) => {
                let Some(mut buffer) = buffers.pop_front() else {
                    return Ok(0);
                };
                let length = fill(input, &mut buffer)?;
                if length > 0 {
                    connection.send(&buffer[..length], timeout)?;
                }
                buffers.push_back(buffer);
                Ok(length)
            }
            Self::Regions(regions, most) => {
                let Some((region, sent)) = regions.pop_front() else {
                    return Ok(0);
                };
                if let Some(sent) = sent {
                    connection.wait_sent(&sent, timeout)?;
                }
                let mut bytes = vec![0; *most];
                let length = fill(input, &mut bytes)?;
                region.write(0, &bytes[..length])?;
                let sent =
                    (length > 0).then(|| connection.start(&region, 0..length as u64, timeout));
                regions.push_back((region, sent.transpose()?));
                Ok(length)
            }
            Self::Buffers(buffers) => {
                let mut buffer = match buffers.pop_front() {
                    Some(Turn::Free(buffer)) => buffer,
                    Some(Turn::Sent(sent)) => connection.reclaim(sent, timeout)?,
                    None => return Ok(0),
                };
                let length = fill(input, &mut buffer)?;
                match length {
                    0 => {}
                    length if length == buffer.len() => {
                        let sent = connection.send_buffer(buffer, timeout)?;
                        buffers.push_back(Turn::Sent(sent));
                    }
                    // The last message is shorter than its buffer.
                    length => connection.send(&buffer[..length], timeout)?,
                }
                Ok(length)
            }
        }
    }

    /// Returns the error of the oldest message that has failed and was not reported.
    fn failed(&self, connection: &mut MessageConnection) -> Option<Failure> {
        let error = |sent: &Sent| connection.is_sent(sent).err();
        let first = match self {
            Self::Bytes(_) | Self::Pages(_) => None,
            Self::Regions(regions, _) => {
                let mut sent = regions.iter().filter_map(|(_, sent)| sent.as_ref());
                sent.find_map(error)
            }
            Self::Buffers(buffers) => {
                let mut sent = buffers.iter().filter_map(Turn::sent);
                sent.find_map(error)
            }
        };
        first.map(Failure::from)
    }

    /// Waits until all messages have been read.
    fn finish(self, connection: &mut MessageConnection, timeout: Duration) -> Result<()> {
        match self {
            Self::Bytes(_) | Self::Pages(_) => {}
            Self::Regions(regions, _) => {
                for (_, sent) in &regions {
                    if let Some(sent) = sent {
                        connection.wait_sent(sent, timeout)?;
                    }
                }
            }
            Self::Buffers(buffers) => {
                for turn in buffers {
                    if let Turn::Sent(sent) = turn {
                        connection.reclaim(sent, timeout)?;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Reads until `target` is full or the input ends.
fn fill(input: &mut impl Read, target: &mut [u8]) -> Result<usize> {
    let mut length = 0;
    while length < target.len() {
        match input.read(&mut target[length..]) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(Failure::io("standard input", &error)),
        }
    }
    Ok(length)
}

/// Runs `uldma recv`.
pub(crate) fn recv(common: &Common, args: &Recv) -> Result<()> {
    let device = common.open()?;
    let options = MessageOptions {
        receiving: args.technique,
        ..options(&args.slots)
    };
    let listener = MessageListener::new(&device, args.port, 1, options)?;
    let (mut connection, _) = listener.accept(common.timeout)?;
    let style = Style::new(common, &args.slots.progress);
    let mut counter = Counter::new(Progress::new(style, "receive", None));
    let mut output = io::stdout().lock();
    let mut write = |bytes: &[u8], counter: &mut Counter| {
        counter.add(bytes.len());
        output
            .write_all(bytes)
            .and_then(|()| output.flush())
            .map_err(|error| Failure::io("standard output", &error))
    };
    let failed = match args.technique {
        ReceiveTechnique::V2pDma => {
            for _ in 0..args.slots.slots {
                connection.post(Buffer::new(args.slots.slot)?)?;
            }
            loop {
                match connection.receive_buffer(FOREVER) {
                    Ok((_, 0)) => break None,
                    Ok((buffer, length)) => {
                        write(&buffer[..length.min(buffer.len())], &mut counter)?;
                        connection.post(buffer)?;
                    }
                    Err(error) => break Some(error),
                }
            }
        }
        technique => {
            let mut bytes = target(&device, technique, args.longest)?;
            loop {
                match connection.receive(&mut bytes, FOREVER) {
                    Ok(0) => break None,
                    Ok(length) => write(&bytes[..length], &mut counter)?,
                    Err(error) => break Some(error),
                }
            }
        }
    };
    let stats = connection.exchange_stats();
    let exchange = (args.technique == ReceiveTechnique::PexDma)
        .then(|| Exchange::new(&stats, &stats.not_exchanged));
    let redirections =
        (args.technique == ReceiveTechnique::Redirect).then(|| connection.redirections());
    match failed {
        None => counter.print(common, args.technique.name(), exchange, redirections),
        Some(Error::Closed | Error::LinkDown) => Err(Failure::new(
            Kind::Peer,
            "the other side went away before the end of the data",
        )),
        Some(error) => Err(error.into()),
    }
}

/// Allocates the memory that messages are received into.
fn target(
    device: &Device,
    technique: ReceiveTechnique,
    longest: Option<usize>,
) -> Result<Box<dyn DerefMut<Target = [u8]>>> {
    Ok(match technique {
        // Its pages are charged to RLIMIT_MEMLOCK.
        ReceiveTechnique::PexDma => Box::new(device.exchangeable(longest.unwrap_or(1 << 20))?),
        _ => Box::new(vec![0; longest.unwrap_or(16 << 20)]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives one byte at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let most = target.len().min(1);
            self.0.read(&mut target[..most])
        }
    }

    #[test]
    fn a_message_is_as_long_as_the_input_allows() {
        let mut bytes = [0; 4];
        let mut input = Slow(b"abcdef");
        assert_eq!(fill(&mut input, &mut bytes).unwrap(), 4);
        assert_eq!(fill(&mut input, &mut bytes).unwrap(), 2);
        assert_eq!(fill(&mut input, &mut bytes).unwrap(), 0);
        assert_eq!(&bytes[..2], b"ef");
    }
}
