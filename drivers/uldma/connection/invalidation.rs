// SPDX-License-Identifier: GPL-2.0

//! Taking memory out of the engine's reach while a connection goes on.
//!
//! A program gets a buffer back as a whole only when no command can touch it any more, whoever made
//! it. What ends them is an invalidation in a queue of its own, so that neither the program nor the
//! copies that are under way wait for it.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    state::State,
    Connection,
    Direction, //
    Site,
};
use crate::{
    hw::Command,
    kernel_ext::gate::GateGuard,
    user_abi::status_page::Outcome, //
};

/// An invalidation after which a buffer can be given back.
pub(super) struct Invalidation {
    connection: Arc<Connection>,
    direction: Direction,
    region: u32,
}

impl Connection {
    /// Begins to withdraw what was moved as a whole; whether there was any.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`](crate::dma::queue::Queue::submit); `EBUSY`: the rest has to wait.
    pub(super) fn start_invalidations(
        self: &Arc<Self>,
        site: &Site<'_>,
        guard: &GateGuard<'_>,
        state: &mut State,
        direction: Direction,
    ) -> Result<bool> {
        let mut any = false;
        let stream = &mut state.half(direction).stream;
        while let Some(buffer) = stream.next_to_invalidate() {
            let queues = site.queues.ok_or(ENODEV)?;
            let region = buffer.retract(site.tpt)?;
            let invalidation = Invalidation {
                connection: self.clone(),
                direction,
                region,
            };
            queues.invalidate_async(guard.dev(), site.hw, invalidation)?;
            stream.invalidation_requested();
            any = true;
        }
        Ok(any)
    }
}

impl Invalidation {
    /// What the device has to do.
    pub(super) fn command(&self) -> Command {
        Command::Invalidate {
            region: self.region,
        }
    }

    /// The invalidation has ended.
    pub(super) fn ended(self, outcome: Outcome) {
        let mut state = self.connection.state.lock();
        let region = self.region;
        let stream = &mut state.half(self.direction).stream;
        if let Some(buffer) = stream.invalidated(|buffer| buffer.region() == Ok(region)) {
            buffer.set_region_state(outcome.check());
            self.connection.wake_if_ready(&state);
        }
    }
}
