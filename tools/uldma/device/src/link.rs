// SPDX-License-Identifier: MIT OR Apache-2.0

//! The links between the nodes, one per pair: their states and generations.

use std::time::{Duration, Instant};

use crate::layout::MAX_NODES;

/// Interval over which the limit of link-ups is counted.
const INTERVAL: Duration = Duration::from_secs(1);

/// State of the link of one pair.
#[derive(Clone, Copy, Debug, Default)]
struct PairLink {
    /// The administrator wants the link down.
    cut: bool,
    up: bool,
    generation: u32,
    /// Start of the interval in which `ups` is counted.
    since: Option<Instant>,
    ups: u32,
}

impl PairLink {
    /// Counts one link-up. Fails with the time at which the link may come up, if the limit is
    /// reached.
    fn come_up(&mut self, most: u32, now: Instant) -> Result<(), Instant> {
        let end = self.since.and_then(|since| since.checked_add(INTERVAL));
        match end.filter(|end| *end > now) {
            Some(end) if self.ups >= most => return Err(end),
            Some(_) => self.ups = self.ups.saturating_add(1),
            None => (self.since, self.ups) = (Some(now), 1),
        }
        Ok(())
    }
}

/// A link that went up or down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// The nodes that it joins, the lower number first.
    pub nodes: [usize; 2],
    /// True if the link is up now.
    pub up: bool,
}

/// All links. Each is addressed by its two nodes in any order.
#[derive(Clone, Debug)]
pub struct Links {
    nodes: usize,
    /// Nodes whose cable is plugged in.
    plugged: [bool; MAX_NODES],
    /// Link of the nodes `[one][other]`, `one` being the lower number.
    pairs: [[PairLink; MAX_NODES]; MAX_NODES],
    /// Limit of link-ups of each link per [`INTERVAL`].
    most: u32,
    /// Earliest time at which a link that reached its limit can come up.
    retry: Option<Instant>,
}

