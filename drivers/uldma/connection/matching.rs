// SPDX-License-Identifier: GPL-2.0

//! Connections whose data goes from endpoint to endpoint, matched by the device.
//!
//! Each side says at most once what it does: it names an endpoint when its program asks for that, or
//! refuses to, if the peer has named one and the program here has posted memory by calls. A side
//! that has named an endpoint moves no data before the peer has answered.

use super::state::State;
use super::*;
use crate::{
    kernel_ext::errno::{
        eisconn,
        eopnotsupp,
        eproto, //
    },
    link::message::EndpointName, //
};

/// What one side has said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Said {
    #[default]
    Nothing,
    Endpoint(EndpointName),
    No,
}

/// How the two sides agree on endpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Matching {
    ours: Said,
    /// The peer knows ours.
    told: bool,
    theirs: Said,
    /// The peer has offered memory, or reported data, by messages.
    has_called: bool,
}

impl Matching {
    /// Names an endpoint of this side.
    ///
    /// # Errors
    ///
    /// `EISCONN` if another one was named, `EBUSY` if this side moves data by calls.
    pub(super) fn name(&mut self, endpoint: EndpointName) -> Result {
        match self.ours {
            Said::Nothing => {
                self.ours = Said::Endpoint(endpoint);
                Ok(())
            }
            Said::Endpoint(other) if other == endpoint => Ok(()),
            Said::Endpoint(_) => Err(eisconn()),
            Said::No => Err(EBUSY),
        }
    }

    /// Checks that the program may post memory by a call.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it has named an endpoint that the peer has not refused.
    pub(super) fn check_calls(&self) -> Result {
        match (self.ours, self.theirs) {
            (Said::Endpoint(_), Said::No) | (Said::No | Said::Nothing, _) => Ok(()),
            (Said::Endpoint(_), _) => Err(EBUSY),
        }
    }

    /// Notes that the program has posted memory by a call, which was
    /// [checked](Self::check_calls).
    pub(super) fn use_calls(&mut self) {
        if self.ours == Said::Nothing {
            self.ours = Said::No;
        }
    }

    /// Notes that the peer offers memory, or reports data, by a message, as it does for programs that
    /// use calls.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it has named an endpoint that this side has not refused.
    pub(super) fn heard_call(&mut self) -> Result {
        if let Said::Endpoint(_) = self.theirs {
            return match self.ours {
                Said::No if self.told => Ok(()),
                _ => Err(eproto()),
            };
        }
        self.has_called = true;
        Ok(())
    }

    /// Notes what the peer says.
    ///
    /// # Errors
    ///
    /// `EPROTO` if it says something for the second time, names an endpoint although its program uses
    /// calls, or refuses what was not asked.
    pub(super) fn heard(&mut self, endpoint: Option<EndpointName>) -> Result {
        let asked = matches!(self.ours, Said::Endpoint(_)) && self.told;
        self.theirs = match (self.theirs, endpoint) {
            (Said::Nothing, Some(name)) if !self.has_called => Said::Endpoint(name),
            (Said::Nothing, None) if asked => Said::No,
            _ => return Err(eproto()),
        };
        Ok(())
    }

    /// Returns what the peer has to be told.
    pub(super) fn next_to_tell(&self) -> Option<Option<EndpointName>> {
        match (self.ours, self.theirs) {
            _ if self.told => None,
            (Said::Endpoint(name), _) => Some(Some(name)),
            (Said::No, Said::Endpoint(_)) => Some(None),
            _ => None,
        }
    }

    /// Notes that the peer was told.
    pub(super) fn set_told(&mut self) {
        self.told = true;
    }

    /// Returns the endpoint of the peer, if both have named one.
    pub(super) fn peer(&self) -> Option<EndpointName> {
        match (self.ours, self.theirs) {
            (Said::Endpoint(_), Said::Endpoint(name)) => Some(name),
            _ => None,
        }
    }

    /// Returns true if this side has named an endpoint that the peer has not refused.
    pub(super) fn is_asked(&self) -> bool {
        matches!(self.ours, Said::Endpoint(_)) && self.theirs != Said::No
    }

