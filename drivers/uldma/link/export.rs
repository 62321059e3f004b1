// SPDX-License-Identifier: GPL-2.0

//! Exports: regions that peers may import, by name.

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
    link::message::ExportedRegion,
    mem::tpt::RegionSlot,
    user_abi::access::Access, //
};

/// An exported region.
struct Export {
    region: ExportedRegion,
    /// The only node that may import it; all nodes if none.
    peer: Option<u32>,
}

/// The exports of one device.
#[pin_data]
pub(crate) struct Exports {
    #[pin]
    by_name: Mutex<RBTree<u64, Export>>,
}

impl Exports {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            by_name <- new_mutex!(RBTree::new(), "uldma::Exports::by_name"),
        })
    }

    /// Exports a region under `name` to `peer`, or to all.
    ///
    /// # Errors
    ///
    /// `EINVAL` for name 0, `EEXIST` if the name is in use, `ENOMEM`.
    pub(crate) fn add(
        &self,
        name: u64,
        peer: Option<u32>,
        slot: RegionSlot,
        length: u64,
        access: Access,
    ) -> Result {
        if name == 0 {
            return Err(EINVAL);
        }
        let region = ExportedRegion {
            index: slot.index,
            generation: slot.generation,
            length,
            access,
        };
        let node = RBTreeNode::new(name, Export { region, peer }, GFP_KERNEL_ACCOUNT)?;
        let mut by_name = self.by_name.lock();
        if by_name.get(&name).is_some() {
            return Err(EEXIST);
        }
        by_name.insert(node);
        Ok(())
    }

    /// Removes the export under `name`.
    pub(crate) fn remove(&self, name: u64) {
        self.by_name.lock().remove(&name);
    }

    /// Returns the region that `peer` may import under `name`.
    pub(crate) fn find(&self, peer: u32, name: u64) -> Option<ExportedRegion> {
        let by_name = self.by_name.lock();
        let export = by_name.get(&name)?;
        let may = export.peer.is_none_or(|only| only == peer);
        may.then_some(export.region)
    }
}

#[kunit_tests(uldma_export)]
mod tests {
    use super::*;
    use kernel::sync::Arc;

    #[test]
    fn exports_are_for_whom_they_are_for() -> Result {
        let exports = Arc::pin_init(Exports::new(), GFP_KERNEL)?;
        let slot = RegionSlot {
            index: 3,
            generation: 5,
        };
        let access = Access {
            read: true,
            write: false,
        };
        assert_eq!(exports.add(0, None, slot, 1, access), Err(EINVAL));
        exports.add(7, Some(2), slot, 1, access)?;
        exports.add(8, None, slot, 1, access)?;
        assert_eq!(exports.add(7, None, slot, 1, access), Err(EEXIST));
        assert!(exports.find(2, 7).is_some() && exports.find(1, 7).is_none());
        assert!(exports.find(2, 8).is_some() && exports.find(1, 8).is_some());
        exports.remove(7);
        assert!(exports.find(2, 7).is_none());
        Ok(())
    }
}
