// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench serve`: the process that answers.

use std::time::Duration;

use uldma::{Channel, ChannelListener, Device, Error, Name};

use crate::failure::Failure;
use crate::peer::{receive, send, Answer, Request, CAPACITY, VERSION};
use crate::{broadcast, link, optimistic, Common};

/// Serves one peer that measures.
pub(crate) fn run(common: &Common) -> Result<(), Failure> {
    let timeout = common.timeout();
    let device = Device::open(common.device)?;
    let listener = ChannelListener::new(&device, common.port, 1, CAPACITY)?;
    let (mut channel, _) = listener.accept(timeout)?;
    match serve(common, &device, &mut channel, timeout) {
        Ok(()) | Err(Failure::Uldma(Error::Closed)) => {}
        Err(failure) => {
            let _ = send(
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

fn serve(
    common: &Common,
    device: &Device,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<(), Failure> {
    loop {
        match receive(channel, timeout)? {
            Request::Handshake { version: VERSION } => send(channel, &Answer::Ready, timeout)?,
            Request::Handshake { version } => {
                let text = format!("speaks version {version}, this side {VERSION}");
                return Err(Failure::Peer(text));
            }
            Request::Link => link::serve(device, channel, timeout)?,
            Request::Broadcast { name } => {
                let none = || Failure::Peer("gave the name zero".into());
                let name = Name::new(name).ok_or_else(none)?;
                broadcast::serve((common, name), device, channel)?;
            }
            Request::Optimistic => optimistic::serve(common.device, device, channel, timeout)?,
            Request::Quit => return send(channel, &Answer::Ready, timeout),
        }
    }
}
