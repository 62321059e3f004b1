// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receiving through the engine: into posted buffers, or out of slots, and the credits for both.

use std::time::Duration;

use super::Engine;
use crate::error::{Error, Result};
use crate::memory::buffer::Buffer;
use crate::message::receiving::check;
use crate::message::ReceiveTechnique;
use crate::transfer::endpoint::Reception;
use crate::wait::deadline::Deadline;
use crate::wait::wakeup::LONGEST_SLEEP;

impl Engine {
    /// Posts a buffer for one message, by `V2P_DMA`. It is pinned until it is received.
    pub(crate) fn post(&mut self, buffer: Buffer) -> Result<()> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        self.receiver
            .post(&self.device, &self.endpoint, &self.context, buffer)?;
        self.tell_credits();
        Ok(())
    }

    /// Receives the next message into the oldest posted buffer. Returns the buffer, and the length
    /// of the message.
    pub(crate) fn receive_buffer(&mut self, timeout: Duration) -> Result<(Buffer, usize)> {
        let technique = self.options.receiving;
        if self.receiver.has_slots() {
            return Err(technique.refused("messages arrive in slots"));
        }
        let reception = self.wait_reception(Deadline::after(timeout))?;
        let buffer = self.receiver.take_buffer(&reception)?;
        check(&reception)?;
        let length = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
        Ok((buffer, length))
    }

    /// Receives the next message into the start of `target`, and returns its length. If the time is
    /// over in the middle of a message, the next call goes on with it.
    pub(crate) fn receive(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        self.check_receives_messages()?;
        if !self.receiver.has_slots() {
            let technique = self.options.receiving;
            return Err(technique.refused("messages arrive in posted buffers"));
        }
        let deadline = Deadline::after(timeout);
        let mut length = self.receiver.begun.resume(target);
        let mut has_begun = length > 0;
        loop {
            // A message without end must not keep the caller here.
            let waited = if has_begun && deadline.is_over() {
                Err(deadline.missed("end of the message"))
            } else if self.options.receiving == ReceiveTechnique::Redirect {
                let rest = target.get_mut(length..).unwrap_or_default();
                self.wait_redirected(rest, deadline)
            } else {
                self.wait_reception(deadline)
            };
            let reception =
                waited.inspect_err(|_| self.receiver.begun.interrupted(target, length))?;
            if self.exchanges.are_sending() {
                // Pages whose send has ended can be exchanged.
                let harvested = self.harvest();
                harvested.inspect_err(|_| self.receiver.begun.interrupted(target, length))?;
            }
            let rest = target.get_mut(length..).unwrap_or_default();
            let reception = self.receiver.join(reception, rest.len(), &self.endpoint);
            // The rest of a message that failed must not be taken for another message.
            let taken = self
                .receiver
                .take_piece(&reception, rest, &mut self.exchanges);
            self.receiver.note(&reception, taken);
            self.post_slots()?;
            let bytes = usize::try_from(reception.bytes).unwrap_or(usize::MAX);
            length = length.saturating_add(bytes);
            has_begun = true;
            if !reception.more {
                break;
            }
        }
        let failure = self.receiver.take_failure();
        failure.map_err(|error| self.reason_of(error))?;
        if length > target.len() {
            let limit = target.len();
            return Err(Error::TooLong { length, limit });
        }
        Ok(length)
    }

    /// Posts the slots that are free, and tells the peer before it has to wait for them.
    pub(super) fn post_slots(&mut self) -> Result<()> {
        self.receiver.post_slots(&self.endpoint, &self.context)?;
        let untold = self.control.untold(self.endpoint.posted());
        if untold * 2 >= u64::from(self.options.slots) {
            self.tell_credits();
        }
        Ok(())
    }

    /// Tells the peer what is posted. If the peer has ended, the next wait reports that, after the
    /// last message.
    fn tell_credits(&mut self) {
        let _ = self.control.tell(self.endpoint.posted());
    }

    /// Waits for the next message of the device.
    pub(super) fn wait_reception(&mut self, deadline: Deadline) -> Result<Reception> {
        let number = self.receiver.next();
        let polled = self
            .context
            .poll(self.spin, || self.endpoint.ended(number).transpose());
        if let Some(reception) = polled {
            return reception;
        }
        loop {
            let posted = self.endpoint.posted();
            let ended = self
                .control
                .tell(posted)
                .and_then(|()| self.control.collect())
                .and_then(|()| self.control.check_peer());
            // The peer's last messages come before its end.
            if let Some(reception) = self.endpoint.ended(number)? {
                return Ok(reception);
            }
            ended?;
            if deadline.is_over() {
                return Err(deadline.missed("message from the peer"));
            }
            self.endpoint.wait(number, deadline.within(LONGEST_SLEEP))?;
        }
    }
}
