// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench serve`: the side that answers.

use std::time::Duration;

use uldma::{Access, Buffer, Channel, Device, Error, InboundSegment, Name};

use crate::failure::Failure;
use crate::peer::{hear, say, Answer, Request, CAPACITY, VERSION};
use crate::{link, tcp, Common};

/// More than any benchmark asks for.
const MOST: u64 = 1 << 30;

/// Serves one who measures.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    let timeout = common.timeout();
    let device = Device::open(common.device)?;
    let mut channel = device.channel(common.name, CAPACITY, timeout)?;
    match serve(&device, &mut channel, timeout) {
        Ok(()) | Err(Failure::Uldma(Error::Closed)) => {}
        Err(failure) => {
            let _ = say(
                &mut channel,
                &Answer::Failed {
                    message: failure.to_string(),
                },
                timeout,
            );
            return Err(failure);
        }
    }
    Ok(channel.wait_closed(timeout)?)
}

fn serve(device: &Device, channel: &mut Channel, timeout: Duration) -> Result<(), Failure> {
    // What the other side is writing to. It asks for a region anew with each request; an export
    // ends with its region, so both live in one loop around those requests.
    let mut segment: Option<InboundSegment> = None;
    let mut next = None;
    loop {
        let request = match next.take() {
            Some(request) => request,
            None => hear(channel, timeout)?,
        };
        match request {
            Request::Region { bytes } => {
                let region = device.register(Buffer::new(checked(bytes)?)?, Access::Write)?;
                let export = region.export(Name::random()?, Access::Write)?;
                say(
                    channel,
                    &Answer::Named {
                        name: export.name().get(),
                    },
                    timeout,
                )?;
                // It lives until the next request that is not about it.
                next = Some(hear(channel, timeout)?);
            }
            Request::Segment { bytes } => {
                drop(segment.take());
                let name = Name::random()?;
                segment = Some(device.create_segment(name, checked(bytes)? as u64)?);
                say(channel, &Answer::Named { name: name.get() }, timeout)?;
            }
            Request::Hello { version: VERSION } => say(channel, &Answer::Ready, timeout)?,
            Request::Hello { version } => {
                let text = format!("speaks version {version}, this side {VERSION}");
                return Err(Failure::Peer(text));
            }
            Request::Raw { count } => {
                say(channel, &Answer::Ready, timeout)?;
                channel.raw_pong(count, timeout)?;
            }
            Request::Ping { size, count } => {
                say(channel, &Answer::Ready, timeout)?;
                channel.pong((size as usize).min(channel.max_message()), count, timeout)?;
            }
            Request::Tcp => tcp::serve(channel, timeout)?,
            Request::Link => link::serve(device, channel, timeout)?,
            Request::Quit => return say(channel, &Answer::Ready, timeout),
        }
    }
}

fn checked(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes)
        .ok()
        .filter(|_| bytes > 0 && bytes <= MOST)
        .ok_or_else(|| Failure::Peer(format!("asks for {bytes} bytes")))
}
