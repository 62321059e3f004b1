// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters of both nodes while data moves.

use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};
use uldma::Device;

use crate::failure::Failure;

/// Copies that a program or its connection made: bytes, and how often memory was pinned for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) copied: u64,
    pub(crate) locks: u64,
}

/// Counts of one node, or of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Doorbell interrupts of the device.
    pub(crate) interrupts: u64,
    /// Completion interrupts of its engine.
    pub(crate) events: u64,
    /// Interrupts of network devices.
    pub(crate) network: u64,
    /// Doorbells that were rung for messages of the control channel.
    pub(crate) doorbells: u64,
    /// Messages of the control channel.
    pub(crate) messages: u64,
    /// Polls for work that no interrupt caused.
    pub(crate) polls: u64,
    /// Interrupts by which a processor made others flush translations (TLB shoot-downs).
    pub(crate) shootdowns: u64,
    /// Context switches of all processors.
    pub(crate) switches: u64,
    /// System calls of this program for the device.
    pub(crate) calls: u64,
    /// Bytes that were copied for what is measured.
    pub(crate) copied: u64,
    /// Times that memory was pinned for it.
    pub(crate) locks: u64,
}

impl Counters {
    /// Reads those of this node's device and of this process, without those of the transport.
    pub(crate) fn read(device: &Device) -> Result<Self, Failure> {
        let calls = uldma::measure::calls();
        let node = device.query()?.node;
        // Of two nodes, one has the number zero.
        let peer = device.peer(u32::from(node == 0))?;
        let table = read("/proc/interrupts")?;
        Ok(Self {
            interrupts: peer.interrupts,
            events: interrupts(&table, |name| name == "uldma-event"),
            network: interrupts(&table, is_network),
            doorbells: peer.doorbells,
            messages: peer.sent,
            polls: peer.polls,
            shootdowns: shootdowns(&table),
            switches: switches()?,
            calls,
            ..Self::default()
        })
    }

    /// Returns the same with the counts of a transport's end.
    pub(crate) fn with(self, counted: Counted) -> Self {
        Self {
            copied: counted.copied,
            locks: counted.locks,
            ..self
        }
    }

    fn zip(self, other: Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            interrupts: with(self.interrupts, other.interrupts),
            events: with(self.events, other.events),
            network: with(self.network, other.network),
            doorbells: with(self.doorbells, other.doorbells),
            messages: with(self.messages, other.messages),
            polls: with(self.polls, other.polls),
            shootdowns: with(self.shootdowns, other.shootdowns),
            switches: with(self.switches, other.switches),
            calls: with(self.calls, other.calls),
            copied: with(self.copied, other.copied),
            locks: with(self.locks, other.locks),
        }
    }
}

impl Add for Counters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        self.zip(other, |one, other| one.wrapping_add(other))
    }
}

/// Counts since `before`; counters of a new connection start at zero.
impl Sub for Counters {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        self.zip(before, u64::saturating_sub)
    }
}

fn read(path: &'static str) -> Result<String, Failure> {
    std::fs::read_to_string(path).map_err(|error| Failure::Io(path, error))
}

/// Returns the context switches of this machine.
fn switches() -> Result<u64, Failure> {
    Ok(switches_in(&read("/proc/stat")?))
}

/// Returns the row of context switches of /proc/stat.
fn switches_in(stat: &str) -> u64 {
    let row = stat.lines().find_map(|line| line.strip_prefix("ctxt "));
    row.and_then(|row| row.trim().parse().ok()).unwrap_or(0)
}

/// Returns the row of TLB shoot-downs of /proc/interrupts, of all processors.
fn shootdowns(table: &str) -> u64 {
    let row = table
        .lines()
        .find_map(|line| line.trim_start().strip_prefix("TLB:"));
    let counts = row.into_iter().flat_map(str::split_whitespace);
    counts.map_while(|count| count.parse::<u64>().ok()).sum()
}

/// Returns true for a queue of a virtio network device.
fn is_network(name: &str) -> bool {
    name.contains("-input.") || name.contains("-output.")
}

/// Sums the rows of /proc/interrupts with such a name over all processors.
fn interrupts(table: &str, is_meant: impl Fn(&str) -> bool) -> u64 {
    let mut lines = table.lines();
    let processors = lines
        .next()
        .map_or(0, |head| head.split_whitespace().count());
    lines
        .filter(|line| {
            let names = line.split_whitespace().skip(1 + processors);
            names.map(|name| name.trim_end_matches(',')).any(&is_meant)
        })
        .flat_map(|line| line.split_whitespace().skip(1).take(processors))
        .filter_map(|count| count.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "           CPU0       CPU1
 24:          1          2  PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0
 25:         10         20  PCI-MSIX-0000:00:03.0   2-edge      virtio2-output.0
 26:        100        200  PCI-MSIX-0000:00:04.0   0-edge      uldma-control
 27:       1000       2000  PCI-MSIX-0000:00:04.0   1-edge      uldma-event
LOC:       9999       9999   Local timer interrupts
 TLB:          3          4   TLB shootdowns
";

    #[test]
    fn rows_are_found_by_their_names() {
        assert_eq!(interrupts(TABLE, |name| name == "uldma-event"), 3000);
        assert_eq!(interrupts(TABLE, is_network), 33);
        assert_eq!(interrupts(TABLE, |name| name == "100"), 0);
        assert_eq!(interrupts("", is_network), 0);
        assert_eq!((shootdowns(TABLE), shootdowns("")), (7, 0));
        assert_eq!(switches_in("cpu 1 2\nctxt 4711\nbtime 1\n"), 4711);
    }

    #[test]
    fn counts_of_both_nodes_add_up() {
        let one = Counters {
            interrupts: 5,
            copied: 7,
            ..Counters::default()
        };
        let both = one + one;
        assert_eq!((both.interrupts, both.copied), (10, 14));
        assert_eq!(both - one, one);
        assert_eq!(one - both, Counters::default());
    }
}
