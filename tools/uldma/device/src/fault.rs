// SPDX-License-Identifier: MIT OR Apache-2.0

//! Faults that can be injected, for the driver's tests.

use serde::{Deserialize, Serialize};

/// A way to misbehave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// The engine stops: transfers, invalidations and resets of the node never end.
    Stall,
    /// Chunks stop between the look-up of their bus addresses and the access to these.
    Hold,
    /// Chunks access once more, by the bus addresses that they had, when all has been told to have ended.
    Late,
    /// Transfers end, but no completion is written.
    DropCompletion,
    /// Completions name a ticket that was never issued, with impossible numbers.
    ForgeCompletion,
    /// Interrupts are not sent.
    DropInterrupt,
    /// Doorbells that are rung at the node are lost.
    DropDoorbell,
    /// Bit 0 of the node's doorbell is set, and interrupts, repeatedly.
    Storm,
    /// One bit of every transfer's data arrives inverted.
    Corrupt,
    /// One bit of the source of each transfer is inverted.
    Trespass,
    /// No bus address answers the engine.
    BusError,
    /// The function has left the bus: loads read ones, stores and the engine do nothing.
    Gone,
    /// The ID register reads wrong.
    BadId,
    /// All registers in BAR0 read ones, but work.
    Ones,
}

/// The faults that are switched on at one node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(transparent)]
pub struct Faults {
    on: Vec<Fault>,
}

impl Faults {
    /// Switches a fault on or off.
    pub fn set(&mut self, fault: Fault, on: bool) {
        self.on.retain(|other| *other != fault);
        if on {
            self.on.push(fault);
        }
    }

    /// Returns true if no fault is on.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty()
    }

    /// Returns true if the fault is on.
    pub fn has(&self, fault: Fault) -> bool {
        self.on.contains(&fault)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_switch_on_and_off() {
        let mut faults = Faults::default();
        assert!(faults.is_empty());
        faults.set(Fault::Stall, true);
        faults.set(Fault::Stall, true);
        assert!(!faults.is_empty());
        assert!(faults.has(Fault::Stall) && !faults.has(Fault::Gone));
        faults.set(Fault::Stall, false);
        assert!(!faults.has(Fault::Stall));
    }
}
