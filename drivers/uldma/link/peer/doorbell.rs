// SPDX-License-Identifier: GPL-2.0

//! What it costs to sleep until the doorbell of a peer rings: measured between idle nodes, and
//! followed by the messages of others.

use kernel::{
    prelude::*,
    sync::atomic::Relaxed,
    time::Delta, //
};

use super::{
    channel,
    Peer,
    PeerState, //
};
use crate::{
    hw::Hw,
    kernel_ext::wakeup,
    link::{
        doorbell_cost::{
            self,
            Traffic, //
        },
        message::{
            Message,
            Query, //
        }, //
    },
    params, //
};

impl Peer {
    /// Returns true if the doorbell of the peer rang and no message of the peer has come since: no
    /// answer comes before the peer is awake.
    pub(crate) fn has_rung(&self) -> bool {
        self.rang.load(Relaxed)
    }

    /// Returns the cost of sleeping until the peer rings, or that of a timer before it is measured.
    pub(crate) fn doorbell_cost(&self) -> Delta {
        match self.doorbell_cost.load(Relaxed) {
            0 => wakeup::cost(),
            nanoseconds => Delta::from_nanos(nanoseconds),
        }
    }

    /// Sends a query that measures the cost of a doorbell, if both nodes sleep and it is not known.
    pub(in crate::link) fn measure_doorbell(&self, hw: Hw<'_>) -> Result {
        let mut state = self.state.lock();
        let wanted = state.doorbell_cost.is_wanted() && params::wakeup().is_none();
        if !state.session.up || !wanted || !state.is_asleep() {
            return Ok(());
        }
        let channel = channel(hw, self.node);
        let rings = state.rings.as_mut();
        if !rings.is_some_and(|it| it.peer_is_idle(&channel).unwrap_or(false)) {
            return Ok(());
        }
        let query = Query::Region(doorbell_cost::NAME);
        let traffic = state.traffic();
        if state.send(
            hw,
            self.node,
            &Message::Query(doorbell_cost::REQUEST, query),
        ) == Ok(true)
        {
            let now = state.age();
            state.doorbell_cost.asked(now, traffic);
        }
        Ok(())
    }

    /// Returns true if the measurement of this session is over.
    pub(in crate::link) fn is_measured(&self) -> bool {
        self.state.lock().doorbell_cost.is_over()
    }

    /// Handles the answer to that query.
    pub(in crate::link) fn doorbell_answered(&self) {
        let mut state = self.state.lock();
        let (now, traffic) = (state.age(), state.traffic());
        if let Some(cost) = state.doorbell_cost.answered(now, traffic) {
            self.doorbell_cost.store(wakeup::bounded(cost), Relaxed);
        }
    }

    /// Follows the cost of a doorbell by one that cost `sample` nanoseconds.
    pub(super) fn follow_doorbell_cost(&self, sample: i64) {
        if params::wakeup().is_some() {
            return;
        }
        let cost = wakeup::followed(self.doorbell_cost().as_nanos(), sample);
        self.doorbell_cost.store(cost, Relaxed);
    }

    /// Notes that a doorbell has rung, which wakes this node if it needed one.
    pub(in crate::link) fn rung(&self) {
        let mut state = self.state.lock();
        if state.is_asleep() {
            let now = state.age();
            state.turnaround.woken(now);
        }
    }

    /// Returns how many messages of the peer have shown the cost of a doorbell.
    pub(in crate::link) fn followed(&self) -> u64 {
        self.state.lock().counters.followed
    }
}

impl PeerState {
    /// Returns true if the peer knows that this node needs doorbells.
    fn is_asleep(&self) -> bool {
        self.rings.as_ref().is_some_and(|rings| rings.is_asleep())
    }

    fn traffic(&self) -> Traffic {
        Traffic {
            wakes: self.wakes,
            received: self.counters.received,
        }
    }
}
