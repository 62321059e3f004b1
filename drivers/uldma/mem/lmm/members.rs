// SPDX-License-Identifier: GPL-2.0

//! The members of a space: regions, imports and connection buffers, which the device can find.
//!
//! An invalidation of a whole space ends the use of all its members. It may replace the
//! invalidations of single regions only if these are all members, and none is added meanwhile.

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
    /// Held while a member is added, or while none may be added.
    #[pin]
    door: Mutex<()>,
}

/// One member of a space, created before the device can find it and dropped when it cannot any
/// more.
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

    /// Calls `run` with the number of members. None is added until `run` returns.
    fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        let _door = self.door.lock();
        run(self.count.load(Relaxed))
    }
}

impl Space {
    /// Adds a member.
    pub(crate) fn add_member(self: &Arc<Self>) -> Member {
        self.members.add();
        Member(self.clone())
    }

    /// Calls `run` with the number of members. None is added until `run` returns, but some may be
    /// dropped.
    pub(crate) fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        self.members.while_closed(run)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.members.remove();
    }
}
