// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma calibrate`: measures from which size on messages are better exchanged than copied.

use serde::Serialize;
use uldma::measure::ExchangeCosts;

use crate::args::Common;
use crate::failure::Result;
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    /// Null: copies take less time for all sizes.
    exchange_from: Option<usize>,
    sizes: Vec<Size>,
}

/// What a message of one size takes on one side.
#[derive(Debug, Serialize)]
struct Size {
    bytes: usize,
    copy_ns: f64,
    receive_ns: f64,
    send_ns: f64,
}

impl Report {
    fn new(costs: &ExchangeCosts) -> Self {
        let sizes = costs.costs.iter().map(|cost| Size {
            bytes: cost.bytes,
            copy_ns: cost.copy_ns,
            receive_ns: cost.receive_ns,
            send_ns: cost.send_ns,
        });
        Self {
            schema_version: SCHEMA_VERSION,
            exchange_from: costs.exchange_from(),
            sizes: sizes.collect(),
        }
    }

    fn words(&self) -> String {
        let mut text = format!(
            "{:>8} {:>12} {:>12} {:>12}\n",
            "bytes", "copy ns", "receive ns", "send ns"
        );
        for size in &self.sizes {
            text += &format!(
                "{:>8} {:>12.0} {:>12.0} {:>12.0}\n",
                size.bytes, size.copy_ns, size.receive_ns, size.send_ns
            );
        }
        text += &match self.exchange_from {
            Some(bytes) => format!("exchange from {bytes} bytes on"),
            None => "copy all: no exchange of these sizes takes less time".to_owned(),
        };
        text
    }
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let costs = common.open()?.measure_exchange()?;
    output::print(common.json, &Report::new(&costs), Report::words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uldma::measure::ExchangeCost;

    #[test]
    fn the_threshold_is_told() {
        let with = |send_ns| {
            Report::new(&ExchangeCosts {
                costs: vec![ExchangeCost {
                    bytes: 4096,
                    copy_ns: 2.0,
                    receive_ns: 1.0,
                    send_ns,
                }],
            })
            .words()
        };
        assert!(with(1.0).ends_with("exchange from 4096 bytes on"));
        assert!(with(3.0).contains("copy all"));
    }
}
