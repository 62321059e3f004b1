// SPDX-License-Identifier: MIT OR Apache-2.0

//! An irregular pattern: how many messages a process sends next, and of which length, depends on the
//! data that it has received. Two processes take turns, by techniques of choice.
//!
//! Run `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example irregular`: on one node
//! with `SENDING RECEIVING PORT`, on the other with `SENDING RECEIVING PORT NODE`; with
//! `ULDMA_DEVICE` set if the device is not `/dev/uldma0`.

use std::time::Duration;
use uldma::message::PutArea;
use uldma::{
    Access, Buffer, ConnectOptions, Device, ExchangeBuffer, MessageConnection, MessageListener,
    MessageOptions, ReceiveTechnique, Region, SendTechnique,
};

const TURNS: u32 = 60;
const LONGEST: usize = 40_000;
/// Messages of one turn, at most.
const BURST: usize = 4;
const TIMEOUT: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [sending, receiving, port, node @ ..] = arguments.as_slice() else {
        panic!("usage: irregular SENDING RECEIVING PORT [NODE]");
    };
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    let options = MessageOptions {
        sending: sending.parse()?,
        receiving: receiving.parse()?,
        ..Default::default()
    };
    let port: u32 = port.parse()?;
    let connection = match node {
        [] => {
            let listener = MessageListener::new(&device, port, 1, options)?;
            eprintln!("listening");
            listener.accept(TIMEOUT)?.0
        }
        [node, ..] => {
            let node = node.parse()?;
            let wait = ConnectOptions::default();
            MessageConnection::connect(&device, node, port, options, wait)?
        }
    };
    let begins = !node.is_empty();
    let mut end = End::new(&device, connection, options)?;
    let (mut state, mut messages) = (1, 0u32);
    for turn in 0..TURNS {
        let sends = (turn % 2 == 0) == begins;
        // Both sides know the state, so the receiver can check what it gets.
        let count = 1 + state as usize % BURST;
        for _ in 0..count {
            // Nothing would say that the device has read an empty put.
            let length = 1 + (state >> 8) as usize % LONGEST;
            if sends {
                end.send(&bytes(state, length))?;
            } else {
                let message = end.receive()?;
                assert!(
                    message == bytes(state, length),
                    "message {messages} has changed"
                );
            }
            state = next(state, length);
            messages += 1;
        }
    }
    end.connection.flush(TIMEOUT)?;
    println!("{messages} messages by {sending} and {receiving}");
    Ok(())
}

/// One side, with the memory that its techniques need.
struct End {
    connection: MessageConnection,
    options: MessageOptions,
    source: Source,
    target: Option<ExchangeBuffer>,
    places: Option<Places>,
}

/// The places of a peer that receives by DIRECT_DMA, as many as puts that it has not asked for.
struct Places {
    area: PutArea,
    next: u32,
}

impl Places {
    /// Returns the offset of the next place; they are used in turns.
    fn take(&mut self) -> u64 {
        let size = self.area.bytes / u64::from(self.area.puts);
        self.next = (self.next + 1) % self.area.puts;
        u64::from(self.next) * size
    }
}

enum Source {
    Any,
    Exchangeable(ExchangeBuffer),
    Registered(Region),
}

impl End {
    fn new(
        device: &Device,
        mut connection: MessageConnection,
        options: MessageOptions,
    ) -> uldma::Result<Self> {
        let source = match options.sending {
            SendTechnique::PexDma => Source::Exchangeable(device.exchangeable(LONGEST)?),
            SendTechnique::DirectDma => {
                let buffer = Buffer::new(LONGEST)?;
                Source::Registered(connection.device().register(buffer, Access::Read)?)
            }
            _ => Source::Any,
        };
        let target = match options.receiving {
            ReceiveTechnique::PexDma => Some(device.exchangeable(LONGEST)?),
            ReceiveTechnique::V2pDma => {
                // As many and as long as the pattern can need.
                for _ in 0..BURST {
                    connection.post(Buffer::new(LONGEST)?)?;
                }
                None
            }
            _ => None,
        };
        let places = connection.outbound().map(|area| Places { area, next: 0 });
        Ok(Self {
            connection,
            options,
            source,
            target,
            places,
        })
    }

    fn send(&mut self, message: &[u8]) -> uldma::Result<()> {
        let place = self.places.as_mut().map(Places::take);
        let connection = &mut self.connection;
        let message = match &mut self.source {
            Source::Any => message,
            Source::Exchangeable(buffer) => {
                let source = &mut buffer[..message.len()];
                source.copy_from_slice(message);
                &*source
            }
            Source::Registered(region) => {
                region.write(0, message)?;
                let part = 0..message.len() as u64;
                let sent = match place {
                    Some(offset) => connection.start_put(region, part, offset, TIMEOUT),
                    None => connection.start(region, part, TIMEOUT),
                };
                return connection.wait_sent(&sent?, TIMEOUT);
            }
        };
        match place {
            Some(offset) => connection.put(message, offset, TIMEOUT),
            None => connection.send(message, TIMEOUT),
        }
    }

    fn receive(&mut self) -> uldma::Result<Vec<u8>> {
        if self.options.receiving == ReceiveTechnique::V2pDma {
            let (buffer, length) = self.connection.receive_buffer(TIMEOUT)?;
            let message = buffer[..length].to_vec();
            self.connection.post(buffer)?;
            return Ok(message);
        }
        if self.options.receiving == ReceiveTechnique::DirectDma {
            let put = self.connection.receive_put(TIMEOUT)?;
            let mut message = vec![0; put.length as usize];
            if let Some(memory) = self.connection.inbound() {
                memory.read(put.offset, &mut message)?;
            }
            return Ok(message);
        }
        let mut any = vec![0; LONGEST];
        let target = self.target.as_deref_mut().unwrap_or(&mut any);
        let length = self.connection.receive(target, TIMEOUT)?;
        Ok(target[..length].to_vec())
    }
}

/// The bytes of a message.
fn bytes(state: u64, length: usize) -> Vec<u8> {
    let byte = |at: usize| (at as u64 ^ (at as u64 >> 8) ^ state) as u8;
    (0..length).map(byte).collect()
}

/// The state after a message.
fn next(state: u64, length: usize) -> u64 {
    let mixed = (state ^ length as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}
