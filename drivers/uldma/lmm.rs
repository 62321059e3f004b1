// SPDX-License-Identifier: GPL-2.0

//! The locked memory manager: which pages of which address space are pinned, and how often.
//!
//! One [`Space`] per address space that has the device open, whatever the number of openers, so
//! that each page is pinned, charged and entered in the page table once.

use kernel::{
    id_pool::IdPool,
    mm::MmWithUser,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

use crate::kernel_ext::workqueue::OwnQueue;

mod area;
mod attention;
mod cache;
pub(crate) mod host;
mod lock;
pub(crate) mod locked;
mod look;
mod map;
#[cfg(CONFIG_KUNIT = "y")]
mod map_tests;
pub(crate) mod members;
pub(crate) mod origin;
mod pages;
mod pinning;
pub(crate) mod range;
mod retire;
pub(crate) mod space;
mod unlock;

pub(crate) use cache::Limits;
use host::Host;
use space::Space;

/// Address spaces that can have a device open at a time.
const MAX_SPACES: usize = 1 << 16;

/// Spaces of a device that are worked for at a time. Each may wait for its process, within a limit, and
/// is a thread meanwhile.
const WORKERS: u16 = 16;

/// What the administrator chose.
#[derive(Clone, Copy)]
pub(crate) struct Options {
    /// Whether areas that nothing tells apart any more are merged.
    pub(crate) merge: bool,
    /// What the cache of an address space may keep.
    pub(crate) cache: Limits,
    /// Milliseconds for which what may have changed waits for others who hold a file's lock.
    pub(crate) settle_ms: u32,
}

/// The spaces of one device.
#[pin_data]
pub(crate) struct Lmm {
    options: Options,
    /// Pages that all caches keep.
    cached: Arc<Atomic<usize>>,
    /// Where spaces are worked for.
    queue: Arc<OwnQueue>,
    #[pin]
    spaces: Mutex<Spaces>,
}

struct Spaces {
    /// By the address of the `mm_struct`, which a space keeps allocated.
    by_mm: RBTree<usize, Users>,
    ids: IdPool,
}

struct Users {
    space: Arc<Space>,
    count: usize,
}

fn key(mm: &MmWithUser) -> usize {
    mm.as_raw().addr()
}

impl Lmm {
    /// Creates a manager without spaces.
    pub(crate) fn new(options: Options) -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(move || {
            let mut ids = IdPool::with_capacity(MAX_SPACES, GFP_KERNEL)?;
            // Space 0 is the kernel's.
            ids.find_unused_id(0).ok_or(ENOSPC)?.acquire();
            let spaces = Spaces {
                by_mm: RBTree::new(),
                ids,
            };
            Ok(try_pin_init!(Self {
                options,
                cached: Arc::new(Atomic::new(0), GFP_KERNEL)?,
                queue: Arc::new(OwnQueue::new(c"uldma-lmm", WORKERS)?, GFP_KERNEL)?,
                spaces <- new_mutex!(spaces, "uldma::Lmm::spaces"),
            }))
        })
    }

    /// What the administrator chose.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// The space of `mm`, which the caller uses until [`Lmm::leave`].
    pub(crate) fn join(&self, mm: &MmWithUser, host: Arc<dyn Host>) -> Result<Arc<Space>> {
        let mut spaces = self.spaces.lock();
        if let Some(users) = spaces.by_mm.get_mut(&key(mm)) {
            users.count += 1;
            return Ok(users.space.clone());
        }
        let id = spaces.ids.find_unused_id(1).ok_or(ENOSPC)?.as_u32();
        let (cached, queue) = (self.cached.clone(), self.queue.clone());
        let space = Space::new(id, mm, host, self.options, cached, queue);
        let space = Arc::pin_init(space, GFP_KERNEL)?;
        let users = Users {
            space: space.clone(),
            count: 1,
        };
        let node = RBTreeNode::new(key(mm), users, GFP_KERNEL)?;
        if let Some(unused) = spaces.ids.find_unused_id(usize::try_from(id)?) {
            unused.acquire();
        }
        spaces.by_mm.insert(node);
        space.start_work();
        Ok(space)
    }

    /// Ends the use of a space; it goes with the last user.
    pub(crate) fn leave(&self, space: &Arc<Space>) {
        let mut spaces = self.spaces.lock();
        let Some(users) = spaces.by_mm.get_mut(&space.key()) else {
            return;
        };
        users.count -= 1;
        if users.count > 0 {
            return;
        }
        let gone = spaces.by_mm.remove(&space.key());
        drop(spaces);
        drop(gone);
        space.stop_work();
        space.shrink(usize::MAX);
        if space.is_stuck() {
            return;
        }
        // Only now may the number mean another space.
        if let Ok(id) = usize::try_from(space.id()) {
            self.spaces.lock().ids.release_id(id);
        }
    }

    /// Pages that all caches keep.
    pub(crate) fn cached(&self) -> usize {
        self.cached.load(Relaxed)
    }

    /// Gets caches to give `pages` pages up, each of them; takes no lock that it would have to wait
    /// for.
    pub(crate) fn give_up(&self, pages: usize) {
        if let Some(spaces) = self.spaces.try_lock() {
            for users in spaces.by_mm.values() {
                users.space.attention.give_up(pages);
            }
        }
    }
}
