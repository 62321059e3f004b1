// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma send`.

use std::collections::VecDeque;
use std::io::Read;
use std::time::Duration;

use uldma::message::{PutArea, Sent, SentBuffer};
use uldma::{
    Access, Buffer, ConnectOptions, Device, Error, ExchangeBuffer, MessageConnection,
    MessageOptions, Region, SendTechnique,
};

use super::{options, Counter, Exchange};
use crate::args::{Common, Send};
use crate::connection;
use crate::failure::{Failure, Kind, Result};
use crate::progress::Style;
use crate::standard;

/// Runs `uldma send`.
pub(crate) fn send(common: &Common, args: &Send) -> Result<()> {
    let device = common.open()?;
    let options = MessageOptions {
        sending: args.technique,
        without_credits: args.without_credits,
        ..options(&device, &args.slots)?
    };
    let connect = ConnectOptions {
        retry: args.wait,
        timeout: common.timeout,
        ..ConnectOptions::default()
    };
    let mut connection =
        MessageConnection::connect(&device, args.node, args.port, options, connect)?;
    let style = Style::new(common, &args.slots.progress);
    let (count, length) = (usize::from(args.slots.slots), args.message);
    let mut places = Places::new(&connection, length)?;
    let sender = Sender::new((&device, &connection), args.technique, count, length)?;
    let mut counter = Counter::new(&device, connection::progress(style))?;
    let parts = (&mut connection, &mut places, sender);
    let sent = send_all(parts, &mut counter, common.timeout);
    let copied = connection.copied();
    let taken = taken(&mut connection, sent.is_ok(), common.timeout);
    let bytes = counter.bytes;
    // Where nothing was sent, the other side has only ended.
    let not_taken = |failure: Failure| match bytes {
        0 => failure,
        _ => failure.not_taken(taken, bytes),
    };
    sent.map_err(not_taken)?;
    if taken != Some(bytes) {
        let text = "the other side has ended before it has taken all";
        return Err(not_taken(Failure::new(Kind::Peer, text)));
    }
    let stats = connection.exchange_stats();
    let exchange = (args.technique == SendTechnique::PexDma)
        .then(|| Exchange::new(options.exchange_from, &stats, &stats.not_sent));
    let technique = args.technique.name();
    counter.print(common, technique, taken, copied, exchange, None)
}

/// Sends standard input, and an empty message.
fn send_all(
    (connection, places, mut sender): (&mut MessageConnection, &mut Places, Sender),
    counter: &mut Counter,
    timeout: Duration,
) -> Result<()> {
    let mut input = standard::input();
    loop {
        match sender.send_next(connection, places, &mut input, timeout) {
            Ok(0) => break,
            Ok(sent) => counter.add(sent),
            // What failed first is the reason of what failed now.
            Err(error) => return Err(sender.failed(connection).unwrap_or(error)),
        }
    }
    sender.finish(connection, timeout)?;
    // An empty message ends the data, unlike the end of the program.
    connection.set_sending(SendTechnique::CopyDma)?;
    places.send(connection, &[], timeout)?;
    Ok(connection.flush(timeout)?)
}

/// Returns how many bytes the other side says that it has taken, in the message that it sends at its end;
/// none without that message. Waits for it if the other side still `goes_on`.
fn taken(connection: &mut MessageConnection, goes_on: bool, timeout: Duration) -> Option<u64> {
    let mut number = [0; 8];
    let timeout = if goes_on { timeout } else { Duration::ZERO };
    match connection.receive(&mut number, timeout) {
        Ok(length) if length == number.len() => Some(u64::from_le_bytes(number)),
        _ => None,
    }
}

/// The places of a receiver that lets the sender name them, used in turns.
struct Places {
    area: Option<PutArea>,
    /// Bytes of a place.
    bytes: u64,
    /// Number of the next one.
    next: u32,
}

impl Places {
    /// Checks that a place has room for a message of `length` bytes.
    fn new(connection: &MessageConnection, length: usize) -> Result<Self> {
        let area = connection.outbound();
        let bytes = area.map_or(0, |area| area.bytes / u64::from(area.puts).max(1));
        if area.is_some() && length as u64 > bytes {
            let limit = usize::try_from(bytes).unwrap_or(usize::MAX);
            return Err(Error::TooLong { length, limit }.into());
        }
        Ok(Self {
            area,
            bytes,
            next: 0,
        })
    }

    /// Returns the offset of the next place; none where messages are sent.
    fn take(&mut self) -> Option<u64> {
        let area = self.area?;
        let offset = u64::from(self.next) * self.bytes;
        self.next = (self.next + 1) % area.puts.max(1);
        Some(offset)
    }

    fn send(
        &mut self,
        connection: &mut MessageConnection,
        message: &[u8],
        timeout: Duration,
    ) -> uldma::Result<()> {
        match self.take() {
            Some(offset) => connection.put(message, offset, timeout),
            None => connection.send(message, timeout),
        }
    }

    fn start(
        &mut self,
        connection: &mut MessageConnection,
        region: &Region,
        length: usize,
        timeout: Duration,
    ) -> uldma::Result<Sent> {
        let part = 0..length as u64;
        match self.take() {
            Some(offset) => connection.start_put(region, part, offset, timeout),
            None => connection.start(region, part, timeout),
        }
    }
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

    /// Waits for the message in the memory whose turn is next. If it has failed, it stays there, as
    /// the first of those that `failed` checks.
    fn wait_next(&self, connection: &mut MessageConnection, timeout: Duration) -> Result<()> {
        let sent = match self {
            Self::Bytes(_) | Self::Pages(_) => None,
            Self::Regions(regions, _) => regions.front().and_then(|(_, sent)| sent.as_ref()),
            Self::Buffers(buffers) => buffers.front().and_then(Turn::sent),
        };
        if let Some(sent) = sent {
            connection.wait_sent(sent, timeout)?;
        }
        Ok(())
    }

    /// Reads one message and sends it. Returns its length; 0 at the end of the input.
    fn send_next(
        &mut self,
        connection: &mut MessageConnection,
        places: &mut Places,
        input: &mut impl Read,
        timeout: Duration,
    ) -> Result<usize> {
        self.wait_next(connection, timeout)?;
        match self {
            Self::Bytes(bytes) => {
                let length = fill(input, bytes)?;
                if length > 0 {
                    places.send(connection, &bytes[..length], timeout)?;
                }
                Ok(length)
            }
            Self::Pages(buffers) => {
                let Some(mut buffer) = buffers.pop_front() else {
                    return Ok(0);
                };
                let length = fill(input, &mut buffer)?;
                if length > 0 {
                    places.send(connection, &buffer[..length], timeout)?;
                }
                buffers.push_back(buffer);
                Ok(length)
            }
            Self::Regions(regions, most) => {
                let Some((region, _)) = regions.pop_front() else {
                    return Ok(0);
                };
                let mut bytes = vec![0; *most];
                let length = fill(input, &mut bytes)?;
                region.write(0, &bytes[..length])?;
                let sent = (length > 0).then(|| places.start(connection, &region, length, timeout));
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
                    // Puts are of memory that the caller keeps.
                    length if places.area.is_some() => {
                        places.send(connection, &buffer[..length], timeout)?;
                        buffers.push_back(Turn::Free(buffer));
                    }
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
            Err(error) => return Err(Failure::io("standard input", &error)),
        }
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

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
