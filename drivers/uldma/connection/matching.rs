// SPDX-License-Identifier: GPL-2.0

//! How two sides agree that the data of a connection goes from endpoint to endpoint.
//!
//! Each side says at most once what it does: it names an endpoint when its program asks for that, or
//! refuses to, if the peer has named one and the program here has posted memory by calls. A side
//! that has named an endpoint moves no data before the peer has answered.

use kernel::prelude::*;

use crate::{
    kernel_ext::errno::{
        eisconn,
        eproto, //
    },
    link::message::EndpointName,
    uapi, //
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
    pub(super) fn flags(&self) -> u32 {
        match (self.ours, self.theirs) {
            (Said::Endpoint(_), Said::Endpoint(_)) => uapi::ULDMA_STREAM_MATCHED,
            (Said::Endpoint(_), Said::No) => uapi::ULDMA_STREAM_REFUSED,
            _ => 0,
        }
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
