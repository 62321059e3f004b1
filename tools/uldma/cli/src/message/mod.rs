// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma send` and `uldma recv`: messages by the techniques of sending and receiving.

mod recv;
mod send;

use std::time::Instant;

use serde::Serialize;
use uldma::message::{Copied, ExchangeStats, Fallbacks, Redirections};
use uldma::{Device, MessageOptions};

use crate::args::{Common, ExchangeFrom, SlotArgs};
use crate::failure::Result;
use crate::output;
use crate::progress::Progress;
use crate::schema::SCHEMA_VERSION;

pub(crate) use recv::recv;
pub(crate) use send::send;

/// The report of one side.
#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    technique: &'static str,
    messages: u64,
    bytes: u64,
    /// Of a sender: those that the program at the other side has taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_taken: Option<u64>,
    seconds: f64,
    mb_per_s: f64,
    /// System calls by the library during the transfer.
    syscalls: u64,
    /// Pages that were pinned during the transfer.
    pages_pinned: u64,
    /// Bytes of the messages that were copied, by the library and in calls of the driver.
    copied_by_library: u64,
    copied_by_driver: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<Exchange>,
    /// Pieces that arrived where they were received into.
    #[serde(skip_serializing_if = "Option::is_none")]
    redirected: Option<u64>,
    /// Pieces that were copied from slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    from_slots: Option<u64>,
}

/// What page exchange did: the half of one side.
#[derive(Debug, Serialize)]
struct Exchange {
    /// What is shorter is copied; none if all is.
    from: Option<usize>,
    /// Messages sent from protected pages.
    sent: u64,
    pages_clean: u64,
    pages_copied: u64,
    pages_exchanged: u64,
    exchanges: u64,
    tail_bytes: u64,
    /// Messages, or pieces, that were not exchanged, by reason.
    small: u64,
    ordinary: u64,
    pinned: u64,
    unaligned: u64,
    busy: u64,
    limit: u64,
}

impl Exchange {
    fn new(from: usize, stats: &ExchangeStats, fallbacks: &Fallbacks) -> Self {
        Self {
            from: (from < usize::MAX).then_some(from),
            sent: stats.sent,
            pages_clean: stats.pages_clean,
            pages_copied: stats.pages_copied,
            pages_exchanged: stats.pages_exchanged,
            exchanges: stats.exchanges,
            tail_bytes: stats.tail_bytes,
            small: fallbacks.small,
            ordinary: fallbacks.ordinary,
            pinned: fallbacks.pinned,
            unaligned: fallbacks.unaligned,
            busy: fallbacks.busy,
            limit: fallbacks.limit,
        }
    }
}

/// Counts what was moved.
struct Counter {
    device: Device,
    start: Instant,
    pins: u64,
    calls: u64,
    messages: u64,
    bytes: u64,
    progress: Progress,
}

impl Counter {
    fn new(device: &Device, progress: Progress) -> uldma::Result<Self> {
        Ok(Self {
            device: device.clone(),
            start: Instant::now(),
            // This is a system call itself.
            pins: device.locked_memory()?.pins,
            calls: uldma::measure::calls(),
            messages: 0,
            bytes: 0,
            progress,
        })
    }

    fn add(&mut self, length: usize) {
        self.messages += 1;
        self.bytes += length as u64;
        self.progress.inc(length);
    }

    /// Prints the report to standard error, if it is requested.
    fn print(
        self,
        common: &Common,
        technique: &'static str,
        taken: Option<u64>,
        copied: Copied,
        exchange: Option<Exchange>,
        redirections: Option<Redirections>,
    ) -> Result<()> {
        self.progress.finish();
        let seconds = self.start.elapsed().as_secs_f64();
        let report = Report {
            schema_version: SCHEMA_VERSION,
            technique,
            messages: self.messages,
            bytes: self.bytes,
            bytes_taken: taken,
            seconds,
            mb_per_s: output::megabytes_per_second(self.bytes, seconds),
            syscalls: uldma::measure::calls() - self.calls,
            pages_pinned: self.device.locked_memory()?.pins - self.pins,
            copied_by_library: copied.by_library,
            copied_by_driver: copied.by_driver,
            exchange,
            redirected: redirections.map(|counts| counts.redirected),
            from_slots: redirections.map(|counts| counts.from_slots),
        };
        output::print_beside_data(common.json, &report)
    }
}

fn options(device: &Device, slots: &SlotArgs) -> uldma::Result<MessageOptions> {
    let options = MessageOptions {
        slot: slots.slot,
        slots: slots.slots,
        ..MessageOptions::default()
    };
    match slots.exchange_from {
        ExchangeFrom::Bytes(exchange_from) => Ok(MessageOptions {
            exchange_from,
            ..options
        }),
        ExchangeFrom::Measured => options.with_measured_exchange(device),
    }
}
