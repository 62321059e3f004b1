// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures from which size on it takes less time to exchange pages than to copy them, here.
//!
//! Each call of the driver takes a system call, and each exchange an invalidation of the device and a
//! fault for each 64 KiB that are accessed afterwards. What these take differs from machine to machine
//! by orders of magnitude, as another process answers an invalidation where the device is emulated.

use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use crate::device::heap::{Area, Part};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::message::MessageOptions;
use crate::region::exchange::{ExchangeBuffer, ExchangeSlots};
use crate::wait::ticks::Rate;

/// Bytes of the longest message.
const LONGEST: usize = 1 << 20;
/// How often each size is measured.
const ROUNDS: usize = 16;

/// What a message of one size takes on one side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExchangeCost {
    /// Bytes of the message: whole pages.
    pub bytes: usize,
    /// Nanoseconds of a copy, from a slot or to one.
    pub copy_ns: f64,
    /// Nanoseconds of exchanging the pages with those of a slot, and of reading each afterwards.
    pub receive_ns: f64,
    /// Nanoseconds of protecting the pages and of releasing them, and of writing to each afterwards.
    pub send_ns: f64,
}

impl ExchangeCost {
    /// Returns true if exchanging takes no longer than copying, on either side.
    fn pays(&self) -> bool {
        self.receive_ns.max(self.send_ns) <= self.copy_ns
    }
}

/// What messages take by copies and by page exchange on this machine.
#[derive(Clone, Debug, PartialEq)]
pub struct ExchangeCosts {
    /// By size, ascending.
    pub costs: Vec<ExchangeCost>,
}

impl ExchangeCosts {
    /// Returns the smallest measured size from which on exchanging takes no longer, for this and for
    /// all longer messages; none if it takes longer for the longest one.
    pub fn exchange_from(&self) -> Option<usize> {
        let paying = self.costs.iter().rev().take_while(|cost| cost.pays());
        paying.last().map(|cost| cost.bytes)
    }
}

impl Device {
    /// Measures copies and exchanges of pages, without a peer. Takes some milliseconds to some
    /// tenths of a second.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EOPNOTSUPP for a device without an engine; those of
    /// [`Device::exchangeable`], for 2 MiB, and once more for 1 MiB.
    pub fn measure_exchange(&self) -> Result<ExchangeCosts> {
        let page = usize::try_from(self.page_size()).unwrap_or(LONGEST).max(1);
        let mut bench = Bench::new(self)?;
        let mut costs = Vec::new();
        let mut bytes = page;
        while bytes <= LONGEST {
            costs.push(bench.cost(bytes, page)?);
            bytes *= 2;
        }
        Ok(ExchangeCosts { costs })
    }
}

impl MessageOptions {
    /// Sets [`MessageOptions::exchange_from`] to what is measured on this machine, once for each
    /// process ([`Device::measure_exchange`]). If copies take less time for all sizes, all messages
    /// are copied.
    ///
    /// # Errors
    ///
    /// Those of [`Device::measure_exchange`].
    pub fn with_measured_exchange(self, device: &Device) -> Result<Self> {
        static MEASURED: OnceLock<usize> = OnceLock::new();
        let exchange_from = match MEASURED.get() {
            Some(&known) => known,
            None => {
                let costs = device.measure_exchange()?;
                *MEASURED.get_or_init(|| costs.exchange_from().unwrap_or(usize::MAX))
            }
        };
        Ok(Self {
            exchange_from,
            ..self
        })
    }
}

/// The memory of a message, and the slot that it arrives in.
struct Bench<'a> {
    device: &'a Device,
    message: ExchangeBuffer,
    slots: ExchangeSlots,
    area: Arc<Area>,
    offset: u64,
    clock: Rate,
}

impl<'a> Bench<'a> {
    fn new(device: &'a Device) -> Result<Self> {
        let message = device.exchangeable(LONGEST)?;
        let slots = ExchangeSlots::new(device, LONGEST as u64)?;
        let found = device
            .heap()
            .locate(message.as_ptr() as usize, message.len());
        let (area, offset) = found.ok_or(Error::Range {
            offset: 0,
            length: LONGEST as u64,
            size: 0,
        })?;
        Ok(Self {
            device,
            message,
            slots,
            area,
            offset,
            clock: Rate::start(),
        })
    }

