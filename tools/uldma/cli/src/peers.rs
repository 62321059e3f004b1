// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma peers`: the other nodes of the link.

use std::fmt::Write;

use serde::Serialize;
use uldma::device::PeerInfo;

use crate::args::Common;
use crate::failure::Result;
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    device: String,
    /// This node.
    node: u32,
    nodes: u32,
    peers: Vec<PeerReport>,
}

#[derive(Debug, Serialize)]
struct PeerReport {
    node: u32,
    link: &'static str,
    generation: u32,
    /// Version of the protocol in use; none while the link is down.
    version: Option<u32>,
    features: u32,
    slots: u32,
    sent: u64,
    received: u64,
    doorbells: u64,
    interrupts: u64,
    polls: u64,
    violations: u64,
}

impl From<&PeerInfo> for PeerReport {
    fn from(info: &PeerInfo) -> Self {
        Self {
            node: info.node,
            link: if info.link_up { "up" } else { "down" },
            generation: info.generation,
            version: Some(info.version).filter(|&version| version != 0),
            features: info.features,
            slots: info.slots,
            sent: info.sent,
            received: info.received,
            doorbells: info.doorbells,
            interrupts: info.interrupts,
            polls: info.polls,
            violations: info.violations,
        }
    }
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let device = common.open()?;
    let query = device.query()?;
    let report = Report {
        schema_version: SCHEMA_VERSION,
        device: device.path().display().to_string(),
        node: query.node,
        nodes: query.nodes,
        peers: device.peers()?.iter().map(PeerReport::from).collect(),
    };
    output::print(common.json, &report, words)
}

fn words(report: &Report) -> String {
    let mut text = format!(
        "{}: node {} of {}\n  node  link  version  came up  messages sent  received  violations\n",
        report.device, report.node, report.nodes
    );
    for peer in &report.peers {
        let _ = writeln!(
            text,
            "  {:>4}  {:>4}  {:>7}  {:>7}  {:>13}  {:>8}  {:>10}",
            peer.node,
            peer.link,
            output::or_dash(peer.version),
            peer.generation,
            peer.sent,
            peer.received,
            peer.violations,
        );
    }
    text
}
