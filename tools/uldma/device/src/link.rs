// SPDX-License-Identifier: MIT OR Apache-2.0

//! The link between the nodes: up or down, and how often it came up.

/// The only place that knows how many nodes a link has: the node at the other end.
pub fn peer_of(node: usize) -> usize {
    node ^ 1
}

/// State of the link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    /// What the administrator wants.
    admin_up: bool,
    up: bool,
    generation: u32,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            admin_up: true,
            up: false,
            generation: 0,
        }
    }
}

impl Link {
    /// Plugs or pulls the cable; takes effect with the next [`Link::update`].
    pub fn set_admin(&mut self, up: bool) {
        self.admin_up = up;
    }

    /// Brings the state in line with whether all nodes are ready; tells whether it changed.
    pub fn update(&mut self, nodes_ready: bool) -> bool {
        let up = self.admin_up && nodes_ready;
        let changed = up != self.up;
        self.up = up;
        if changed && up {
            self.generation = self.generation.wrapping_add(1);
        }
        changed
    }

    /// Whether the link is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// How often the link came up since the device was started.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// The generation while the link is up.
    pub fn current(&self) -> Option<u32> {
        self.up.then_some(self.generation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generation_counts_ups_only() {
        let mut link = Link::default();
        assert!(!link.update(false));
        assert!(link.update(true));
        assert!(!link.update(true));
        assert_eq!(link.current(), Some(1));
        link.set_admin(false);
        assert!(link.update(true));
        assert_eq!((link.current(), link.generation()), (None, 1));
        link.set_admin(true);
        assert!(!link.update(false));
        assert!(link.update(true));
        assert_eq!(link.current(), Some(2));
    }

    #[test]
    fn peers_are_mutual() {
        assert_eq!((peer_of(0), peer_of(1)), (1, 0));
    }
}
