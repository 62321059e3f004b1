// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma recv`.

use std::io::Write;
use std::ops::DerefMut;
use std::time::Duration;

use uldma::{
    Buffer, Device, Error, MessageConnection, MessageListener, MessageOptions, ReceiveTechnique,
};

use super::{options, Counter, Exchange};
use crate::args::{Common, Recv};
use crate::failure::{Failure, Kind, Result};
use crate::progress::{Progress, Style};
use crate::standard;

/// Time of a wait for a message: practically unlimited.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Runs `uldma recv`.
pub(crate) fn recv(common: &Common, args: &Recv) -> Result<()> {
    let device = common.open()?;
    let options = MessageOptions {
        receiving: args.technique,
        ..options(&device, &args.slots)?
    };
    let listener = MessageListener::new(&device, args.port, 1, options)?;
    let (mut connection, _) = listener.accept(common.timeout)?;
    let style = Style::new(common, &args.slots.progress);
    let mut counter = Counter::new(&device, Progress::new(style, "receive", None))?;
    let mut output = standard::output().map_err(|error| Failure::output(&error))?;
    let mut write = |bytes: &[u8], counter: &mut Counter| {
        output
            .write_all(bytes)
            .map_err(|error| Failure::output(&error))?;
        counter.add(bytes.len());
        Ok(())
    };
    let received = receive_all(args, &device, &mut connection, |bytes| {
        write(bytes, &mut counter)
    });
    let copied = connection.copied();
    // The sender ends well only if it gets the number of all bytes. One that has ended already does
    // not ask for it, and this side has all data nevertheless.
    let _ = connection
        .send(&counter.bytes.to_le_bytes(), common.timeout)
        .and_then(|()| connection.flush(common.timeout));
    let stats = connection.exchange_stats();
    let exchange = (args.technique == ReceiveTechnique::PexDma)
        .then(|| Exchange::new(options.exchange_from, &stats, &stats.not_exchanged));
    let redirections =
        (args.technique == ReceiveTechnique::Redirect).then(|| connection.redirections());
    received?;
    let technique = args.technique.name();
    counter.print(common, technique, None, copied, exchange, redirections)
}

/// Receives messages into the memory of the technique, up to an empty one, and passes them to `write`.
fn receive_all(
    args: &Recv,
    device: &Device,
    connection: &mut MessageConnection,
    mut write: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    match args.technique {
        ReceiveTechnique::V2pDma => {
            for _ in 0..args.slots.slots {
                connection.post(Buffer::new(args.slots.slot)?)?;
            }
            loop {
                let (buffer, length) = connection.receive_buffer(FOREVER).map_err(ended)?;
                if length == 0 {
                    return Ok(());
                }
                write(&buffer[..length.min(buffer.len())])?;
                connection.post(buffer)?;
            }
        }
        ReceiveTechnique::DirectDma => {
            let mut bytes = Vec::new();
            loop {
                match next_put(connection, &mut bytes).map_err(ended)? {
                    0 => return Ok(()),
                    length => write(&bytes[..length])?,
                }
            }
        }
        technique => {
            let mut bytes = target(device, technique, args.longest)?;
            loop {
                match connection.receive(&mut bytes, FOREVER).map_err(ended)? {
                    0 => return Ok(()),
                    length => write(&bytes[..length])?,
                }
            }
        }
    }
}

/// Builds the failure of receiving.
fn ended(error: Error) -> Failure {
    match error {
        Error::Closed | Error::LinkDown => Failure::new(
            Kind::Peer,
            "the other side went away before the end of the data",
        ),
        error => error.into(),
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

/// Waits for the next put of the sender, and reads it into `bytes`. Returns its length.
fn next_put(connection: &mut MessageConnection, bytes: &mut Vec<u8>) -> uldma::Result<usize> {
    let put = connection.receive_put(FOREVER)?;
    // It is a part of the memory, so this is no more than that.
    bytes.resize(usize::try_from(put.length).unwrap_or(0), 0);
    if let Some(region) = connection.inbound() {
        region.read(put.offset, bytes)?;
    }
    Ok(bytes.len())
}
