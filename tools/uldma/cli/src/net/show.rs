// SPDX-License-Identifier: MIT OR Apache-2.0

//! The state of the network interfaces that the driver makes, one for each device.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;
use uldma::device::PeerInfo;
use uldma::Device;

use super::statistics::{table, Counters, Statistics};
use crate::args::Common;
use crate::failure::{Failure, Result};
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// The counters that every interface has, as the kernel calls them.
const COUNTERS: [&str; 9] = [
    "rx_packets",
    "rx_bytes",
    "rx_errors",
    "rx_dropped",
    "multicast",
    "tx_packets",
    "tx_bytes",
    "tx_errors",
    "tx_dropped",
];

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    devices: Vec<DeviceReport>,
}

#[derive(Debug, Serialize)]
struct DeviceReport {
    device: String,
    /// This node.
    node: u32,
    /// None if the driver was told to make no interface for this device, or it is elsewhere.
    interface: Option<Interface>,
    /// True if the interface is in another network namespace.
    interface_elsewhere: bool,
    peers: Vec<PeerReport>,
}

#[derive(Debug, Serialize)]
struct PeerReport {
    node: u32,
    link: &'static str,
    /// What has crossed the interface to and from this peer; none without an interface.
    counters: Option<Counters>,
}

impl PeerReport {
    fn new(info: &PeerInfo, statistics: &mut Statistics) -> Self {
        Self {
            node: info.node,
            link: if info.link_up { "up" } else { "down" },
            counters: statistics.take_peer(info.node),
        }
    }
}

/// A network interface, as sysfs shows it.
#[derive(Debug, Serialize)]
struct Interface {
    name: String,
    mac: String,
    mtu: u32,
    /// up, down, or another of RFC 2863's states.
    state: String,
    /// Whether a packet can reach any peer; none while the interface is down.
    carrier: Option<bool>,
    carrier_changes: u64,
    /// Those of every interface, and the driver's that are of no peer.
    counters: serde_json::Map<String, serde_json::Value>,
}

impl Interface {
    /// Reads an interface's directory; none if there is no such interface, or no longer.
    fn read(directory: &Path) -> Option<Self> {
        let text = |name: &str| {
            let text = fs::read_to_string(directory.join(name)).ok()?;
            Some(text.trim().to_owned())
        };
        let count = |name: &str| text(name)?.parse::<u64>().ok();
        let counter = |name: &&str| {
            let value = count(&format!("statistics/{name}"))?;
            Some(((*name).to_owned(), value.into()))
        };
        Some(Self {
            name: directory.file_name()?.to_str()?.to_owned(),
            mac: text("address")?,
            mtu: text("mtu")?.parse().ok()?,
            state: text("operstate")?,
            carrier: count("carrier").map(|carrier| carrier != 0),
            carrier_changes: count("carrier_changes")?,
            counters: COUNTERS.iter().map(counter).collect::<Option<_>>()?,
        })
    }

    /// Adds the driver's counters.
    fn add(&mut self, counters: &Counters) {
        let added = counters.iter();
        let added = added.map(|(name, value)| (name.to_owned(), value.into()));
        self.counters.extend(added);
    }

    fn words(&self) -> String {
        let carrier = match self.carrier {
            Some(true) => "carrier",
            Some(false) => "no carrier",
            None => "not up",
        };
        let mut text = format!(
            "{} {}, mtu {}, {}, {carrier} ({} changes)\n ",
            self.name, self.mac, self.mtu, self.state, self.carrier_changes
        );
        for (name, value) in &self.counters {
            let _ = write!(text, " {name} {value}");
        }
        text
    }
}

