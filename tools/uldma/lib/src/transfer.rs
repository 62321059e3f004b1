// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers of any length, cut into initiations.

pub(crate) mod context;
pub(crate) mod descriptor;
pub(crate) mod dma;
pub(crate) mod endpoint;
pub(crate) mod queue;
pub(crate) mod size_word;
pub(crate) mod status;
pub(crate) mod ticket;

use std::collections::VecDeque;
use std::time::Duration;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::method::Method;
use crate::region::shadow::Shadow;
use crate::transfer::context::Context;
use crate::wait::spin::Spin;

pub use context::{ContextStats, Initiated};
pub use descriptor::Order;
pub use endpoint::{EndpointName, Reception};
pub use queue::Batch;
pub use size_word::MAX_TRANSFER;
pub use ticket::KernelTicket;

/// Initiations that are on their way at once, at most: what the device's queue and its completion
/// records hold.
const QUEUE_DEPTH: usize = crate::sys::uapi::ULDMA_STATUS_RECORDS as usize;

/// Chunks keep to page boundaries when a transfer is cut.
const CUT: u64 = 65536;

/// A range of a region: its shadow pages and the offset of its first byte.
pub type Start<'a> = (&'a Shadow<'a>, u64);

/// Transfers on their way, in one or more initiations each.
#[derive(Debug)]
pub struct Started {
    /// Not yet waited for, oldest first.
    pending: VecDeque<(Initiated, u64)>,
    /// Initiations so far.
    pub initiations: u64,
    /// Of these, how many the kernel started.
    pub by_kernel: u64,
    /// Bytes whose end was observed.
    pub moved: u64,
}

impl Started {
    /// None yet. Memory for all that can be on its way is set aside here, so that starting
    /// allocates nothing.
    pub fn new() -> Self {
        Self {
            pending: VecDeque::with_capacity(QUEUE_DEPTH),
            initiations: 0,
            by_kernel: 0,
            moved: 0,
        }
    }
}

impl Default for Started {
    fn default() -> Self {
        Self::new()
    }
}

/// The pieces of a transfer of `bytes` bytes, each of `most` at most: offset and length.
fn pieces(bytes: u64, most: u64) -> impl Iterator<Item = (u64, u64)> {
    let piece = if most > CUT {
        most - most % CUT
    } else {
        most.max(1)
    };
    // A transfer that fits in one initiation is not split.
    let piece = if bytes <= most { bytes.max(1) } else { piece };
    (0..bytes.div_ceil(piece)).map(move |index| {
        let offset = index * piece;
        (offset, piece.min(bytes - offset))
    })
}

impl Context {
    /// Starts a transfer of any length by the context's method, in as many initiations as that needs:
    /// one for each [`Context::max_transfer`] bytes.
    ///
    /// While the device's queue has room, no system call is made, other than by [`Method::Kernel`] and
    /// where [`Context::dma`] falls back to it.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], [`Error::Refused`]; transfers that were started before continue.
    pub fn start(
        &self,
        started: &mut Started,
        source: Start<'_>,
        destination: Start<'_>,
        bytes: u64,
        wait: (Spin, Duration),
    ) -> Result<()> {
        for (offset, length) in pieces(bytes, self.max_transfer()) {
            let from = source.0.at(offset_in(source, offset)?)?;
            let to = destination.0.at(offset_in(destination, offset)?)?;
            loop {
                if started.pending.len() == QUEUE_DEPTH {
                    self.finish_oldest(started, wait)?;
                }
                match self.dma(from, to, length) {
                    Ok(transfer) => {
                        started.pending.push_back((transfer, length));
                        started.initiations += 1;
                        started.by_kernel += u64::from(transfer.via == Method::Kernel);
                        break;
                    }
                    Err(error) if is_full(&error) && !started.pending.is_empty() => {
                        self.finish_oldest(started, wait)?;
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Waits for all started transfers: polls and sleeps as [`Context::wait`] does, separately for
    /// each initiation.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], [`Error::Transfer`], [`Error::RecordLost`], [`Error::System`], as for
    /// [`Context::wait`].
    pub fn finish(&self, started: &mut Started, wait: (Spin, Duration)) -> Result<()> {
        while !started.pending.is_empty() {
            self.finish_oldest(started, wait)?;
        }
        Ok(())
    }

    fn finish_oldest(&self, started: &mut Started, wait: (Spin, Duration)) -> Result<()> {
        if let Some((transfer, bytes)) = started.pending.pop_front() {
            self.dma_wait(transfer, wait.0, wait.1)?;
            started.moved += bytes;
        }
        Ok(())
    }
}

/// The queue is full, the context's or that of the kernel, or this user's share of the latter.
fn is_full(error: &Error) -> bool {
    matches!(error, Error::Refused(Refusal::QueueFull))
        || matches!(error.errno(), Some(Errno::EBUSY | Errno::EDQUOT))
}

fn offset_in(start: Start<'_>, offset: u64) -> Result<u64> {
    let size = start.0.length();
    start.1.checked_add(offset).ok_or(Error::Range {
        offset: start.1,
        length: offset,
        size,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::size_word::MAX_TRANSFER;
    use proptest::prelude::*;

    #[test]
    fn sixteen_megabytes_are_one_initiation() {
        let all: Vec<_> = pieces(16 << 20, MAX_TRANSFER).collect();
        assert_eq!(all, [(0, 16 << 20)]);
        assert_eq!(pieces(MAX_TRANSFER, MAX_TRANSFER).count(), 1);
        assert_eq!(pieces(MAX_TRANSFER + 1, MAX_TRANSFER).count(), 2);
        assert_eq!(pieces(0, MAX_TRANSFER).count(), 0);
    }

    proptest! {
        #[test]
        fn pieces_cover_everything_once(bytes in 0..1u64 << 34, most in (1 << 20)..=MAX_TRANSFER) {
            let mut next = 0;
            for (offset, length) in pieces(bytes, most) {
                prop_assert_eq!(offset, next);
                prop_assert!(length > 0 && length <= most);
                next += length;
            }
            prop_assert_eq!(next, bytes);
        }
    }
}
