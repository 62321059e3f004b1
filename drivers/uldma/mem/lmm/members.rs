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
pub(crate) struct Member(Arc<Members>);

impl Members {
    /// Creates a set without members.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let members = pin_init!(Self {
            count: Atomic::new(0),
            door <- new_mutex!((), "uldma::Members::door"),
        });
        Arc::pin_init(members, GFP_KERNEL)
    }

    /// Adds a member.
    pub(super) fn add(self: &Arc<Self>) -> Member {
        let _door = self.door.lock();
        self.count.fetch_add(1, Relaxed);
        Member(self.clone())
    }

    /// Calls `run` with the number of members. None is added until `run` returns, but some may be
    /// dropped.
    pub(super) fn while_closed<R>(&self, run: impl FnOnce(usize) -> R) -> R {
        let _door = self.door.lock();
        run(self.count.load(Relaxed))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}
