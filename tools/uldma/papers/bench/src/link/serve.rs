// SPDX-License-Identifier: MIT OR Apache-2.0

//! The process that answers: opens ends and takes part in their rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use uldma::{Channel, Device, Name};

use super::counters::Counters;
use super::opening::far;
use super::order::{Kind, Order, Report, What};
use super::sizes::LARGEST;
use super::transport::{Far, Opened, Setup};
use crate::failure::Failure;
use crate::peer::{receive, send};

/// Serves until the end of the session.
pub(crate) fn serve(
    device: &Device,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut ends: BTreeMap<Kind, Box<dyn Far>> = BTreeMap::new();
    send(channel, &Report::Ready, timeout)?;
    loop {
        match receive(channel, timeout)? {
            Order::Open {
                kind,
                size,
                name,
                port,
            } => {
                let report = match open(device, kind, size, (name, port), timeout) {
                    Ok(Opened {
                        end,
                        addresses,
                        port,
                    }) => {
                        ends.insert(kind, end);
                        Report::Open { addresses, port }
                    }
                    Err(failure) => Report::Failed {
                        message: failure.to_string(),
                    },
                };
                send(channel, &report, timeout)?;
            }
            Order::Round { kind, what, count } => {
                let end = ends
                    .get_mut(&kind)
                    .ok_or_else(|| Failure::Peer(format!("did not open {kind:?}")))?;
                round(device, channel, end.as_mut(), (what, count), timeout)?;
            }
            Order::Close { kind } => {
                drop(ends.remove(&kind));
                send(channel, &Report::Closed, timeout)?;
            }
            Order::End => return send(channel, &Report::Closed, timeout),
        }
    }
}

fn open(
    device: &Device,
    kind: Kind,
    size: usize,
    (name, port): (u64, u32),
    timeout: Duration,
) -> Result<Opened, Failure> {
    let name = Name::new(name).ok_or_else(|| Failure::Peer("gave the name zero".into()))?;
    if size == 0 || size > LARGEST {
        return Err(Failure::Peer(format!("asks for messages of {size} bytes")));
    }
    far(Setup {
        device,
        kind,
        size,
        name,
        port,
        timeout,
    })
}

fn round(
    device: &Device,
    channel: &mut Channel,
    end: &mut dyn Far,
    (what, count): (What, u32),
    timeout: Duration,
) -> Result<(), Failure> {
    end.begin()?;
    let before = counters(device, end)?;
    send(channel, &Report::Ready, timeout)?;
    match what {
        What::RoundTrips => end.round_trips(count)?,
        What::Stream => end.stream(count)?,
    }
    // Counters are read only now, since the other process takes the time.
    send(channel, &Report::Finished, timeout)?;
    let counters = counters(device, end)? - before;
    send(channel, &Report::Done { counters }, timeout)
}

fn counters(device: &Device, end: &dyn Far) -> Result<Counters, Failure> {
    Ok(Counters::read(device)?.with(end.counted()?))
}
