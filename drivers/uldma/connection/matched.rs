// SPDX-License-Identifier: GPL-2.0

//! Connections whose data goes from endpoint to endpoint, matched by the device.

use super::state::State;
use super::*;
use crate::{
    kernel_ext::errno::{
        eopnotsupp,
        eproto, //
    },
    link::message::EndpointName, //
};

impl Connection {
    /// Names the endpoint by which the data of the connection goes.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if one of the devices has no streams or receivers move the data; those of
    /// [`Matching::name`](super::matching::Matching::name); `ENOTCONN` before the connection is
    /// established.
    pub(crate) fn name_endpoint(
        self: &Arc<Self>,
        ctx: &ConnCtx<'_>,
        endpoint: EndpointName,
    ) -> Result {
        let has_streams = ctx.link.peer(self.node)?.has_streams();
        {
            let mut state = self.state.lock();
            if state.matching.is_asked() || state.closing.has_begun() {
                return state.matching.name(endpoint);
            }
            if self.transport != Transport::Engine || self.pull || !has_streams {
                return Err(eopnotsupp());
            }
            state.check_open()?;
            state.matching.name(endpoint)?;
            // The peer may have named its endpoint before.
            self.note_stream_flags(&state);
        }
        ctx.connections.enqueue(self);
        ctx.worker.kick();
        Ok(())
    }

    /// Returns the peer's endpoint, if both sides have named one.
    pub(crate) fn peer_endpoint(&self) -> Option<EndpointName> {
        self.state.lock().matching.peer()
    }

    /// Returns `ULDMA_STREAM_*`. Takes no lock.
    pub(crate) fn stream_flags(&self) -> u32 {
        self.stream_flags.load(Relaxed)
    }

    /// Publishes [`Connection::stream_flags`].
    pub(super) fn note_stream_flags(&self, state: &State) {
        let ended = match state.reset || state.closing.has_begun() {
            true => uapi::ULDMA_STREAM_ENDED,
            false => 0,
        };
        self.stream_flags
            .store(state.matching.flags() | ended, Relaxed);
    }

    /// Returns true if data goes, or may go, from endpoint to endpoint.
    pub(crate) fn is_matched(&self) -> bool {
        self.state.lock().matching.is_asked()
    }

    /// Notes that the device has refused bytes of the stream, as it does when the peer has ended its
    /// endpoint, or has named one that is not connected to that of this side. Returns the nanoseconds
    /// that the peer has left to end the connection, which is reset when they are over.
    pub(crate) fn tear(self: &Arc<Self>, ctx: &ConnCtx<'_>) -> u64 {
        let left = {
            let mut state = self.state.lock();
            let since = *state.torn.get_or_insert_with(Instant::now);
            let left = (params::link_timeout() - since.elapsed()).as_nanos();
            let left = u64::try_from(left).unwrap_or(0);
            if left == 0 {
                self.fail(&mut state);
            }
            left
        };
        if left == 0 {
            ctx.connections.enqueue(self);
            ctx.worker.kick();
        }
        left
    }

    /// Notes before its end that data was lost, or may have been: what the program has given to be
    /// sent before the peer has answered is not known here.
    pub(crate) fn lose(&self, unsent: bool) {
        let mut state = self.state.lock();
        let answered = state.matching.peer().is_some();
        if state.matching.is_asked() && !state.closing.has_begun() {
            state.reset |= unsent || !answered;
        }
    }

    /// Handles the endpoint that the peer names.
    pub(super) fn stream_named(
        &self,
        ctx: &ConnCtx<'_>,
        state: &mut State,
        endpoint: Option<EndpointName>,
    ) -> Result {
        let can = self.transport == Transport::Engine
            && !self.pull
            && ctx.link.peer(self.node)?.has_streams();
        if !can || !state.is_connected() || state.closing.theirs {
            return Err(eproto());
        }
        state.matching.heard(endpoint)
    }
}
