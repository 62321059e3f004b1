// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's own counters of a network interface, as `ethtool -S` shows them.

use std::fmt::Write;

use serde::{Serialize, Serializer};

use super::ethtool;

/// Counters by name, in the driver's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counters(Vec<(String, u64)>);

impl Counters {
    /// Returns the value of a counter.
    fn get(&self, name: &str) -> Option<u64> {
        let mut counters = self.0.iter();
        let (_, value) = counters.find(|(it, _)| it == name)?;
        Some(*value)
    }

    /// Returns names and values.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

/// The counters of one interface.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Statistics {
    /// Those of no peer.
    pub(super) interface: Counters,
    peers: Vec<(u32, Counters)>,
}

impl Statistics {
    /// Reads the counters of interface `name`; none if it has no such counters, or is gone.
    pub(super) fn read(name: &str) -> Option<Self> {
        ethtool::counters(name).ok().map(Self::sort)
    }

    /// Sorts counters by the peer that their names begin with: `node1_rx_packets`.
    fn sort(all: Vec<(String, u64)>) -> Self {
        let mut sorted = Self::default();
        for (name, value) in all {
            let Some((node, rest)) = of_peer(&name) else {
                sorted.interface.0.push((name, value));
                continue;
            };
            let counter = (rest.to_owned(), value);
            match sorted.peers.iter_mut().find(|(it, _)| *it == node) {
                Some((_, counters)) => counters.0.push(counter),
                None => sorted.peers.push((node, Counters(vec![counter]))),
            }
        }
        sorted
    }

    /// Removes the counters of peer `node`.
    pub(super) fn take_peer(&mut self, node: u32) -> Option<Counters> {
        let place = self.peers.iter().position(|(it, _)| *it == node)?;
        Some(self.peers.swap_remove(place).1)
    }
}

/// Splits the name of a peer's counter.
fn of_peer(name: &str) -> Option<(u32, &str)> {
    let (node, rest) = name.strip_prefix("node")?.split_once('_')?;
    Some((node.parse().ok()?, rest))
}

/// Returns a table with a line for each counter and a column for each peer; empty without peers.
pub(super) fn table(peers: &[(u32, &Counters)]) -> String {
    let Some((_, first)) = peers.first() else {
        return String::new();
    };
    let mut text = format!("{:<18}", "peer");
    for (node, _) in peers {
        let _ = write!(text, " {node:>14}");
    }
    for (name, _) in first.iter() {
        let _ = write!(text, "\n{name:<18}");
        for (_, counters) in peers {
            let _ = write!(text, " {:>14}", counters.get(name).unwrap_or(0));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics() -> Statistics {
        let all = [
            ("moderations", 1),
            ("node0_tx_packets", 2),
            ("node0_rx_bytes", 3),
            ("node12_tx_packets", 4),
            ("node12_rx_bytes", 5),
            ("nodes", 6),
            ("node_7", 7),
        ];
        Statistics::sort(
            all.map(|(name, value)| (name.to_owned(), value))
                .into_iter()
                .collect(),
        )
    }

    #[test]
    fn counters_belong_to_the_peer_of_their_name() {
        let mut sorted = statistics();
        let interface: Vec<_> = sorted.interface.iter().collect();
        assert_eq!(interface, [("moderations", 1), ("nodes", 6), ("node_7", 7)]);
        let first = sorted.take_peer(0).unwrap();
        let json = serde_json::to_string(&first).unwrap();
        assert_eq!(json, r#"{"tx_packets":2,"rx_bytes":3}"#);
        assert_eq!(sorted.take_peer(0), None);
        assert_eq!(sorted.take_peer(12).unwrap().get("rx_bytes"), Some(5));
    }

    #[test]
    fn a_table_has_a_column_for_each_peer() {
        let mut sorted = statistics();
        let [near, far] = [0, 12].map(|node| sorted.take_peer(node).unwrap());
        let lines = [
            "peer                            0             12",
            "tx_packets                      2              4",
            "rx_bytes                        3              5",
        ];
        assert_eq!(table(&[(0, &near), (12, &far)]), lines.join("\n"));
        assert_eq!(table(&[]), "");
    }

    #[test]
    fn an_interface_that_is_not_there_has_no_counters() {
        assert_eq!(Statistics::read("no such"), None);
    }
}
