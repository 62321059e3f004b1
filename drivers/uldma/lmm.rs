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
        Arc,
        Mutex, //
    }, //
};

mod area;
pub(crate) mod range;
pub(crate) mod space;

use space::Space;

/// Address spaces that can have a device open at a time.
const MAX_SPACES: usize = 1 << 16;

/// The spaces of one device.
#[pin_data]
pub(crate) struct Lmm {
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
    pub(crate) fn new() -> impl PinInit<Self, Error> {
        pin_init::pin_init_scope(|| {
            let mut ids = IdPool::with_capacity(MAX_SPACES, GFP_KERNEL)?;
            // Space 0 is the kernel's.
            ids.find_unused_id(0).ok_or(ENOSPC)?.acquire();
            let spaces = Spaces {
                by_mm: RBTree::new(),
                ids,
            };
            Ok(try_pin_init!(Self {
                spaces <- new_mutex!(spaces, "uldma::Lmm::spaces"),
            }))
        })
    }

    /// The space of `mm`, which the caller uses until [`Lmm::leave`].
    pub(crate) fn join(&self, mm: &MmWithUser) -> Result<Arc<Space>> {
        let mut spaces = self.spaces.lock();
        if let Some(users) = spaces.by_mm.get_mut(&key(mm)) {
            users.count += 1;
            return Ok(users.space.clone());
        }
        let id = spaces.ids.find_unused_id(1).ok_or(ENOSPC)?.as_u32();
        let space = Arc::pin_init(Space::new(id, mm), GFP_KERNEL)?;
        let users = Users {
            space: space.clone(),
            count: 1,
        };
        let node = RBTreeNode::new(key(mm), users, GFP_KERNEL)?;
        if let Some(unused) = spaces.ids.find_unused_id(usize::try_from(id)?) {
            unused.acquire();
        }
        spaces.by_mm.insert(node);
        Ok(space)
    }

    /// Ends the use of a space; it goes with the last user.
    pub(crate) fn leave(&self, space: &Space) {
        let mut spaces = self.spaces.lock();
        let Some(users) = spaces.by_mm.get_mut(&space.key()) else {
            return;
        };
        users.count -= 1;
        if users.count == 0 {
            spaces.by_mm.remove(&space.key());
            if let Ok(id) = usize::try_from(space.id()) {
                spaces.ids.release_id(id);
            }
        }
    }
}
