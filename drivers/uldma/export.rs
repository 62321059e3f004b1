// SPDX-License-Identifier: GPL-2.0

//! Regions that the peer may import, by name.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::Mutex, //
};

use crate::{
    access::Access,
    link::message::ExportedRegion,
    tpt::RegionSlot, //
};

/// The exports of one device.
#[pin_data]
pub(crate) struct Exports {
    #[pin]
    by_name: Mutex<RBTree<u64, ExportedRegion>>,
}

impl Exports {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_name <- new_mutex!(RBTree::new(), "uldma::Exports::by_name"),
        })
    }

    /// Offers a region under `name`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for name 0, `EEXIST` when the name is taken.
    pub(crate) fn add(&self, name: u64, slot: RegionSlot, length: u64, access: Access) -> Result {
        if name == 0 {
            return Err(EINVAL);
        }
        let region = ExportedRegion {
            index: slot.index,
            generation: slot.generation,
            length,
            access,
        };
        let node = RBTreeNode::new(name, region, GFP_KERNEL_ACCOUNT)?;
        let mut by_name = self.by_name.lock();
        if by_name.get(&name).is_some() {
            return Err(EEXIST);
        }
        by_name.insert(node);
        Ok(())
    }

    /// Withdraws the export under `name`.
    pub(crate) fn remove(&self, name: u64) {
        self.by_name.lock().remove(&name);
    }

    /// What the peer gets to know about `name`.
    pub(crate) fn find(&self, name: u64) -> Option<ExportedRegion> {
        self.by_name.lock().get(&name).copied()
    }
}
