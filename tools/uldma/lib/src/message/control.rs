// SPDX-License-Identifier: MIT OR Apache-2.0

//! The channel of a message connection between two endpoints: credits, and the end of the peer.

use crate::channel::Channel;
use crate::error::{Error, Result};
use crate::ring::Violation;
use crate::transfer::status::RECORDS;
use crate::wait::deadline::Deadline;
use crate::wait::spin::Spin;

/// The channel, and the credits that the two sides have told each other over it.
#[derive(Debug)]
pub(super) struct Control {
    /// Buffers that the peer has posted so far.
    credits: u64,
    /// Buffers of this side that the peer knows of.
    told: u64,
    channel: Channel,
}

impl Control {
    /// Takes the channel of two sides that know each other.
    pub(super) fn new(channel: Channel) -> Self {
        Self {
            credits: 0,
            told: 0,
            channel,
        }
    }

    pub(super) fn set_spin(&mut self, spin: Spin) {
        self.channel.set_spin(spin);
    }

    /// Returns how many buffers the peer has posted so far.
    pub(super) fn credits(&self) -> u64 {
        self.credits
    }

    /// Returns how many of `posted` buffers the peer does not know of.
    pub(super) fn untold(&self, posted: u64) -> u64 {
        posted.saturating_sub(self.told)
    }

    /// Tells the peer how many buffers are posted, unless it knows, or has not read what it was told
    /// before.
    pub(super) fn tell(&mut self, posted: u64) -> Result<()> {
        if posted != self.told && self.channel.try_send(&posted.to_le_bytes())? {
            self.told = posted;
        }
        Ok(())
    }

    /// Takes the credits that the peer has sent.
    pub(super) fn collect(&mut self) -> Result<()> {
        let mut bytes = [0; 8];
        // A peer that sends without end must not keep this side here.
        for _ in 0..RECORDS {
            match self.channel.try_receive(&mut bytes)? {
                Some(length) => self.note(&bytes, length)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Waits until the peer sends credits.
    pub(super) fn wait(&mut self, deadline: Deadline) -> Result<()> {
        let mut bytes = [0; 8];
        let received = self.channel.receive(&mut bytes, deadline.left());
        let length = received.map_err(|error| match error {
            Error::Timeout { .. } => deadline.missed("buffer of the peer"),
            other => other,
        })?;
        self.note(&bytes, length)
    }

    fn note(&mut self, bytes: &[u8; 8], length: usize) -> Result<()> {
        match credits(self.credits, bytes, length) {
            Some(credits) => {
                self.credits = credits;
                Ok(())
            }
            None => {
                self.abandon(Violation::Handshake);
                Err(Violation::Handshake.into())
            }
        }
    }

    /// Ends the connection to a peer that breaks the rules.
    pub(super) fn abandon(&mut self, violation: Violation) {
        self.channel.abandon(violation.into());
    }

    /// Finds out if the peer has ended, without waiting.
    pub(super) fn check_peer(&mut self) -> Result<()> {
        self.channel.check_peer()
    }
}

/// Decodes a credit message; `known` is what the peer said before, and it has something to tell only
/// when that has grown.
fn credits(known: u64, bytes: &[u8; 8], length: usize) -> Option<u64> {
    let credits = u64::from_le_bytes(*bytes);
    (length == bytes.len() && credits > known).then_some(credits)
}

#[cfg(test)]
mod tests {
    #[test]
    fn credits_grow_with_each_message() {
        let told = |known, credits: u64| super::credits(known, &credits.to_le_bytes(), 8);
        assert_eq!(told(0, 8), Some(8));
        assert_eq!(told(8, 8), None);
        assert_eq!(told(8, 7), None);
        assert_eq!(super::credits(0, &[1; 8], 7), None);
    }
}
