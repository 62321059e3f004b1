// SPDX-License-Identifier: GPL-2.0

//! Answers to peers about connections that do not exist, until the rings of the peers have room.
//!
//! Each peer has its own queue, so that a peer that takes no messages delays its own answers only.
//! Each connection of a peer that follows the protocol waits for at most one answer, so the number
//! of answers is bounded by the number of connections of a device.

use kernel::prelude::*;

/// The messages for one peer, oldest first.
struct Queue<T> {
    node: u32,
    waiting: KVec<T>,
}

/// Messages that wait for room in the rings of peers, at most `limit` per peer.
pub(super) struct Outbox<T> {
    queues: KVec<Queue<T>>,
    limit: usize,
}

impl<T: Copy> Outbox<T> {
    /// Creates an empty outbox.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            queues: KVec::new(),
            limit,
        }
    }

    /// Adds a message to `node`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the queue of the peer is full, `ENOMEM`; the message is lost.
    pub(super) fn add(&mut self, node: u32, message: T) -> Result {
        let found = self.queues.iter().position(|queue| queue.node == node);
        let place = match found {
            Some(place) => place,
            None => {
                let queue = Queue {
                    node,
                    waiting: KVec::new(),
                };
                self.queues.push(queue, GFP_KERNEL)?;
                self.queues.len() - 1
            }
        };
        let queue = self.queues.get_mut(place).ok_or(EINVAL)?;
        if queue.waiting.len() >= self.limit {
            return Err(ENOSPC);
        }
        Ok(queue.waiting.push(message, GFP_KERNEL)?)
    }

    /// Has `send` say what waits, to each peer in order until it fails with `EBUSY`; whether anything
    /// was said. What cannot be said at all is forgotten.
    pub(super) fn flush(&mut self, mut send: impl FnMut(u32, &T) -> Result) -> bool {
        let mut any = false;
        for queue in &mut self.queues {
            let node = queue.node;
            let mut busy = false;
            queue.waiting.retain(|message| {
                busy = busy || send(node, message) == Err(EBUSY);
                any |= !busy;
                busy
            });
        }
        any
    }

    /// Drops the messages for `node`.
    pub(super) fn clear(&mut self, node: u32) {
        self.queues.retain(|queue| queue.node != node);
    }
}

#[kunit_tests(uldma_connection_outbox)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_stops_its_owner_alone() -> Result {
        let mut outbox = Outbox::new(8);
        for message in [1, 2, 3] {
            outbox.add(7, message)?;
            outbox.add(5, 10 * message)?;
        }
        // The ring of 7 takes one message, that of 5 all.
        let mut sent = KVec::new();
        let mut room = 1;
        assert!(outbox.flush(|node, message| {
            if node == 7 {
                if room == 0 {
                    return Err(EBUSY);
                }
                room -= 1;
            }
            Ok(sent.push((node, *message), GFP_KERNEL)?)
        }));
        assert_eq!(&*sent, &[(7, 1), (5, 10), (5, 20), (5, 30)]);
        // Messages that had to wait are sent later, in order.
        let mut sent = KVec::new();
        assert!(outbox.flush(|node, message| Ok(sent.push((node, *message), GFP_KERNEL)?)));
        assert_eq!(&*sent, &[(7, 2), (7, 3)]);
        assert!(!outbox.flush(|_, _| Ok(())));
        Ok(())
    }

    #[test]
    fn a_peer_has_its_own_limit() -> Result {
        let mut outbox = Outbox::new(2);
        outbox.add(1, 'a')?;
        outbox.add(1, 'b')?;
        assert_eq!(outbox.add(1, 'c'), Err(ENOSPC));
        outbox.add(2, 'd')?;
        outbox.clear(1);
        outbox.add(1, 'e')?;
        Ok(())
    }

    #[test]
    fn a_peer_that_is_gone_is_not_waited_for() -> Result {
        let mut outbox = Outbox::new(2);
        outbox.add(1, 'a')?;
        assert!(outbox.flush(|_, _| Err(EIO)));
        assert!(!outbox.flush(|_, _| Ok(())));
        Ok(())
    }
}
