// SPDX-License-Identifier: MIT OR Apache-2.0

//! The side that answers: opens ends as told, and takes part in their rounds.

use std::collections::BTreeMap;
use std::time::Duration;

use uldma::{Channel, Device, Name};

use super::contender::{Far, Opened, Setup};
use super::counters::Counters;
use super::opening::far;
use super::order::{Kind, Order, Report, What};
use super::sizes::LARGEST;
use crate::failure::Failure;
use crate::peer::{hear, say};

/// Serves until the other side has seen enough.
pub(crate) fn serve(
    device: &Device,
    channel: &mut Channel,
    timeout: Duration,
) -> Result<(), Failure> {
    let mut ends: BTreeMap<Kind, Box<dyn Far>> = BTreeMap::new();
    say(channel, &Report::Ready, timeout)?;
    loop {
        match hear(channel, timeout)? {
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
                say(channel, &report, timeout)?;
            }
            Order::Round { kind, what, count } => {
                let end = ends
                    .get_mut(&kind)
                    .ok_or_else(|| Failure::Peer(format!("did not open {kind:?}")))?;
                round(device, channel, end.as_mut(), (what, count), timeout)?;
            }
            Order::Close { kind } => {
                drop(ends.remove(&kind));
                say(channel, &Report::Closed, timeout)?;
            }
            Order::End => return say(channel, &Report::Closed, timeout),
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
    say(channel, &Report::Ready, timeout)?;
    match what {
        What::RoundTrips => end.round_trips(count)?,
        What::Stream => end.stream(count)?,
    }
    // What is counted is looked up only now, since the other side has its eye on the clock.
    say(channel, &Report::Finished, timeout)?;
    let counters = counters(device, end)? - before;
    say(channel, &Report::Done { counters }, timeout)
}

fn counters(device: &Device, end: &dyn Far) -> Result<Counters, Failure> {
    Ok(Counters::read(device)?.with(end.counted()?))
}
