// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections: messages of a byte stream, in memory that is used again.

use std::io::ErrorKind;
use std::time::Duration;

use uldma::measure::Clock;
use uldma::{Chunk, ConnectOptions, Connection, Device, Error, Offer, Peer};

use super::counters::Counted;
use super::order::Kind;
use super::sizes::depth;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Messages of one direction: those that are here, and one that came back in part.
///
/// They come back in the order in which they were given, each next to the one before, so parts of one
/// can be put together.
#[derive(Debug)]
struct Messages {
    here: Vec<Chunk>,
    part: Option<Chunk>,
    size: usize,
}

impl Messages {
    /// Makes as many as are in flight at a time.
    fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let (size, count) = (setup.size, depth(setup.size));
        let mut all = match setup.kind {
            Kind::Unpinned => Chunk::new(size * count)?,
            _ => Chunk::pinned(setup.device, size * count)?,
        };
        all.fill(0xa5);
        let mut here: Vec<Chunk> = (0..count).map(|_| all.split_to(size)).collect();
        // The first one is taken first.
        here.reverse();
        Ok(Self {
            here,
            part: None,
            size,
        })
    }

    /// Returns a message, if any is here.
    fn take(&mut self) -> Option<Chunk> {
        self.here.pop()
    }

    /// Reaps parts until a message is whole.
    fn get(
        &mut self,
        mut back: impl FnMut(usize) -> uldma::Result<Option<Chunk>>,
    ) -> Result<(), Failure> {
        loop {
            let missing = self.size - self.part.as_ref().map_or(0, |part| part.len());
            let piece = back(missing)?.ok_or(Error::Closed)?;
            let whole = match self.part.take() {
                None => piece,
                Some(mut part) => {
                    part.join(piece).map_err(|_| {
                        Failure::Io("memory of a connection", ErrorKind::InvalidData.into())
                    })?;
                    part
                }
            };
            if whole.len() < self.size {
                self.part = Some(whole);
                continue;
            }
            self.here.insert(0, whole);
            return Ok(());
        }
    }
}

/// Both directions of one end.
#[derive(Debug)]
struct Ends {
    // Dropped first, so that nothing is in flight when the memory is freed.
    connection: Connection,
    inbox: Messages,
    outbox: Messages,
    timeout: Duration,
}

impl Ends {
    fn new(connection: Connection, setup: Setup<'_>) -> Result<Self, Failure> {
        Ok(Self {
            connection,
            inbox: Messages::new(setup)?,
            outbox: Messages::new(setup)?,
            timeout: setup.timeout,
        })
    }

    /// Has memory ready for all that may come.
    fn prepost(&mut self) -> Result<(), Failure> {
        while let Some(piece) = self.inbox.take() {
            self.connection.prepost(piece).map_err(Error::from)?;
        }
        Ok(())
    }

    /// Waits for a message.
    fn receive(&mut self) -> Result<(), Failure> {
        let (connection, timeout) = (&self.connection, self.timeout);
        self.inbox.get(|most| connection.recv(most, timeout))
    }

    /// Sends a message, once one is here.
    fn send(&mut self) -> Result<(), Failure> {
        let piece = loop {
            match self.outbox.take() {
                Some(piece) => break piece,
                None => self.reclaim()?,
            }
        };
        Ok(self.connection.send(piece).map_err(Error::from)?)
    }

    /// Waits until the oldest message in flight is in the peer's memory.
    fn reclaim(&mut self) -> Result<(), Failure> {
        let (connection, timeout) = (&self.connection, self.timeout);
        self.outbox.get(|most| connection.recycle(most, timeout))
    }

    fn reclaim_all(&mut self) -> Result<(), Failure> {
        while self.outbox.here.len() < depth(self.outbox.size) {
            self.reclaim()?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted, Failure> {
        let info = self.connection.query()?;
        Ok(Counted {
            copied: info.copied,
            locks: info.locks,
        })
    }
}

/// Lets the devices match the streams of a connection with registered memory that senders move.
fn match_streams(connection: &Connection, kind: Kind) -> Result<(), Failure> {
    if kind == Kind::Push {
        connection.match_streams()?;
    }
    Ok(())
}

/// The end that connects.
pub(crate) struct Connected(Ends);

impl Connected {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let options = ConnectOptions {
            pull: setup.kind == Kind::Pull,
            retry: true,
            timeout: setup.timeout,
            ..ConnectOptions::default()
        };
        let connection = setup.device.connect(Peer::OTHER, setup.port, options)?;
        match_streams(&connection, setup.kind)?;
        Ok(Self(Ends::new(connection, setup)?))
    }
}

impl Near for Connected {
    fn begin(&mut self) -> Result<(), Failure> {
        self.0.prepost()
    }

    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            self.0.send()?;
            self.0.receive()?;
            samples.push(clock.ticks() - before);
            self.0.reclaim()?;
            self.0.prepost()?;
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        for _ in 0..count {
            self.0.send()?;
        }
        self.0.reclaim_all()?;
        Ok(began)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        self.0.counted()
    }
}

/// The end that listens.
pub(crate) struct Listening {
    ends: Ends,
    kind: Kind,
    connected: bool,
}

impl Listening {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let device: &Device = setup.device;
        let connection = device.listen_once(setup.port, Offer::default())?;
        Ok(Self {
            ends: Ends::new(connection, setup)?,
            kind: setup.kind,
            connected: false,
        })
    }
}

impl Far for Listening {
    fn begin(&mut self) -> Result<(), Failure> {
        if !self.connected {
            self.ends.connection.wait_connected(self.ends.timeout)?;
            match_streams(&self.ends.connection, self.kind)?;
            self.connected = true;
        }
        self.ends.prepost()
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.ends.receive()?;
            self.ends.send()?;
            self.ends.prepost()?;
        }
        self.ends.reclaim_all()
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.ends.receive()?;
            self.ends.prepost()?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted, Failure> {
        self.ends.counted()
    }
}