impl DeviceReport {
    fn read(number: u32) -> uldma::Result<Self> {
        let device = Device::open(number)?;
        let found = Found::of(&directory(device.number()?));
        let interface_elsewhere = matches!(found, Found::Elsewhere);
        let mut interface = match found {
            Found::Here(directory) => Interface::read(&directory),
            _ => None,
        };
        let read = interface
            .as_ref()
            .and_then(|interface| Statistics::read(&interface.name));
        let mut statistics = read.unwrap_or_default();
        if let Some(interface) = &mut interface {
            interface.add(&statistics.interface);
        }
        let peers = device.peers()?;
        let peers = peers
            .iter()
            .map(|peer| PeerReport::new(peer, &mut statistics));
        Ok(Self {
            device: device.path().display().to_string(),
            node: device.query()?.node,
            interface,
            interface_elsewhere,
            peers: peers.collect(),
        })
    }

    fn words(&self) -> String {
        let interface = match &self.interface {
            Some(interface) => interface.words(),
            None if self.interface_elsewhere => {
                "the interface is in another network namespace".to_owned()
            }
            None => "no interface (module parameter `network`)".to_owned(),
        };
        let peers: Vec<_> = self
            .peers
            .iter()
            .map(|peer| format!("{} {}", peer.node, peer.link))
            .collect();
        let mut text = format!(
            "{}: node {}, peers: {}\n  {interface}",
            self.device,
            self.node,
            peers.join(", ")
        );
        let counters = self.peers.iter();
        let counters = counters
            .filter_map(|peer| peer.counters.as_ref().map(|counters| (peer.node, counters)));
        for line in table(&counters.collect::<Vec<_>>()).lines() {
            let _ = write!(text, "\n    {line}");
        }
        text
    }
}

/// Where the interface of a device is.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    /// It has this directory.
    Here(PathBuf),
    /// In another network namespace.
    Elsewhere,
    /// The driver has made none.
    Nowhere,
}

impl Found {
    /// Looks below a device for its interface, which may have any name. A device that has an interface
    /// has a directory of interfaces, and sysfs hides those of other namespaces in it.
    fn of(directory: &Path) -> Self {
        let Ok(entries) = fs::read_dir(directory) else {
            return Self::Nowhere;
        };
        let mut entries = entries.flatten();
        entries
            .next()
            .map_or(Self::Elsewhere, |entry| Self::Here(entry.path()))
    }
}

/// Returns the directory of interfaces of the device with this number.
fn directory((major, minor): (u64, u64)) -> PathBuf {
    Path::new("/sys/dev/char").join(format!("{major}:{minor}/device/net"))
}

/// Prints the state of all devices, or of one.
pub(crate) fn run(common: &Common) -> Result<()> {
    let numbers = match common.device {
        Some(number) => vec![number],
        None => Device::numbers(),
    };
    let numbers = if numbers.is_empty() { vec![0] } else { numbers };
    let read = numbers.into_iter().map(DeviceReport::read);
    let report = Report {
        schema_version: SCHEMA_VERSION,
        devices: read.collect::<uldma::Result<_>>().map_err(Failure::from)?,
    };
    output::print(common.json, &report, |report| {
        let devices = report.devices.iter().map(DeviceReport::words);
        devices.collect::<Vec<_>>().join("\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_device() {
        let name = format!("uldma-interfaces-{}", std::process::id());
        let device = std::env::temp_dir().join(name);
        let directory = device.join("net");
        assert_eq!(Found::of(&directory), Found::Nowhere);
        fs::create_dir_all(&directory).unwrap();
        assert_eq!(Found::of(&directory), Found::Elsewhere);
        let interface = directory.join("renamed");
        fs::create_dir(&interface).unwrap();
        assert_eq!(Found::of(&directory), Found::Here(interface));
        fs::remove_dir_all(&device).unwrap();
    }

    #[test]
    fn this_machine_has_an_interface_to_read() {
        let loopback = Interface::read(Path::new("/sys/class/net/lo")).unwrap();
        assert_eq!(loopback.name, "lo");
        assert_eq!(loopback.counters.len(), COUNTERS.len());
        assert!(loopback.words().starts_with("lo 00:00:00:00:00:00, mtu "));
        assert!(Interface::read(Path::new("/sys/class/net/no such")).is_none());
    }
}
