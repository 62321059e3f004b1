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
//! | [`patterns`], [`places`] | reads by patterns, where the device or a cache knows few pages |
//! | [`disk`], [`stale`] | pages that are read from a disk |
//! | [`load`] | reads while the owner gives up pages; what is pinned meanwhile |
//! | [`alone`] | registration and reclaim, which need no other node |

mod alone;
mod disk;
mod load;
mod memory;
mod misses;
mod owner;
mod patterns;
mod places;
mod session;
mod stale;
mod transfers;

use std::time::Duration;

use clap::{Args, ValueEnum};
use uldma::{Device, Spin};

use self::owner::Order;
use self::places::Pattern;
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
    /// What is pinned if each page is that was missed
    UNet,
    /// Registration of much memory
    Registration,
    /// Reclaim of memory of an area
    Reclaim,
    /// Reads by patterns, of more pages than the owner's driver may enter
    Entries,
    /// Reads by a pattern, for the device to count translations
    Translations,
    /// Pages on the owner's disk /dev/vda
    Disk,
    /// Reads of a file on the owner's disk /dev/vdb that is about as large as the owner's memory
    Stale,
}

impl Part {
    /// Returns true if nodes have what it needs as they are.
    fn is_usual(self) -> bool {
        !matches!(
            self,
            Self::Entries | Self::Translations | Self::Disk | Self::Stale
        )
    }
}

/// Options of `uldma-bench optimistic`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// These parts; if absent, those that need no other node than usual
    #[arg(long, value_name = "PART,...", value_delimiter = ',')]
    parts: Vec<Part>,
    /// The pattern for translations
    #[arg(long, value_name = "PATTERN", default_value = "uniform")]
    pattern: Pattern,
    /// Reads for translations, after one of each page
    #[arg(long, value_name = "N", default_value_t = 0)]
    reads: usize,
}

/// Measures with the help of a `serve` at the peer.
pub(crate) fn run(
    number: u32,
    port: u32,
    timeout: Duration,
    options: &Options,
) -> Result<Figures, Failure> {
    let wanted = |part: Part| match options.parts.as_slice() {
        [] => part.is_usual(),
        parts => parts.contains(&part),
    };
    let device = Device::open(number)?;
    let mut peer = RemoteProcess::meet(&device, port, timeout)?;
    // A wake-up of this process would be part of what is measured.
    peer.channel.set_spin(Spin::MEASURE);
    peer.ask(&Request::Optimistic)?;
    let mut figures = Figures::default();
    let mut session = Session::new(&mut peer, &device)?;
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
    if wanted(Part::UNet) {
        patterns::pinned_at_miss(&mut session, &mut figures)?;
    }
    if wanted(Part::Entries) {
        patterns::entries(&mut session, &mut figures)?;
    }
    if wanted(Part::Translations) {
        patterns::translations(&mut session, options.pattern, options.reads)?;
    }
    if wanted(Part::Disk) {
        disk::measure(&mut session, &mut figures)?;
    }
    if wanted(Part::Stale) {
        stale::measure(&mut session, &mut figures)?;
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