    /// Returns the bits that a program sees.
    fn flags(&self) -> u32 {
        match (self.ours, self.theirs) {
            (Said::Endpoint(_), Said::Endpoint(_)) => uapi::ULDMA_STREAM_MATCHED,
            (Said::Endpoint(_), Said::No) => uapi::ULDMA_STREAM_REFUSED,
            _ => 0,
        }
    }
}

impl Connection {
    /// Names the endpoint by which the data of the connection goes.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if one of the devices has no streams or receivers move the data; those of
    /// [`Matching::name`]; `ENOTCONN` before the connection is established.
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

#[kunit_tests(uldma_connection_matching)]
mod tests {
    use super::*;

    #[test]
    fn two_that_name_endpoints_match() -> Result {
        let (mut one, mut other) = (Matching::default(), Matching::default());
        one.name((1, 10))?;
        assert_eq!(one.check_calls(), Err(EBUSY));
        assert_eq!(one.next_to_tell(), Some(Some((1, 10))));
        one.set_told();
        assert_eq!(one.next_to_tell(), None);
        other.heard(Some((1, 10)))?;
        assert_eq!((other.next_to_tell(), other.peer()), (None, None));
        other.name((2, 20))?;
        assert_eq!(other.peer(), Some((1, 10)));
        assert_eq!(other.next_to_tell(), Some(Some((2, 20))));
        one.heard(Some((2, 20)))?;
        assert_eq!(one.peer(), Some((2, 20)));
        assert_eq!(one.flags(), uapi::ULDMA_STREAM_MATCHED);
        assert_eq!(one.check_calls(), Err(EBUSY));
        assert_eq!(one.name((1, 10)), Ok(()));
        assert_eq!(one.name((3, 10)), Err(eisconn()));
        Ok(())
    }

    #[test]
    fn a_program_that_uses_calls_refuses_when_asked() -> Result {
        let (mut one, mut other) = (Matching::default(), Matching::default());
        other.check_calls()?;
        other.use_calls();
        assert_eq!(
            (other.next_to_tell(), other.name((2, 20))),
            (None, Err(EBUSY))
        );
        one.name((1, 10))?;
        one.set_told();
        other.heard(Some((1, 10)))?;
        assert_eq!(other.next_to_tell(), Some(None));
        one.heard(None)?;
        assert_eq!(one.flags(), uapi::ULDMA_STREAM_REFUSED);
        assert!(!one.is_asked());
        one.check_calls()?;
        one.use_calls();
        assert_eq!((one.next_to_tell(), one.peer()), (None, None));
        assert_eq!(one.flags(), uapi::ULDMA_STREAM_REFUSED);
        Ok(())
    }

    #[test]
    fn a_call_that_is_only_checked_chooses_nothing() -> Result {
        let mut one = Matching::default();
        one.check_calls()?;
        assert_eq!(one.name((1, 10)), Ok(()));
        Ok(())
    }

    #[test]
    fn a_peer_uses_calls_or_an_endpoint() -> Result {
        // Calls first.
        let mut one = Matching::default();
        one.heard_call()?;
        assert_eq!(one.heard(Some((2, 20))), Err(eproto()));
        // An endpoint first, whatever was said here.
        let mut one = Matching::default();
        one.heard(Some((2, 20)))?;
        assert_eq!(one.heard_call(), Err(eproto()));
        let mut matched = one;
        matched.name((1, 10))?;
        assert_eq!(matched.heard_call(), Err(eproto()));
        // An endpoint that was refused. Its exports may come only after that.
        one.use_calls();
        assert_eq!(one.heard_call(), Err(eproto()));
        one.set_told();
        one.heard_call()
    }

    #[test]
    fn calls_of_a_peer_may_come_before_it_refuses() -> Result {
        let mut one = Matching::default();
        one.name((1, 10))?;
        one.set_told();
        one.heard_call()?;
        one.heard(None)?;
        one.heard_call()
    }

    #[test]
    fn a_peer_says_it_once_and_answers_only() -> Result {
        let mut one = Matching::default();
        assert_eq!(one.heard(None), Err(eproto()));
        one.name((1, 10))?;
        assert_eq!(one.heard(None), Err(eproto()));
        one.heard(Some((2, 20)))?;
        assert_eq!(one.heard(Some((2, 20))), Err(eproto()));
        assert_eq!(one.heard(None), Err(eproto()));
        Ok(())
    }
}
