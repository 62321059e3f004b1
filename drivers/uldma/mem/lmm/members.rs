// SPDX-License-Identifier: GPL-2.0

//! How much of a space the device can find: regions, imports, and memory that connections have.
//!
//! An invalidation of a whole space ends what uses any of it, so that it may replace those of single
//! regions only where these are all that there is, and no other can be made meanwhile.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use super::space::Space;

/// The members of one space.
#[pin_data]
pub(super) struct Members {
    count: Atomic<usize>,
    /// Held while a member comes, or none may come.
    #[pin]
    door: Mutex<()>,
}

/// One region, import or buffer of a space, from before the device can find it until it cannot.
pub(crate) struct Member(Arc<Space>);

impl Members {
    /// No members.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            count: Atomic::new(0),
            door <- new_mutex!((), "uldma::Members::door"),
        })
    }

    fn add(&self) {
        let _door = self.door.lock();
        self.count.fetch_add(1, Relaxed);
    }

    fn remove(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    /// Calls `run` with the number of members, to which none comes until it returns.
    fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        let _door = self.door.lock();
        run(self.count.load(Relaxed))
    }
}

impl Space {
    /// Makes room for a member.
    pub(crate) fn add_member(self: &Arc<Self>) -> Member {
        self.members.add();
        Member(self.clone())
    }

    /// Calls `run` with the number of members, to which none comes until it returns; some may go.
    pub(crate) fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        self.members.while_closed(run)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.remove();
    }
}
