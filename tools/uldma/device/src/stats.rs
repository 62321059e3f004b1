// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters, and the JSON document that reports them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::abi::{Method, Status};
use crate::fault::Faults;
use crate::tlb::TlbReport;
use crate::transfer::{Outcome, Work};

/// Counters of one context since it was enabled; readable in its context block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContextCounters {
    /// Stores to the context's shadow space.
    pub shadow_stores: u64,
    /// Loads from the context's shadow space.
    pub shadow_loads: u64,
    /// Stores to the context page.
    pub page_stores: u64,
    /// Loads from the context page.
    pub page_loads: u64,
    /// Transfers started.
    pub initiations: u64,
    /// Initiations refused, and stores that passed no arguments.
    pub refused: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// Counters of one node, for all contexts with one initiation method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MethodCounters {
    /// Stores to shadow space.
    pub stores: u64,
    /// Loads from shadow space.
    pub loads: u64,
    /// Stores to context pages.
    pub page_stores: u64,
    /// Loads from context pages.
    pub page_loads: u64,
    /// Tickets issued, and atomic loads served.
    pub initiations: u64,
    /// Initiations refused, and accesses that passed no arguments.
    pub refused: u64,
    /// Loads that returned FAIL, so that the sequence starts again.
    pub fails: u64,
}

/// Counters of one node since the process was started; resets do not change them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeCounters {
    /// Loads from BAR0.
    pub control_loads: u64,
    /// Stores to BAR0.
    pub control_stores: u64,
    /// Loads from BAR1.
    pub page_loads: u64,
    /// Stores to BAR1.
    pub page_stores: u64,
    /// Loads from BAR2.
    pub shadow_loads: u64,
    /// Stores to BAR2.
    pub shadow_stores: u64,
    /// Accesses to the window that were trapped.
    pub window_accesses: u64,
    /// Of these, those to what other nodes write or read.
    pub window_foreign: u64,
    /// Accesses of a width, at a place or in a state that the device does not serve.
    pub bad_accesses: u64,
    /// Doorbells rung at peers.
    pub doorbells: u64,
    /// Doorbells that found a link down.
    pub doorbells_dropped: u64,
    /// Invalidations.
    pub invalidations: u64,
    /// Resets, by register and by function reset.
    pub resets: u64,
    /// Tickets issued, and atomic loads served.
    pub initiations: u64,
    /// Of these, by the kernel's registers.
    pub kernel_initiations: u64,
    /// Counters of programs, by initiation method.
    pub methods: BTreeMap<Method, MethodCounters>,
    /// Refused initiations and malformed stores, by reason.
    pub refused: BTreeMap<Status, u64>,
    /// Transfers ended, by status.
    pub ended: BTreeMap<Status, u64>,
    /// Bytes moved within this node.
    pub bytes_local: u64,
    /// Bytes moved to peers.
    pub bytes_to_peer: u64,
    /// Bytes moved from peers.
    pub bytes_from_peer: u64,
    /// Bytes of all these that were read from a section of the window.
    pub bytes_from_window: u64,
    /// Bytes of all these that were written to a section of the window.
    pub bytes_to_window: u64,
    /// Page requests stored to this node's page.
    pub page_requests: u64,
    /// Page requests that found no slot for them there.
    pub page_requests_dropped: u64,
}

impl NodeCounters {
    /// Returns the counters of a method.
    pub fn method(&mut self, method: Method) -> &mut MethodCounters {
        self.methods.entry(method).or_default()
    }

    /// Counts bytes that were moved.
    pub fn count_moved(&mut self, work: &Work, outcome: &Outcome) {
        let Work::Copy(checked) = work else {
            return;
        };
        let counter = if checked.source.is_remote() {
            &mut self.bytes_from_peer
        } else if checked.destination.is_remote() {
            &mut self.bytes_to_peer
        } else {
            &mut self.bytes_local
        };
        *counter += outcome.moved;
        self.bytes_from_window += outcome.moved * u64::from(outcome.from_window);
        self.bytes_to_window += outcome.moved * u64::from(outcome.to_window);
    }
}

/// State of one context, for reports.
#[derive(Debug, Serialize)]
pub struct ContextReport {
    /// Its number.
    pub context: usize,
    /// True if the context accepts initiations.
    pub enabled: bool,
    /// Its initiation method.
    pub method: Option<Method>,
    /// Its space.
    pub space: u32,
    /// Wrong keys that were passed through its pages.
    pub bad_keys: u32,
    /// Last ticket issued.
    pub ticket: u64,
    /// Highest ticket that has ended.
    pub completed: u64,
    /// Tickets that ended with an error.
    pub failed: u64,
    /// Its counters.
    #[serde(flatten)]
    pub counters: ContextCounters,
}

/// A held chunk, for reports.
#[derive(Debug, Serialize)]
pub struct HeldReport {
    /// The context.
    pub context: usize,
    /// The transfer.
    pub ticket: u64,
}

/// State of one node, for reports.
#[derive(Debug, Serialize)]
pub struct NodeReport {
    /// Its number.
    pub node: usize,
    /// True if a client is connected.
    pub attached: bool,
    /// True if the driver has enabled the node.
    pub enabled: bool,
    /// True if the node has made the model fail, and is disabled until a reset.
    pub is_broken: bool,
    /// Faults that are on.
    pub faults: Faults,
    /// Its chunks that are held.
    pub held: Vec<HeldReport>,
    /// Invalidations by the register that have not ended.
    pub invalidations_pending: u32,
    /// Contexts whose next descriptor is an invalidation that has not ended.
    pub invalidations_queued: usize,
    /// Interrupts raised, by vector.
    pub interrupts: Vec<u64>,
    /// Its counters.
    pub counters: NodeCounters,
    /// What caches of its page entries would have had, if that is counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tlb: Option<TlbReport>,
    /// Contexts that are enabled or were used.
    pub contexts: Vec<ContextReport>,
}

/// State of the link between two nodes, for reports.
#[derive(Debug, Serialize)]
pub struct LinkReport {
    /// The nodes.
    pub nodes: [usize; 2],
    /// True if the link is up.
    pub up: bool,
    /// Number of times that the link has come up.
    pub generation: u32,
}

/// Everything that is shown.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Incremented when a field changes its meaning.
    pub schema_version: u32,
    /// All links.
    pub links: Vec<LinkReport>,
    /// All nodes.
    pub nodes: Vec<NodeReport>,
}

/// Value of [`Report::schema_version`].
pub const SCHEMA_VERSION: u32 = 2;