    fn cost(&mut self, bytes: usize, page: usize) -> Result<ExchangeCost> {
        let mut ticks = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            // Maps all pages of both, for writing: a message that is copied finds them so.
            self.copy(bytes);
            let start = self.clock.ticks();
            self.copy(bytes);
            let copied = self.clock.ticks();
            self.receive(bytes, page)?;
            let received = self.clock.ticks();
            self.copy(bytes);
            let prepared = self.clock.ticks();
            self.send(bytes, page)?;
            let sent = self.clock.ticks();
            let times = [copied - start, received - copied, sent - prepared];
            for (all, time) in ticks.iter_mut().zip(times) {
                all.push(time);
            }
        }
        let rate = self.clock.nanoseconds();
        let [copy_ns, receive_ns, send_ns] = ticks.map(|all| median(all) as f64 * rate);
        Ok(ExchangeCost {
            bytes,
            copy_ns,
            receive_ns,
            send_ns,
        })
    }

    fn part(&self, bytes: usize) -> Part<'_> {
        Part {
            area: &self.area,
            offset: self.offset,
            length: bytes as u64,
        }
    }

    fn copy(&mut self, bytes: usize) {
        let target = self.message.get_mut(..bytes).unwrap_or_default();
        self.slots.area().mapping().read(0, target);
    }

    fn receive(&mut self, bytes: usize, page: usize) -> Result<()> {
        self.part(bytes)
            .swap(self.device.as_fd(), self.slots.area(), 0)
            .map_err(|errno| Error::system("exchange pages", errno))?;
        let read = self.message.iter().take(bytes).step_by(page);
        black_box(read.fold(0, |sum, &byte| sum ^ byte));
        Ok(())
    }

    fn send(&mut self, bytes: usize, page: usize) -> Result<()> {
        let fd = self.device.as_fd();
        self.part(bytes)
            .protect(fd)
            .and_then(|()| self.part(bytes).release(fd))
            .map_err(|errno| Error::system("protect pages", errno))?;
        for byte in self.message.iter_mut().take(bytes).step_by(page) {
            *byte = 1;
        }
        black_box(&mut self.message[..]);
        Ok(())
    }
}

/// Returns the middle one; zero of none.
fn median(mut all: Vec<u64>) -> u64 {
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Costs of 4 KiB and its doubles: of a copy, of receiving and of sending.
    fn costs(all: &[(f64, f64, f64)]) -> ExchangeCosts {
        let cost =
            |(index, &(copy_ns, receive_ns, send_ns)): (usize, &(f64, f64, f64))| ExchangeCost {
                bytes: 4096 << index,
                copy_ns,
                receive_ns,
                send_ns,
            };
        ExchangeCosts {
            costs: all.iter().enumerate().map(cost).collect(),
        }
    }

    #[test]
    fn both_sides_have_to_gain_from_there_on() {
        let from = |all: &[_]| costs(all).exchange_from();
        let (copied, exchanged) = ((1.0, 2.0, 2.0), (2.0, 1.0, 1.0));
        assert_eq!(from(&[]), None);
        assert_eq!(from(&[copied, copied]), None);
        assert_eq!(from(&[exchanged, exchanged]), Some(4096));
        assert_eq!(from(&[copied, exchanged, exchanged]), Some(8192));
        // One size by chance is no threshold.
        assert_eq!(from(&[exchanged, copied, exchanged]), Some(16384));
        assert_eq!(from(&[exchanged, copied]), None);
        // One side alone does not gain.
        assert_eq!(from(&[(2.0, 3.0, 1.0), (2.0, 1.0, 3.0)]), None);
        assert_eq!(from(&[(2.0, 2.0, 2.0)]), Some(4096));
    }

    #[test]
    fn a_time_that_is_far_off_does_not_count() {
        assert_eq!(median(vec![9_000, 2, 3]), 3);
        assert_eq!(median(vec![]), 0);
    }
}
