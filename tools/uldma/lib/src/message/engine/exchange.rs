// SPDX-License-Identifier: MIT OR Apache-2.0

//! `PEX_DMA` at the sender: a message goes out from its own pages, which are protected meanwhile, or
//! by another technique where that is not possible.

use std::sync::Arc;

use nix::errno::Errno;

use super::{destination, Engine};
use crate::device::heap::{Area, Part};
use crate::error::{Error, Result};
use crate::message::exchange::{ExchangeStats, Reason};
use crate::message::sending::Target;
use crate::transfer::ticket::Ticket;
use crate::wait::deadline::Deadline;

impl Engine {
    pub(crate) fn exchange_stats(&self) -> ExchangeStats {
        self.exchanges.stats
    }

    /// Sends a message by `PEX_DMA`, or, if that is not possible, in another way that leaves the
    /// caller its bytes.
    pub(super) fn send_exchanged(
        &mut self,
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        let place = self
            .exchanges
            .locate(message.as_ptr() as usize, message.len());
        let sent = match place {
            Ok((area, offset)) => self.send_protected((area, offset), message, target, deadline),
            Err(reason) => Err(reason),
        };
        match sent {
            Ok(sent) => sent,
            Err(reason) => {
                self.exchanges.stats.not_sent.count(reason, 1);
                self.send_instead(message, reason, target, deadline)
            }
        }
    }

    fn send_protected(
        &mut self,
        (area, offset): (Arc<Area>, u64),
        message: &[u8],
        target: Target,
        deadline: Deadline,
    ) -> std::result::Result<Result<()>, Reason> {
        let length = message.len() as u64;
        let part = Part {
            area: &area,
            offset,
            length,
        };
        let pieces = match self.sender.pieces(length) {
            Ok(pieces) => pieces,
            Err(error) => return Ok(Err(error)),
        };
        while let Err(errno) = self.exchanges.protect(&part) {
            match errno {
                // A page was written while it is sent: it cannot be sent again before.
                Errno::EBUSY => {
                    let sent = self.exchanges.newest_over(&part).ok_or(Reason::Busy)?;
                    if let Err(error) = self.wait_ended(sent, deadline) {
                        return Ok(Err(error));
                    }
                    if deadline.is_over() {
                        return Ok(Err(deadline.missed("end of a message from the same pages")));
                    }
                }
                Errno::ENOMEM | Errno::EPERM => return Err(Reason::Limit),
                errno => return Ok(Err(Error::system("protect pages", errno))),
            }
        }
        let index = area.index();
        let mut last = None;
        let mut result = Ok(());
        for piece in pieces {
            let pushed = self.wait_for(target, deadline).and_then(|()| {
                let place = (index, offset + piece.offset);
                let to = destination(&self.endpoint, target);
                self.sender.push_at(&self.context, to, place, piece)
            });
            match pushed {
                Ok(ticket) => last = Some(ticket),
                Err(error) => {
                    self.sender.tear(piece);
                    result = Err(error);
                    break;
                }
            }
        }
        // If no piece was pushed, it ends with those before, of which some may be of its pages.
        let last = last.or(self.sender.newest()).unwrap_or(Ticket(0));
        self.exchanges.keep(last, area, offset, length);
        let result = result.and_then(|()| self.end_put(target, length, None, deadline));
        self.exchanges.stats.sent += u64::from(result.is_ok());
        Ok(result.map(drop))
    }

    /// Sends a message that cannot be exchanged: a longer one that can be pinned by `V2P_DMA`, any
    /// other one by `COPY_DMA`.
    fn send_instead(
        &mut self,
        message: &[u8],
        reason: Reason,
        target: Target,
        deadline: Deadline,
    ) -> Result<()> {
        if reason == Reason::Ordinary && message.len() > self.options.slot {
            if let Ok(region) = self.device.register_readable(message) {
                self.exchanges.stats.not_sent.pinned += 1;
                return self.send_registered(region, message.len() as u64, target, deadline);
            }
        }
        self.send_copy(message, target, deadline)
    }
}
