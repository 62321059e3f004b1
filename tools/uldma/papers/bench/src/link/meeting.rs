// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels whose ends meet when they are both ready for the first round.

use std::time::Duration;

use uldma::{Channel, ChannelListener, Device};

use super::transport::Setup;
use crate::failure::Failure;
use crate::peer::connect;

/// What an end does to meet the other one.
enum Side {
    Connect(Device, u32),
    Accept(ChannelListener),
}

/// Either end.
pub(super) struct Meeting {
    side: Side,
    capacity: u64,
    timeout: Duration,
    channel: Option<Channel>,
}

impl Meeting {
    /// The end that measures: it connects.
    pub(super) fn near(setup: Setup<'_>, capacity: u64) -> Self {
        let side = Side::Connect(setup.device.clone(), setup.port);
        Self::new(side, setup, capacity)
    }

    /// The end that answers: it listens from now on.
    pub(super) fn far(setup: Setup<'_>, capacity: u64) -> Result<Self, Failure> {
        let listener = ChannelListener::new(setup.device, setup.port, 1, capacity)?;
        Ok(Self::new(Side::Accept(listener), setup, capacity))
    }

    fn new(side: Side, setup: Setup<'_>, capacity: u64) -> Self {
        Self {
            side,
            capacity,
            timeout: setup.timeout,
            channel: None,
        }
    }

    /// Waits for the other end, unless it was met already.
    pub(super) fn meet(&mut self) -> Result<&mut Channel, Failure> {
        let channel = match self.channel.take() {
            Some(channel) => channel,
            None => match &self.side {
                Side::Connect(device, port) => connect(device, *port, self.capacity, self.timeout)?,
                Side::Accept(listener) => listener.accept(self.timeout)?.0,
            },
        };
        Ok(self.channel.insert(channel))
    }

    /// Returns the channel of ends that have met, and the limit of its waits.
    #[inline]
    pub(super) fn channel(&mut self) -> Result<(&mut Channel, Duration), Failure> {
        let none = || Failure::Peer("was not met".into());
        Ok((self.channel.as_mut().ok_or_else(none)?, self.timeout))
    }
}
