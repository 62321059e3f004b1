// SPDX-License-Identifier: MIT OR Apache-2.0

//! A conventional driver with read() and write(): write() copies user memory into bounce memory of
//! the kernel, the engine copies that across, and read() copies it out at the other side. Three
//! copies, each counted where it is made. Where there is no engine, the program imitates the kernel.

use std::time::Duration;

use uldma::device::Backend;
use uldma::measure::Clock;
use uldma::transfer::KernelTicket;
use uldma::{Access, Device, Import, InboundSegment, OutboundSegment};

use super::bounce::Bounce;
use super::counters::Counted;
use super::meeting::Meeting;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// Bytes of one bounce buffer.
const BOUNCE: usize = 64 * 1024;
/// Bounce buffers.
const SLOTS: usize = 8;
/// Bytes of the rings that report what was written and what was read.
const CAPACITY: u64 = 4096;

fn slot(number: u64) -> usize {
    (number % SLOTS as u64) as usize * BOUNCE
}

fn has_engine(device: &Device) -> Result<bool, Failure> {
    Ok(device.query()?.backend == Backend::Adapter)
}

/// A channel on which both ends report their progress.
struct Notes(Meeting);

impl Notes {
    fn meet(&mut self) -> Result<(), Failure> {
        self.0.meet().map(drop)
    }

    fn send(&mut self, bytes: usize) -> Result<(), Failure> {
        let (channel, timeout) = self.0.channel()?;
        Ok(channel.send(&(bytes as u64).to_le_bytes(), timeout)?)
    }

    fn receive(&mut self) -> Result<usize, Failure> {
        let (channel, timeout) = self.0.channel()?;
        let mut bytes = [0; 8];
        channel.receive(&mut bytes, timeout)?;
        usize::try_from(u64::from_le_bytes(bytes))
            .ok()
            .filter(|&bytes| bytes <= BOUNCE)
            .ok_or_else(|| Failure::Peer("wrote more than a bounce buffer has".into()))
    }
}

/// The second copy.
enum Across {
    /// The engine makes it, started by the kernel, which gets an interrupt at its end.
    Engine { bounce: Bounce, target: Import },
    /// The processor makes it.
    Window {
        bounce: Vec<u8>,
        target: OutboundSegment,
    },
}

/// The end that writes.
pub(crate) struct Writer {
    across: Across,
    device: Device,
    timeout: Duration,
    notes: Notes,
    message: Vec<u8>,
    copied: u64,
    /// Bounce buffers filled, and how many of them have been emptied at the other side.
    written: u64,
    read: u64,
    /// The last transfer and its bytes.
    under_way: Option<(KernelTicket, usize)>,
}

impl Writer {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let (device, name) = (setup.device, setup.name);
        let across = if has_engine(device)? {
            Across::Engine {
                bounce: Bounce::new(device, SLOTS * BOUNCE)?,
                target: device.import(name, Access::Write, setup.timeout)?,
            }
        } else {
            Across::Window {
                bounce: vec![0; SLOTS * BOUNCE],
                target: device.attach_segment(name, setup.timeout)?,
            }
        };
        Ok(Self {
            across,
            device: device.clone(),
            timeout: setup.timeout,
            notes: Notes(Meeting::near(setup, CAPACITY)),
            message: vec![0x5a; setup.size],
            copied: 0,
            written: 0,
            read: 0,
            under_way: None,
        })
    }

    /// One bounce buffer or less.
    fn write(&mut self, start: usize, length: usize) -> Result<(), Failure> {
        if self.written - self.read == SLOTS as u64 {
            self.notes.receive()?;
            self.read += 1;
        }
        let place = slot(self.written);
        let part = &self.message[start..start + length];
        let started = match &mut self.across {
            Across::Engine { bounce, target } => {
                self.copied += bounce.write(place, part)? as u64;
                let (from, to) = ((bounce.region(), place as u64), (&*target, place as u64));
                Some(self.device.dma(from, to, length as u64)?)
            }
            Across::Window { bounce, target } => {
                bounce[place..place + length].copy_from_slice(part);
                self.copied += length as u64;
                target.write(place, &bounce[place..place + length])?;
                None
            }
        };
        self.copied += length as u64;
        self.written += 1;
        match started {
            // The next buffer is filled while this one is in flight.
            Some(ticket) => {
                self.finish()?;
                self.under_way = Some((ticket, length));
                Ok(())
            }
            None => self.notes.send(length),
        }
    }

    /// Waits for the last transfer, and reports it.
    fn finish(&mut self) -> Result<(), Failure> {
        if let Some((ticket, length)) = self.under_way.take() {
            self.device.dma_wait(ticket, self.timeout)?;
            self.notes.send(length)?;
        }
        Ok(())
    }
}

impl Near for Writer {
    fn begin(&mut self) -> Result<(), Failure> {
        self.notes.meet()
    }

    fn round_trips(&mut self, _count: u32, _clock: &Clock) -> Result<Vec<u64>, Failure> {
        Ok(Vec::new())
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        for _ in 0..count {
            for start in (0..self.message.len()).step_by(BOUNCE) {
                self.write(start, BOUNCE.min(self.message.len() - start))?;
            }
        }
        self.finish()?;
        while self.read < self.written {
            self.notes.receive()?;
            self.read += 1;
        }
        Ok(began)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted {
            copied: self.copied,
            locks: 0,
        })
    }
}

/// Bounce memory of the other side.
enum Inbox {
    Kernel(Bounce),
    Window(InboundSegment),
}

/// The end that reads.
pub(crate) struct Reader {
    inbox: Inbox,
    notes: Notes,
    target: Vec<u8>,
    copied: u64,
    read: u64,
}

impl Reader {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        let (name, bytes) = (setup.name, SLOTS * BOUNCE);
        Ok(Self {
            inbox: if has_engine(setup.device)? {
                let bounce = Bounce::new(setup.device, bytes)?;
                bounce.export(name)?;
                Inbox::Kernel(bounce)
            } else {
                Inbox::Window(setup.device.create_segment(name, bytes as u64)?)
            },
            notes: Notes(Meeting::far(setup, CAPACITY)?),
            target: vec![0; setup.size],
            copied: 0,
            read: 0,
        })
    }
}

impl Far for Reader {
    fn begin(&mut self) -> Result<(), Failure> {
        self.notes.meet()
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            let mut filled = 0;
            while filled < self.target.len() {
                let length = self.notes.receive()?.min(self.target.len() - filled);
                let (place, target) = (slot(self.read), &mut self.target[filled..filled + length]);
                let copied = match &self.inbox {
                    Inbox::Kernel(bounce) => bounce.read(place, target)?,
                    Inbox::Window(segment) => {
                        segment.read(place, target)?;
                        length
                    }
                };
                self.copied += copied as u64;
                self.read += 1;
                filled += length;
                self.notes.send(length)?;
            }
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted, Failure> {
        Ok(Counted {
            copied: self.copied,
            locks: 0,
        })
    }
}
