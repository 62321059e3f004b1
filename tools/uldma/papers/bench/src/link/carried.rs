// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections as streams whose bytes both programs copy through rings.

use std::io::{Read, Write};
use std::time::Duration;

use uldma::measure::Clock;
use uldma::{ConnectOptions, Connection, Peer, Stream, StreamOptions};

use super::counters::Counted;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// One end, which becomes a stream when both begin.
enum End {
    Connection(Connection),
    Stream(Stream),
    /// The other end did not become a stream.
    Failed,
}

/// An end and its message.
struct Carried {
    end: End,
    message: Vec<u8>,
    timeout: Duration,
}

impl Carried {
    fn new(connection: Connection, setup: Setup<'_>) -> Self {
        Self {
            end: End::Connection(connection),
            message: vec![0xa5; setup.size],
            timeout: setup.timeout,
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.end = match std::mem::replace(&mut self.end, End::Failed) {
            End::Connection(connection) => {
                connection.wait_connected(self.timeout)?;
                let mut stream = connection.into_stream(options())?;
                if !stream.connection().query()?.ring {
                    return Err(Failure::Refused("the window has no room for rings"));
                }
                stream.set_timeout(self.timeout);
                End::Stream(stream)
            }
            other => other,
        };
        Ok(())
    }

    fn parts(&mut self) -> Result<(&mut Stream, &mut [u8]), Failure> {
        match &mut self.end {
            End::Stream(stream) => Ok((stream, &mut self.message)),
            _ => Err(Failure::Refused("the connection is no stream")),
        }
    }

    fn send(&mut self) -> Result<(), Failure> {
        let (stream, message) = self.parts()?;
        stream.write_all(message).map_err(failed)
    }

    fn receive(&mut self) -> Result<(), Failure> {
        let (stream, message) = self.parts()?;
        stream.read_exact(message).map_err(failed)
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.parts()?.0.flush().map_err(failed)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        let connection = match &self.end {
            End::Connection(connection) => connection,
            End::Stream(stream) => stream.connection(),
            End::Failed => return Ok(Counted::default()),
        };
        let info = connection.query()?;
        Ok(Counted {
            copied: info.copied,
            locks: info.locks,
        })
    }
}

fn options() -> StreamOptions {
    StreamOptions {
        ring: true,
        ..StreamOptions::default()
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Io("a stream through rings", error)
}

/// The end that connects.
pub(crate) struct Connected(Carried);

impl Connected {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let options = ConnectOptions {
            retry: true,
            timeout: setup.timeout,
            offer: options().offer()?,
            ..ConnectOptions::default()
        };
        let connection = setup.device.connect(Peer::OTHER, setup.port, options)?;
        Ok(Self(Carried::new(connection, setup)))
    }
}

impl Near for Connected {
    fn begin(&mut self) -> Result<(), Failure> {
        self.0.begin()
    }

    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            self.0.send()?;
            self.0.receive()?;
            samples.push(clock.ticks() - before);
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        for _ in 0..count {
            self.0.send()?;
        }
        self.0.flush()?;
        Ok(began)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        self.0.counted()
    }
}

/// The end that listens.
pub(crate) struct Listening(Carried);

impl Listening {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let connection = setup.device.listen_once(setup.port, options().offer()?)?;
        Ok(Self(Carried::new(connection, setup)))
    }
}

impl Far for Listening {
    fn begin(&mut self) -> Result<(), Failure> {
        self.0.begin()
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.0.receive()?;
            self.0.send()?;
        }
        Ok(())
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.0.receive()?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted, Failure> {
        self.0.counted()
    }
}