impl Links {
    /// Creates the links of a number of nodes, all plugged and down.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: nodes.min(MAX_NODES),
            plugged: [true; MAX_NODES],
            pairs: Default::default(),
            most: u32::MAX,
            retry: None,
        }
    }

    /// Sets the limit of link-ups per second.
    pub fn limit(&mut self, most: u32) {
        self.most = most;
    }

    /// Returns the time at which to call [`Links::update`] again, if a link waits.
    pub fn retry(&self) -> Option<Instant> {
        self.retry
    }

    /// Returns all pairs, the lower number first.
    pub fn pairs(&self) -> impl Iterator<Item = [usize; 2]> {
        let nodes = self.nodes;
        (0..nodes).flat_map(move |one| (one + 1..nodes).map(move |other| [one, other]))
    }

    fn has(&self, one: usize, other: usize) -> bool {
        one != other && one.max(other) < self.nodes
    }

    fn link(&self, one: usize, other: usize) -> Option<&PairLink> {
        let link = self.pairs.get(one.min(other))?.get(one.max(other));
        link.filter(|_| self.has(one, other))
    }

    /// Plugs or unplugs all cables; plugging also restores the links that were cut. The change
    /// takes effect with the next [`Links::update`].
    pub fn plug(&mut self, plugged: bool) {
        self.plugged = [plugged; MAX_NODES];
        for link in self.pairs.iter_mut().flatten() {
            link.cut &= !plugged;
        }
    }

    /// Plugs or unplugs the cable of one node. Returns false if there is no such node.
    pub fn plug_node(&mut self, node: usize, plugged: bool) -> bool {
        match self.plugged.get_mut(node).filter(|_| node < self.nodes) {
            Some(cable) => *cable = plugged,
            None => return false,
        }
        true
    }

    /// Cuts or restores the link between two nodes. Returns false if there is no such pair.
    pub fn cut(&mut self, one: usize, other: usize, cut: bool) -> bool {
        let known = self.has(one, other);
        let row = self.pairs.get_mut(one.min(other));
        match row.and_then(|row| row.get_mut(one.max(other))) {
            Some(link) if known => link.cut = cut,
            _ => return false,
        }
        true
    }

    /// Updates the states of all links from the nodes that are ready. Returns the changes.
    pub fn update(&mut self, is_ready: impl Fn(usize) -> bool) -> Vec<LinkChange> {
        let mut changes = Vec::new();
        let now = Instant::now();
        self.retry = None;
        for [one, other] in self.pairs() {
            let ready = [one, other].into_iter().all(|node| {
                is_ready(node) && self.plugged.get(node).is_some_and(|plugged| *plugged)
            });
            let row = self.pairs.get_mut(one);
            let Some(link) = row.and_then(|row| row.get_mut(other)) else {
                continue;
            };
            let up = ready && !link.cut;
            if up && !link.up {
                if let Err(when) = link.come_up(self.most, now) {
                    self.retry = Some(self.retry.map_or(when, |other| other.min(when)));
                    continue;
                }
            }
            if up != link.up {
                link.up = up;
                link.generation = link.generation.wrapping_add(u32::from(up));
                let nodes = [one, other];
                changes.push(LinkChange { nodes, up });
            }
        }
        changes
    }

    /// Returns true if the link between two nodes is up.
    pub fn is_up(&self, one: usize, other: usize) -> bool {
        self.link(one, other).is_some_and(|link| link.up)
    }

    /// Returns how often the link of two nodes has come up since the device was started.
    pub fn generation(&self, one: usize, other: usize) -> u32 {
        self.link(one, other).map_or(0, |link| link.generation)
    }

    /// Returns the generation of a link while it is up.
    pub fn current(&self, one: usize, other: usize) -> Option<u32> {
        let link = self.link(one, other).filter(|link| link.up)?;
        Some(link.generation)
    }

    /// Returns the mask of the nodes that a node can reach.
    pub fn mask(&self, node: usize) -> u32 {
        let reached = (0..self.nodes).filter(|other| self.is_up(node, *other));
        reached.fold(0, |mask, other| mask | (1 << other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_counts_ups_only() {
        let mut links = Links::new(2);
        let change = |up| vec![LinkChange { nodes: [0, 1], up }];
        assert_eq!(links.update(|_| false), []);
        assert_eq!(links.update(|_| true), change(true));
        assert_eq!(links.update(|_| true), []);
        assert_eq!(links.current(1, 0), Some(1));
        links.plug(false);
        assert_eq!(links.update(|_| true), change(false));
        assert_eq!((links.current(0, 1), links.generation(0, 1)), (None, 1));
        links.plug(true);
        assert_eq!(links.update(|node| node == 0), []);
        assert_eq!(links.update(|_| true), change(true));
        assert_eq!(links.current(0, 1), Some(2));
    }

    #[test]
    fn pairs_go_up_and_down_alone() {
        let mut links = Links::new(3);
        assert_eq!(links.update(|_| true).len(), 3);
        assert_eq!([0, 1, 2].map(|node| links.mask(node)), [6, 5, 3]);
        assert!(links.cut(2, 0, true));
        let nodes = [0, 2];
        assert_eq!(links.update(|_| true), [LinkChange { nodes, up: false }]);
        assert_eq!([0, 1, 2].map(|node| links.mask(node)), [2, 5, 2]);
        assert!(links.plug_node(1, false));
        assert_eq!(links.update(|_| true).len(), 2);
        assert_eq!(links.mask(1), 0);
        // Both have to be plugged, and the pair not cut.
        assert!(links.cut(0, 2, false) && links.plug_node(0, false));
        assert_eq!(links.update(|_| true), []);
        links.plug(true);
        assert_eq!(links.update(|_| true).len(), 3);
        assert_eq!(
            links.pairs().map(|[a, b]| links.generation(b, a)).max(),
            Some(2)
        );
    }

    #[test]
    fn a_link_that_flaps_has_to_wait() {
        let mut links = Links::new(2);
        links.limit(3);
        for _ in 0..3 {
            assert_eq!(links.update(|_| true).len(), 1);
            assert_eq!(links.update(|_| false).len(), 1);
            assert_eq!(links.retry(), None);
        }
        assert_eq!(links.update(|_| true), []);
        let when = links.retry().unwrap();
        let mut link = links.pairs[0][1];
        assert_eq!(link.come_up(3, when - INTERVAL / 2), Err(when));
        assert_eq!(link.come_up(3, when), Ok(()));
        assert_eq!(links.update(|_| false), []);
        assert_eq!(links.retry(), None);
    }

    #[test]
    fn what_is_not_there_is_down() {
        let mut links = Links::new(2);
        links.update(|_| true);
        for (one, other) in [(0, 0), (0, 2), (7, 8), (usize::MAX, 0)] {
            assert!(!links.is_up(one, other) && !links.cut(one, other, true));
            assert_eq!(links.generation(one, other), 0);
        }
        assert!(!links.plug_node(2, false));
        assert_eq!(links.mask(5), 0);
    }
}
