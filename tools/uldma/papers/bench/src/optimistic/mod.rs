// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-bench optimistic`: remote DMA to memory that is not pinned, beside the same to pinned memory.
//!
//! | | |
//! | --- | --- |
//! | [`memory`] | memory whose pages come and go, and the ways to register it |
//! | [`owner`] | the process of the other node whose memory it is, and its messages |
//! | [`session`] | the process that measures, and its transfers |
//! | [`transfers`] | hits and exceptions |
//! | [`misses`] | pages that the owner has and the device does not know |
//! | [`load`] | reads while the owner gives up pages; what is pinned meanwhile |
//! | [`alone`] | registration and reclaim, which need no other node |

mod alone;
mod load;
mod memory;
mod misses;
mod owner;
mod session;
mod transfers;

use std::time::Duration;

use clap::{Args, ValueEnum};
use uldma::{Device, Name, Spin};

use self::owner::Order;
use self::session::Session;
use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{RemoteProcess, Request};

pub(crate) use self::owner::serve;

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Transfers of pages that are there
    Hits,
    /// Transfers of pages that never come
    Exceptions,
    /// Transfers of pages that the device has to be told of
    Misses,
    /// Reads while the owner gives up pages, and what is pinned meanwhile
    Load,
    /// Registration of much memory
    Registration,
    /// Reclaim of memory of an area
    Reclaim,
}

/// Options of `uldma-bench optimistic`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// These parts only
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,
}

/// Measures with the help of a `serve` at the peer.
pub(crate) fn run(
    number: u32,
    name: Name,
    timeout: Duration,
    options: &Options,
) -> Result<Figures, Failure> {
    let wanted = |part| options.parts.is_empty() || options.parts.contains(&part);
    let device = Device::open(number)?;
    let mut peer = RemoteProcess::meet(&device, name, timeout)?;
    // A wake-up of this process would be part of what is measured.
    peer.channel.set_spin(Spin::MEASURE);
    peer.ask(&Request::Optimistic)?;
    let mut figures = Figures::default();
    let mut session = Session::new(&mut peer, &device, name)?;
    if wanted(Part::Hits) {
        transfers::hits(&mut session, &mut figures)?;
    }
    if wanted(Part::Exceptions) {
        transfers::exceptions(&mut session, &mut figures)?;
    }
    if wanted(Part::Misses) {
        misses::measure(&mut session, &mut figures)?;
    }
    if wanted(Part::Load) {
        load::measure(&mut session, &mut figures)?;
    }
    session.order(&Order::End)?;
    drop(session);
    peer.quit()?;
    // The other process waits for the end of the channel, and not for long.
    drop(peer);
    if wanted(Part::Registration) {
        alone::registration(&device, &mut figures)?;
    }
    if wanted(Part::Reclaim) {
        alone::reclaim(&device, &mut figures)?;
    }
    Ok(figures)
}
