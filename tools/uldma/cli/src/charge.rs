// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma charge`: shows the charge of registering memory, without registering it.

use serde::Serialize;

use crate::args::{Charge, Common, MemoryArgs};
use crate::failure::Result;
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// Charge of a registration, in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Cost {
    charge: u64,
    locked: u64,
    pinned: u64,
    /// None: no limit.
    limit: Option<u64>,
    fits: bool,
}

impl Cost {
    /// Queries the charge of mapped memory.
    pub(crate) fn ask(
        device: &uldma::Device,
        memory: &uldma::Memory,
        args: &MemoryArgs,
    ) -> uldma::Result<Self> {
        let charge = device.charge(memory.address(), memory.length(), args.access.into())?;
        Ok(Self {
            charge: charge.charge,
            locked: charge.locked,
            pinned: charge.pinned,
            limit: charge.limit,
            fits: charge.fits(),
        })
    }

    /// Returns the text for a user.
    pub(crate) fn words(&self) -> String {
        let limit = match self.limit {
            Some(limit) => format!("the limit is {limit} bytes"),
            None => "there is no limit".to_owned(),
        };
        format!(
            "{} bytes would be charged, {} bytes are locked already; {} bytes are pinned, and \
             {limit}: it {}",
            self.charge,
            self.locked,
            self.pinned,
            if self.fits { "fits" } else { "does not fit" }
        )
    }
}

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    kind: String,
    bytes: u64,
    #[serde(flatten)]
    cost: Cost,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Charge) -> Result<()> {
    let device = common.open()?;
    let memory = args.memory.map()?;
    let report = Report {
        schema_version: SCHEMA_VERSION,
        kind: args.memory.kind(),
        bytes: memory.length(),
        cost: Cost::ask(&device, &memory, &args.memory)?,
    };
    output::print(common.json, &report, |report| {
        format!(
            "{} bytes of {} memory: {}",
            report.bytes,
            report.kind,
            report.cost.words()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_say_whether_it_fits() {
        let mut cost = Cost {
            charge: 4096,
            limit: Some(1 << 20),
            fits: true,
            ..Default::default()
        };
        assert!(cost
            .words()
            .ends_with("the limit is 1048576 bytes: it fits"));
        cost.limit = None;
        assert!(cost.words().contains("there is no limit"));
        cost.fits = false;
        assert!(cost.words().ends_with("it does not fit"));
    }
}
