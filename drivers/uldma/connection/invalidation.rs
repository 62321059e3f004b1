// SPDX-License-Identifier: GPL-2.0

//! Invalidation of buffers while a connection goes on.
//!
//! A program can reap the last bytes of a buffer only when no command can access it any more. That
//! takes an invalidation in a queue of its own, so that neither the program nor copies in flight
//! wait for it.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    state::State,
    ConnCtx,
    Connection,
    Direction, //
};
use crate::{
    hw::{
        gate::GateGuard,
        Command, //
    },
    user_abi::status_page::Outcome, //
};

/// An invalidation in flight, after which a buffer can be reaped.
pub(super) struct Invalidation {
    connection: Arc<Connection>,
    direction: Direction,
    region: u32,
}

impl Connection {
    /// Submits invalidations of buffers that were moved as a whole. Returns true if there were any.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, so that the other buffers have to wait; `ENODEV` if the device
    /// is unbound.
    pub(super) fn start_invalidations(
        self: &Arc<Self>,
        ctx: &ConnCtx<'_>,
        guard: &GateGuard<'_>,
        state: &mut State,
        direction: Direction,
    ) -> Result<bool> {
        let mut any = false;
        let stream = &mut state.half(direction).stream;
        while let Some(buffer) = stream.next_to_invalidate() {
            let queues = ctx.queues.ok_or(ENODEV)?;
            let region = buffer.retract(ctx.tpt)?;
            let invalidation = Invalidation {
                connection: self.clone(),
                direction,
                region,
            };
            queues.invalidate_async(guard.hw(), invalidation)?;
            stream.invalidation_requested();
            any = true;
        }
        Ok(any)
    }
}

impl Invalidation {
    /// Returns the command for the device.
    pub(super) fn command(&self) -> Command {
        Command::Invalidate {
            region: self.region,
        }
    }

    /// Handles the completion of the invalidation.
    pub(super) fn ended(self, outcome: Outcome) {
        let mut state = self.connection.state.lock();
        let region = self.region;
        let stream = &mut state.half(self.direction).stream;
        if let Some(buffer) = stream.invalidated(|buffer| buffer.region() == Ok(region)) {
            buffer.set_region_state(outcome.check());
            self.connection.wake_if_ready(&mut state);
        }
    }
}
