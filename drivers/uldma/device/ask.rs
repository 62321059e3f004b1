// SPDX-License-Identifier: GPL-2.0

//! Queries of open files to peers.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    kernel_ext::wait::Deadline,
    link::{
        message::{
            Answer,
            Message,
            Query, //
        },
        peer::Peer,
        requests::{
            Asking,
            RequestSlots, //
        },
        segment::Epoch, //
    },
    user_abi::ledger::Payer, //
};

use super::Shared;

impl Shared {
    /// Sends a query to `peer` and waits for the answer until `deadline`, with the slots of an
    /// open file; `payer` pays.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the peer has no object of that name, `ENOTCONN`, `ETIMEDOUT`, `EINTR`, `ENODEV`
    /// if the device is unbound, `EBUSY` if too many requests to this peer are pending, `EDQUOT`
    /// beyond the limits of the user, `ENOMEM`.
    pub(crate) fn ask(
        &self,
        (slots, payer): (&RequestSlots, &Arc<Payer>),
        peer: &Peer,
        query: Query,
        deadline: Deadline,
    ) -> Result<Answer> {
        let epoch = self.segments.epoch(peer.node());
        let asking = self.link.requests.open(peer.node(), slots, payer)?;
        let answer = self.ask_as(peer, &asking, query, deadline);
        if let Some(late) = asking.close() {
            self.decline(peer.node(), late, epoch);
        }
        match answer? {
            Answer::Refused => Err(ENOENT),
            answer => Ok(answer),
        }
    }

    /// Returns the offer of an answer of epoch `epoch`.
    pub(super) fn decline(&self, peer: u32, answer: Answer, epoch: Epoch) {
        if let Answer::Segment(segment) = answer {
            self.segments
                .decline(&self.segment_ctx(), peer, segment.offset, epoch);
        }
    }

    fn ask_as(
        &self,
        peer: &Peer,
        asking: &Asking<'_>,
        query: Query,
        deadline: Deadline,
    ) -> Result<Answer> {
        let message = Message::Query(asking.number(), query);
        loop {
            {
                let guard = self.gate.try_enter()?;
                match peer.send(guard.hw(), &message) {
                    // The peer's driver is not loaded yet, or is slow.
                    Ok(()) | Err(EBUSY) => (),
                    Err(err) => return Err(err),
                }
            }
            if let Some(answer) = asking.wait(deadline.left())? {
                return Ok(answer);
            }
            if deadline.left() == 0 {
                return Err(ETIMEDOUT);
            }
        }
    }
}
