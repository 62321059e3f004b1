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
    let mut counter = Counter::new(Progress::new(style, "receive", None));
    let mut output = standard::output().map_err(|error| Failure::output(&error))?;
    let mut write = |bytes: &[u8], counter: &mut Counter| {
        counter.add(bytes.len());
        output
            .write_all(bytes)
            .map_err(|error| Failure::output(&error))
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
        ReceiveTechnique::DirectDma => {
            let mut bytes = Vec::new();
            loop {
                match next_put(&mut connection, &mut bytes) {
                    Ok(0) => break None,
                    Ok(length) => write(&bytes[..length], &mut counter)?,
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
        .then(|| Exchange::new(options.exchange_from, &stats, &stats.not_exchanged));
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
