// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma lmm`: the limits of locked memory, and its state.

use std::fmt::Write;

use serde::Serialize;
use uldma::region::{LockedMemory, Memlock};

use crate::args::Common;
use crate::failure::Result;
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// Locked memory of a process. Values are bytes, unless stated otherwise.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct LockedState {
    areas: u32,
    locked: u64,
    cached: u64,
    cached_regions: u32,
    cache_hits: u64,
    cache_misses: u64,
    pages_pinned: u64,
    revalidations: u64,
}

impl From<&LockedMemory> for LockedState {
    fn from(locked: &LockedMemory) -> Self {
        Self {
            areas: locked.areas,
            locked: locked.locked,
            cached: locked.cached,
            cached_regions: locked.cached_regions,
            cache_hits: locked.cache_hits,
            cache_misses: locked.cache_misses,
            pages_pinned: locked.pins,
            revalidations: locked.revalidations,
        }
    }
}

impl LockedState {
    /// Returns the text for a user.
    pub(crate) fn words(&self) -> String {
        format!(
            "{} bytes (areas: {}); cached {} bytes (ended regions: {}); hits {}, misses {}, pages \
             pinned {}, revalidations {}",
            self.locked,
            self.areas,
            self.cached,
            self.cached_regions,
            self.cache_hits,
            self.cache_misses,
            self.pages_pinned,
            self.revalidations,
        )
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    device: String,
    #[serde(flatten)]
    state: LockedState,
    max_regions: u32,
    cache_max_regions: u64,
    cache_max_bytes: u64,
    /// None: no limit.
    memlock_limit: Option<u64>,
    memlock_pinned: u64,
    memlock_locked: u64,
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let device = common.open()?;
    let locked = device.locked_memory()?;
    let memlock = Memlock::read();
    let report = Report {
        schema_version: SCHEMA_VERSION,
        device: device.path().display().to_string(),
        state: LockedState::from(&locked),
        max_regions: locked.max_regions,
        cache_max_regions: locked.cache_max_regions,
        cache_max_bytes: locked.cache_max_bytes,
        memlock_limit: memlock.limit,
        memlock_pinned: memlock.pinned,
        memlock_locked: memlock.locked,
    };
    output::print(common.json, &report, words)
}

fn words(report: &Report) -> String {
    let mut text = format!("{}:\n", report.device);
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<10} {value}");
    };
    line("locked", report.state.words());
    line(
        "regions",
        format!("at most {} for each open file", report.max_regions),
    );
    line(
        "pin cache",
        format!(
            "at most {} ended regions, {} bytes",
            report.cache_max_regions, report.cache_max_bytes
        ),
    );
    let limit = match report.memlock_limit {
        Some(limit) => format!("{limit} bytes"),
        None => "no limit".to_owned(),
    };
    line(
        "memlock",
        format!(
            "{limit}; {} bytes pinned, {} bytes locked by mlock()",
            report.memlock_pinned, report.memlock_locked
        ),
    );
    text
}
