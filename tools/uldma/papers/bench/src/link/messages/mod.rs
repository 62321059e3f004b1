// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message connections: messages that the device matches, by each technique.

mod places;
mod receivers;
mod senders;

use std::time::Duration;

use uldma::measure::Clock;
use uldma::{ConnectOptions, Device, MessageConnection, MessageListener};

use self::receivers::{receiver, Receiver};
use self::senders::{sender, Sender, PAGE};
use super::counters::Counted;
use super::sizes::depth;
use super::transport::{Far, Near, Setup};
use super::way::Way;
use crate::failure::Failure;

/// Both directions of one end.
struct Ends {
    // Dropped first, so that nothing is in flight when the memory is freed.
    connection: MessageConnection,
    sender: Box<dyn Sender>,
    receiver: Box<dyn Receiver>,
    timeout: Duration,
}

impl Ends {
    fn new(
        device: &Device,
        connection: MessageConnection,
        way: Way,
        size: usize,
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let memory = (size, depth(size));
        Ok(Self {
            sender: sender(way.sending, &connection, device, memory)?,
            receiver: receiver(way.receiving, device, memory)?,
            connection,
            timeout,
        })
    }

    fn prepost(&mut self) -> Result<(), Failure> {
        self.receiver.prepost(&mut self.connection)
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.sender.send(&mut self.connection, self.timeout)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        self.receiver.receive(&mut self.connection, self.timeout)
    }

    fn finish(&mut self) -> Result<(), Failure> {
        self.sender.finish(&mut self.connection, self.timeout)
    }
}

fn not_connected() -> Failure {
    Failure::Peer("has begun no round".into())
}

/// The end that connects, as soon as the other one accepts: in the first round.
pub(crate) struct Connecting {
    device: Device,
    way: Way,
    size: usize,
    port: u32,
    timeout: Duration,
    ends: Option<Ends>,
}

impl Connecting {
    pub(crate) fn new(setup: Setup<'_>, way: Way) -> Self {
        Self {
            device: setup.device.clone(),
            way,
            size: setup.size,
            port: setup.port,
            timeout: setup.timeout,
            ends: None,
        }
    }

    fn connect(&self) -> Result<MessageConnection, Failure> {
        // Of two nodes, one has the number zero.
        let peer = u32::from(self.device.query()?.node == 0);
        let connect = ConnectOptions {
            retry: true,
            timeout: self.timeout,
            ..ConnectOptions::default()
        };
        let options = self.way.options();
        Ok(MessageConnection::connect(
            &self.device,
            peer,
            self.port,
            options,
            connect,
        )?)
    }

    fn ends(&mut self) -> Result<&mut Ends, Failure> {
        self.ends.as_mut().ok_or_else(not_connected)
    }
}

impl Near for Connecting {
    fn begin(&mut self) -> Result<(), Failure> {
        if self.ends.is_none() {
            let ends = Ends::new(
                &self.device,
                self.connect()?,
                self.way,
                self.size,
                self.timeout,
            )?;
            self.ends = Some(ends);
        }
        self.ends()?.prepost()
    }

    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let ends = self.ends()?;
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            ends.send()?;
            ends.receive()?;
            samples.push(clock.ticks() - before);
        }
        ends.finish()?;
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let ends = self.ends()?;
        let began = clock.ticks();
        for _ in 0..count {
            ends.send()?;
        }
        ends.finish()?;
        Ok(began)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        let stats = self
            .ends
            .as_ref()
            .map(|ends| ends.connection.exchange_stats());
        let stats = stats.unwrap_or_default();
        Ok(Counted {
            copied: stats.pages_copied * PAGE as u64,
            ..Counted::default()
        })
    }
}

/// The end that accepts.
pub(crate) struct Accepting {
    device: Device,
    listener: MessageListener,
    way: Way,
    size: usize,
    timeout: Duration,
    ends: Option<Ends>,
}

impl Accepting {
    pub(crate) fn new(setup: Setup<'_>, way: Way) -> Result<Self, Failure> {
        way.check()?;
        Ok(Self {
            device: setup.device.clone(),
            listener: MessageListener::new(setup.device, setup.port, 1, way.options())?,
            way,
            size: setup.size,
            timeout: setup.timeout,
            ends: None,
        })
    }

    fn ends(&mut self) -> Result<&mut Ends, Failure> {
        self.ends.as_mut().ok_or_else(not_connected)
    }
}

impl Far for Accepting {
    fn begin(&mut self) -> Result<(), Failure> {
        if self.ends.is_none() {
            let (connection, _) = self.listener.accept(self.timeout)?;
            self.ends = Some(Ends::new(
                &self.device,
                connection,
                self.way,
                self.size,
                self.timeout,
            )?);
        }
        self.ends()?.prepost()
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        let ends = self.ends()?;
        for _ in 0..count {
            ends.receive()?;
            ends.send()?;
        }
        ends.finish()
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        let ends = self.ends()?;
        for _ in 0..count {
            ends.receive()?;
        }
        Ok(())
    }
}
