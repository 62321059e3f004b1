// SPDX-License-Identifier: MIT OR Apache-2.0

//! Chunks in flight: the one that the engine is moving, and those that are held between the look-up
//! of their bus addresses and the access.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::engine::{Job, Scratch, Stage};
use crate::stats::HeldReport;
use crate::touch::Bracket;

/// Time after which a faulty device accesses once more: until then its driver may have given the memory
/// away.
const LATE: Duration = Duration::from_millis(1);

/// A chunk that is held.
#[derive(Debug)]
struct Held {
    job: Job,
    found: Scratch,
}

impl Held {
    /// Returns true if the chunk was initiated by the node or touches its memory.
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
    /// Chunks that access once more, in order of time.
    late: VecDeque<(Instant, Job)>,
}

impl InFlight {
    /// Notes that the engine begins with a chunk.
    pub(crate) fn begin(&mut self, job: &Job) {
        self.moving = Some((job.node, job.context));
    }

    /// Notes that the engine has finished the chunk that it began.
    pub(crate) fn end(&mut self) {
        self.moving = None;
    }

    /// Holds a chunk whose bus addresses are known, before the access.
    pub(crate) fn hold(&mut self, job: &Job, found: Scratch) {
        let job = job.clone();
        self.held.push(Held { job, found });
    }

    /// Removes a held chunk for which `may_go` returns true; its remaining stage is the access.
    pub(crate) fn take(&mut self, may_go: impl Fn(&Job) -> bool) -> Option<(Job, [usize; 2])> {
        let place = self.held.iter().position(|held| may_go(&held.job))?;
        let Held { mut job, found } = self.held.remove(place);
        let nodes = found.nodes();
        job.stage = Stage::Access(found);
        Some((job, nodes))
    }

    /// Notes that a chunk, whose bus addresses are known, accesses once more.
    pub(crate) fn repeat(&mut self, job: &Job) {
        let mut job = Job {
            bracket: Bracket::default(),
            late: true,
            ..job.clone()
        };
        if let Stage::Access(found) = &mut job.stage {
            found.forget_entries();
        }
        self.late.push_back((job.began + LATE, job));
    }

    /// Removes a chunk that accesses once more by now. The error is when one will.
    pub(crate) fn take_late(&mut self, now: Instant) -> Result<Job, Option<Instant>> {
        match self.late.front() {
            Some((at, _)) if *at > now => return Err(Some(*at)),
            _ => {}
        }
        self.late.pop_front().map(|(_, job)| job).ok_or(None)
    }

    /// Removes a held chunk that touches a node.
    pub(crate) fn take_touching(&mut self, node: usize) -> Option<Job> {
        let place = self.held.iter().position(|held| held.touches(node))?;
        Some(self.held.remove(place).job)
    }

    /// Returns true if a chunk of the context is in flight.
    pub(crate) fn has(&self, node: usize, context: usize) -> bool {
        let is_held = |held: &Held| (held.job.node, held.job.context) == (node, context);
        self.moving == Some((node, context)) || self.held.iter().any(is_held)
    }

    /// Returns true if a chunk that may touch the node's memory is in flight. The chunk that is
    /// being moved may go through any table.
    pub(crate) fn may_touch(&self, node: usize) -> bool {
        self.moving.is_some() || self.held.iter().any(|held| held.touches(node))
    }

    /// Returns the held chunks of a node.
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
