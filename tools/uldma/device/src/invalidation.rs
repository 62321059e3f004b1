// SPDX-License-Identifier: MIT OR Apache-2.0

//! Invalidations: end the transfers that use memory which a driver is about to take away.

use crate::abi::Status;
use crate::layout::Invalidation;
use crate::location::{CheckedSide, Location};
use crate::memory::GuestMemory;
use crate::model::Model;

impl Model {
    /// Stores to the invalidation register.
    pub(crate) fn invalidate(
        &mut self,
        node: usize,
        what: Invalidation,
        memories: &[&GuestMemory],
    ) {
        self.end_users(node, what, None);
        if let Some(node) = self.nodes.get_mut(node) {
            node.invalidations = node.invalidations.saturating_add(1);
        }
        self.settle(memories);
    }

    /// Ends all transfers that use the named memory of a node: as revoked those of its peers that the memory
    /// was exported to, and others as aborted. Descriptors behind the invalidation in its own queue are later
    /// than it and are not affected.
    pub(crate) fn end_users(&mut self, node: usize, what: Invalidation, asked_by: Option<usize>) {
        let (kind, index) = (what.get(Invalidation::KIND), what.get(Invalidation::INDEX));
        let named_here = |side: &CheckedSide| match (kind, side.place) {
            (Invalidation::ALL, _) => true,
            (_, Location::Peer(_) | Location::Listed(_) | Location::PostedList(_)) => false,
            (Invalidation::SPACE, _) => side.space == index,
            (
                Invalidation::REGION,
                Location::Region { region, .. } | Location::Import { region, .. },
            ) => region == index,
            _ => false,
        };
        let named_by_peer = |side: &CheckedSide| {
            if kind == Invalidation::ALL {
                return side.peer().is_some_and(|peer| peer as usize == node);
            }
            let remote = side.remote().filter(|remote| remote.node as usize == node);
            remote.is_some_and(|remote| match kind {
                Invalidation::SPACE => remote.space == index,
                Invalidation::REGION => remote.region == index,
                _ => false,
            })
        };
        if kind == Invalidation::ENDPOINT {
            self.endpoints.forget(node, index);
            // What waits for it finds that it has ended.
            self.wake_senders(|_| true);
        }
        for (number, other) in self.nodes.iter_mut().enumerate() {
            for (place, context) in other.contexts.iter_mut().enumerate() {
                if kind == Invalidation::ENDPOINT {
                    context.end_messages(|message| {
                        (message.node, message.endpoint) == (node, index)
                            || (number, message.sender) == (node, index)
                    });
                }
                if number != node {
                    let posted = |side: &CheckedSide| side.is_posted() && named_by_peer(side);
                    context.end_all(Status::Aborted, posted);
                    context.end_all(Status::Revoked, named_by_peer);
                } else if asked_by != Some(place) {
                    context.end_all(Status::Aborted, named_here);
                }
            }
        }
        if let Some(node) = self.nodes.get_mut(node) {
            node.counters.invalidations += 1;
            node.machines.forget_mixable();
        }
    }
}
