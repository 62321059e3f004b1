// SPDX-License-Identifier: GPL-2.0

//! The state machine of discovery, `Documentation/uldma/link.rst`.

use kernel::prelude::*;

/// The session with a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    /// This node's random number; 0 before the first.
    pub(super) own: u32,
    /// The session of the peer that was met, or 0.
    pub(super) met: u32,
    pub(super) up: bool,
}

/// The words of a compatible peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sight {
    pub(super) session: u32,
    pub(super) echo: u32,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Stay,
    /// Echo this session of the peer, and clear the ring that this node writes.
    Meet(u32),
    /// The link is up.
    Up,
    /// The link is down: begin a new session.
    Down,
}

impl Session {
    /// No session.
    pub(super) const NONE: Self = Self {
        own: 0,
        met: 0,
        up: false,
    };

    /// Returns the next step. `sight` is `None` if the peer is unreachable or incompatible.
    pub(super) fn step(&self, sight: Option<Sight>) -> Step {
        match (sight, self.up) {
            (None, true) => Step::Down,
            // The peer that was met has disappeared, and may reappear as it was. A new session
            // makes it prove that it is alive.
            (None, false) if self.met != 0 => Step::Down,
            (None, false) => Step::Stay,
            (Some(sight), true) if sight.session != self.met || sight.echo != self.own => {
                Step::Down
            }
            (Some(_), true) => Step::Stay,
            (Some(sight), false) if sight.session != self.met => match sight.echo {
                echo if echo == 0 || echo == self.own => Step::Meet(sight.session),
                // The peer is in an earlier session with this node, and reads the ring of that one, until
                // it notices that this one is new. It draws another session then.
                _ if self.met == 0 => Step::Stay,
                // Nor has the peer met this session, if it sees what this node has met before.
                _ => Step::Down,
            },
            (Some(sight), false) if sight.echo == self.own => Step::Up,
            (Some(_), false) => Step::Stay,
        }
    }
}

#[kunit_tests(uldma_link_session)]
mod tests {
    use super::*;

    /// One node: its session, and the handshake that the other sees.
    struct Node {
        session: Session,
        next: u32,
    }

    impl Node {
        fn new(own: u32) -> Self {
            let session = Session {
                own,
                met: 0,
                up: false,
            };
            Self {
                session,
                next: own + 100,
            }
        }

        fn sight(&self) -> Sight {
            Sight {
                session: self.session.own,
                echo: self.session.met,
            }
        }

        fn observe(&mut self, peer: Option<Sight>) -> Step {
            let step = self.session.step(peer);
            match step {
                Step::Stay => (),
                Step::Meet(session) => self.session.met = session,
                Step::Up => self.session.up = true,
                Step::Down => {
                    *self = Self::new(self.next);
                }
            }
            step
        }
    }

    /// Lets both observe each other until nothing changes.
    fn exchange_until_stable(a: &mut Node, b: &mut Node) {
        for _ in 0..8 {
            a.observe(Some(b.sight()));
            b.observe(Some(a.sight()));
        }
    }

    #[test]
    fn two_nodes_meet() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        exchange_until_stable(&mut a, &mut b);
        assert!(a.session.up && b.session.up);
        assert_eq!(
            (a.session.own, a.session.met),
            (b.session.met, b.session.own)
        );
    }

    #[test]
    fn a_restart_is_noticed_by_the_other() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        exchange_until_stable(&mut a, &mut b);
        let old = a.session;
        b = Node::new(77);
        assert_eq!(a.observe(Some(b.sight())), Step::Down);
        exchange_until_stable(&mut a, &mut b);
        assert!(a.session.up && b.session.up);
        assert!(a.session.own != old.own && a.session.met != old.met);
    }

    #[test]
    fn a_peer_is_met_once_it_has_left_the_last_session() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        exchange_until_stable(&mut a, &mut b);
        b = Node::new(77);
        for _ in 0..2 {
            assert_eq!(b.observe(Some(a.sight())), Step::Stay);
        }
        assert_eq!(a.observe(Some(b.sight())), Step::Down);
        assert_eq!(b.observe(Some(a.sight())), Step::Meet(a.session.own));
        exchange_until_stable(&mut a, &mut b);
        assert!(a.session.up && b.session.up);
    }

    #[test]
    fn nodes_that_have_met_what_both_have_left_meet_again() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        (a.session.met, b.session.met) = (12, 11);
        exchange_until_stable(&mut a, &mut b);
        assert!(a.session.up && b.session.up);
    }

    #[test]
    fn what_a_dead_peer_left_is_not_a_peer() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        exchange_until_stable(&mut a, &mut b);
        let left = b.sight();
        // Its heartbeat stopped.
        assert_eq!(a.observe(None), Step::Down);
        for _ in 0..4 {
            a.observe(Some(left));
            assert!(!a.session.up);
        }
    }

    #[test]
    fn a_pause_ends_the_session_on_both_sides() {
        let (mut a, mut b) = (Node::new(1), Node::new(2));
        exchange_until_stable(&mut a, &mut b);
        assert_eq!(a.observe(None), Step::Down);
        assert_eq!(b.observe(Some(a.sight())), Step::Down);
        exchange_until_stable(&mut a, &mut b);
        assert!(a.session.up && b.session.up);
    }
}
