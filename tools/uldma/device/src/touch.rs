// SPDX-License-Identifier: MIT OR Apache-2.0

//! Brackets: the times in which the device may use what it has looked up in the tables, and the words
//! by which it tells each node about them.
//!
//! A driver that makes an entry invalid, and then finds that the oldest bracket which has not ended
//! began later, knows that no transfer uses the entry. Brackets overlap, since polls and accesses of
//! programs do not wait for the engine.

use std::collections::BTreeSet;
use std::sync::atomic::{fence, Ordering};

use crate::layout::{TOUCH_BEGUN, TOUCH_OLDEST};
use crate::memory::GuestMemory;

/// A bracket: its number at each node whose tables it may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bracket(Vec<(usize, u64)>);

/// The brackets that may use the tables of one node.
#[derive(Debug, Default)]
struct OfNode {
    /// Bus address of the touch page, or 0.
    page: u64,
    /// Number of the last one that began.
    begun: u64,
    /// Numbers of those that have not ended.
    open: BTreeSet<u64>,
}

impl OfNode {
    fn oldest(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.begun + 1)
    }

    /// Stores a word to the touch page. A page that does not answer is the driver's mistake, which
    /// then waits for nothing that comes.
    fn store(&self, memory: Option<&GuestMemory>, offset: u64, value: u64) {
        let place = self.page.checked_add(offset).filter(|_| self.page != 0);
        if let (Some(memory), Some(place)) = (memory, place) {
            let _ = memory.store64(place, value);
        }
    }
}

/// The brackets of all nodes.
#[derive(Debug, Default)]
pub struct Brackets {
    nodes: Vec<OfNode>,
}

impl Brackets {
    /// Returns no brackets at a number of nodes.
    pub fn new(nodes: usize) -> Self {
        Self {
            nodes: (0..nodes).map(|_| OfNode::default()).collect(),
        }
    }

    /// Returns the address of a node's touch page, or 0.
    pub fn page(&self, node: usize) -> u64 {
        self.nodes.get(node).map_or(0, |node| node.page)
    }

    /// Sets the address of a node's touch page, and writes both words. `memory` is what the device may
    /// access of the node's.
    pub fn set_page(&mut self, node: usize, page: u64, memory: Option<&GuestMemory>) {
        if let Some(node) = self.nodes.get_mut(node) {
            node.page = page;
            node.store(memory, TOUCH_BEGUN, node.begun);
            node.store(memory, TOUCH_OLDEST, node.oldest());
        }
    }

    /// Begins a bracket that may use the tables of some nodes; each comes with what the device may
    /// access of its memory. Look-ups come after this.
    pub fn begin<'a>(
        &mut self,
        nodes: impl Iterator<Item = (usize, Option<&'a GuestMemory>)>,
    ) -> Bracket {
        let mut bracket = Bracket::default();
        for (number, memory) in nodes {
            if let Some(node) = self.nodes.get_mut(number) {
                node.begun += 1;
                node.open.insert(node.begun);
                node.store(memory, TOUCH_BEGUN, node.begun);
                bracket.0.push((number, node.begun));
            }
        }
        fence(Ordering::SeqCst);
        bracket
    }

    /// Ends a bracket. Accesses come before this. `memory` returns what the device may access of a
    /// node's memory.
    pub fn end<'a>(
        &mut self,
        bracket: &Bracket,
        memory: impl Fn(usize) -> Option<&'a GuestMemory>,
    ) {
        for (number, which) in &bracket.0 {
            if let Some(node) = self.nodes.get_mut(*number) {
                if node.open.remove(which) {
                    node.store(memory(*number), TOUCH_OLDEST, node.oldest());
                }
            }
        }
    }
}
