// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma info`: shows the devices and their properties.

use std::fmt::Write;

use serde::Serialize;
use uldma::device::UserShares;
use uldma::{Device, Method, Query};

use crate::args::Common;
use crate::failure::{Failure, Result};
use crate::output;
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    devices: Vec<DeviceInfo>,
}

/// Report of one device.
#[derive(Debug, Serialize)]
pub(crate) struct DeviceInfo {
    device: String,
    abi_version: u32,
    node: u32,
    /// Number of nodes of the link, including this one.
    nodes: u32,
    /// Numbers of those that can be reached.
    peers: Vec<u32>,
    /// Transport between the nodes: adapter, ivshmem or loopback.
    backend: &'static str,
    /// Connections of all open files.
    connections: u32,
    link: &'static str,
    link_generation: u32,
    contexts: u32,
    contexts_used: u32,
    /// Names of the initiation methods that a context can have on this system.
    methods: Vec<&'static str>,
    page_size: u64,
    shadow_bytes_per_context: u64,
    max_transfer: u64,
    regions: u32,
    max_regions: u32,
    pages: u32,
    max_pages: u32,
    window_size: u64,
    window_used: u64,
    /// Nanoseconds that a thread loses by sleeping until a transfer completes; none without an engine.
    completion_ns: Option<u64>,
    /// This user's shares.
    user: UserInfo,
}

/// One user's shares of the resources that all users share.
#[derive(Debug, Serialize)]
struct UserInfo {
    regions: u32,
    max_regions: u32,
    pages: u32,
    max_pages: u32,
    contexts: u32,
    max_contexts: u32,
    exclusive_contexts: u32,
    max_exclusive_contexts: u32,
    connections: u32,
    max_connections: u32,
    listeners: u32,
    max_listeners: u32,
    window: u64,
    max_window: u64,
    requests: u32,
    max_requests: u32,
    endpoints: u32,
    max_endpoints: u32,
    transfers: u32,
    max_transfers: u32,
    objects: u32,
    max_objects: u32,
}

impl UserInfo {
    fn new(shares: UserShares) -> Self {
        Self {
            regions: shares.regions.0,
            max_regions: shares.regions.1,
            pages: shares.pages.0,
            max_pages: shares.pages.1,
            contexts: shares.contexts.0,
            max_contexts: shares.contexts.1,
            exclusive_contexts: shares.exclusive_contexts.0,
            max_exclusive_contexts: shares.exclusive_contexts.1,
            connections: shares.connections.0,
            max_connections: shares.connections.1,
            listeners: shares.listeners.0,
            max_listeners: shares.listeners.1,
            window: shares.window.0,
            max_window: shares.window.1,
            requests: shares.requests.0,
            max_requests: shares.requests.1,
            endpoints: shares.endpoints.0,
            max_endpoints: shares.endpoints.1,
            transfers: shares.transfers.0,
            max_transfers: shares.transfers.1,
            objects: shares.objects.0,
            max_objects: shares.objects.1,
        }
    }

    fn words(&self) -> String {
        format!(
            "{} of {} regions, {} of {} pages, {} of {} contexts ({} of {} exclusive), \
             {} of {} connections, {} of {} ports, {} of {} bytes of the window, {} of {} requests, \
             {} of {} endpoints, {} of {} transfers, {} of {} objects",
            self.regions,
            self.max_regions,
            self.pages,
            self.max_pages,
            self.contexts,
            self.max_contexts,
            self.exclusive_contexts,
            self.max_exclusive_contexts,
            self.connections,
            self.max_connections,
            self.listeners,
            self.max_listeners,
            self.window,
            self.max_window,
            self.requests,
            self.max_requests,
            self.endpoints,
            self.max_endpoints,
            self.transfers,
            self.max_transfers,
            self.objects,
            self.max_objects
        )
    }
}

impl DeviceInfo {
    /// Queries the device.
    pub(crate) fn read(device: &Device) -> uldma::Result<Self> {
        let query = device.query()?;
        Ok(Self::new(device.path().display().to_string(), &query))
    }

    fn new(device: String, query: &Query) -> Self {
        Self {
            device,
            abi_version: query.abi_version,
            node: query.node,
            nodes: query.nodes,
            peers: query.reachable().collect(),
            backend: query.backend.name(),
            connections: query.connections,
            link: if query.link_up { "up" } else { "down" },
            link_generation: query.link_generation,
            contexts: query.contexts,
            contexts_used: query.contexts_used,
            methods: query.methods.iter().map(Method::name).collect(),
            page_size: query.page_size,
            shadow_bytes_per_context: 1u64.checked_shl(query.shadow_window_shift).unwrap_or(0),
            max_transfer: query.max_transfer,
            regions: query.regions,
            max_regions: query.max_regions,
            pages: query.pages,
            max_pages: query.max_pages,
            window_size: query.window_size,
            window_used: query.window_used,
            completion_ns: u64::try_from(query.completion.as_nanos())
                .ok()
                .filter(|time| *time > 0),
            user: UserInfo::new(query.user),
        }
    }

    /// Returns the text for a user.
    pub(crate) fn words(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "  {name:<10} {value}");
        };
        let peers: Vec<String> = self.peers.iter().map(u32::to_string).collect();
        line(
            "node",
            format!(
                "{} of {}, reaches {}",
                self.node,
                self.nodes,
                match peers.len() {
                    0 => "none".to_owned(),
                    _ => peers.join(", "),
                }
            ),
        );
        line("backend", self.backend.to_owned());
        line(
            "link",
            format!("{} (came up {} times)", self.link, self.link_generation),
        );
        line(
            "connected",
            format!("{} times, by all open files", self.connections),
        );
        line(
            "contexts",
            format!("{} of {} used", self.contexts_used, self.contexts),
        );
        line("methods", self.methods.join(", "));
        line(
            "regions",
            format!("{} of {} used", self.regions, self.max_regions),
        );
        let page = self.page_size;
        line(
            "pages",
            format!(
                "{} of {} used, {page} bytes each",
                self.pages, self.max_pages
            ),
        );
        line(
            "window",
            format!("{} of {} bytes used", self.window_used, self.window_size),
        );
        line("user", self.user.words());
        line(
            "transfer",
            format!("at most {} bytes per initiation", self.max_transfer),
        );
        if let Some(time) = self.completion_ns {
            line("completion", format!("a sleep until it costs {time} ns"));
        }
        line("interface", format!("version {}", self.abi_version));
        format!("{}:\n{text}", self.device)
    }
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let numbers = match common.device {
        Some(number) => vec![number],
        None => Device::numbers(),
    };
    let mut devices = Vec::new();
    let mut failure = None;
    for &number in if numbers.is_empty() {
        &[0][..]
    } else {
        &numbers
    } {
        match Device::open(number).and_then(|device| DeviceInfo::read(&device)) {
            Ok(device) => devices.push(device),
            // Show the others first.
            Err(error) => failure = Some(Failure::from(error)),
        }
    }
    if !devices.is_empty() {
        let report = Report {
            schema_version: SCHEMA_VERSION,
            devices,
        };
        output::print(common.json, &report, |report| {
            report
                .devices
                .iter()
                .map(DeviceInfo::words)
                .collect::<Vec<_>>()
                .join("\n")
        })?;
    }
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_an_object_with_the_devices() {
        let report = Report {
            schema_version: SCHEMA_VERSION,
            devices: Vec::new(),
        };
        let expected = serde_json::json!({"schema_version": 2, "devices": []});
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}
