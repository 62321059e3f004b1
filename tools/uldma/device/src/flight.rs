// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks that the engine has begun and not ended: one that is being moved, and those that are held
//! between the look-up of their bus addresses and the access to these.

use crate::engine::{Job, Scratch, Stage};
use crate::stats::HeldReport;

/// A chunk that is held.
#[derive(Debug)]
struct Held {
    job: Job,
    found: Scratch,
}

impl Held {
    /// Whether its access is one by a node, or to a node's memory.
    fn touches(&self, node: usize) -> bool {
        self.job.node == node || self.found.nodes().contains(&node)
    }
}

/// All chunks in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    /// Node and context of the chunk that is being moved.
    moving: Option<(usize, usize)>,
    held: Vec<Held>,
}

impl InFlight {
    /// The engine begins with a chunk.
    pub(crate) fn begin(&mut self, job: &Job) {
        self.moving = Some((job.node, job.context));
    }

    /// The engine has let go of the chunk that it began with.
    pub(crate) fn end(&mut self) {
        self.moving = None;
    }

    /// A chunk whose bus addresses are known waits with the access.
    pub(crate) fn hold(&mut self, job: &Job, found: Scratch) {
        let job = job.clone();
        self.held.push(Held { job, found });
    }

    /// Takes a held chunk that may go on; what is left of it is the access.
    pub(crate) fn take(&mut self, may_go: impl Fn(&Job) -> bool) -> Option<(Job, [usize; 2])> {
        let place = self.held.iter().position(|held| may_go(&held.job))?;
        let Held { mut job, found } = self.held.remove(place);
        let nodes = found.nodes();
        job.stage = Stage::Access(found);
        Some((job, nodes))
    }

    /// Takes a held chunk that concerns a node.
    pub(crate) fn take_touching(&mut self, node: usize) -> Option<Job> {
        let place = self.held.iter().position(|held| held.touches(node))?;
        Some(self.held.remove(place).job)
    }

    /// Whether there is a chunk of a context.
    pub(crate) fn has(&self, node: usize, context: usize) -> bool {
        let is_held = |held: &Held| (held.job.node, held.job.context) == (node, context);
        self.moving == Some((node, context)) || self.held.iter().any(is_held)
    }

    /// Whether there is a chunk that may touch a node's memory. One that is being moved may go
    /// through any table.
    pub(crate) fn may_touch(&self, node: usize) -> bool {
        self.moving.is_some() || self.held.iter().any(|held| held.touches(node))
    }

    /// The held chunks of a node.
    pub(crate) fn report(&self, node: usize) -> Vec<HeldReport> {
        let of_node = self.held.iter().filter(|held| held.job.node == node);
        of_node
            .map(|held| HeldReport {
                context: held.job.context,
                ticket: held.job.ticket,
            })
            .collect()
    }
}
