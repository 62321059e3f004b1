// SPDX-License-Identifier: GPL-2.0

//! The address spaces of all devices, so that the spaces of one address space share their pins.
//!
//! Each device has its own spaces, with their own areas, page entries and invalidations. When a
//! second device gets a space of an address space, all its spaces begin to share their pins.

use kernel::{
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

use crate::kernel_ext::shared_pins::SharedPins;

/// The spaces `S` of one address space.
struct Devices<S> {
    /// One for each device; never empty.
    spaces: KVec<Arc<S>>,
    /// The pins that they share, once there were two.
    shared_pins: Option<Arc<SharedPins>>,
}

/// The pins that a new space has to share, and the other spaces, which may not share theirs yet.
pub(super) struct Others<S> {
    pub(super) shared_pins: Arc<SharedPins>,
    pub(super) spaces: KVec<Arc<S>>,
}

/// The spaces `S` of all devices.
#[pin_data]
pub(super) struct AddressSpaces<S> {
    /// By the address of the `mm_struct`, which a space keeps allocated.
    #[pin]
    by_key: Mutex<RBTree<usize, Devices<S>>>,
}

impl<S> AddressSpaces<S> {
    /// Creates an object without spaces.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Arc<Self>> {
        let spaces = pin_init!(Self {
            by_key <- new_mutex!(RBTree::new(), "uldma::AddressSpaces::by_key"),
        });
        Arc::pin_init(spaces, GFP_KERNEL)
    }

    /// Adds `space` of the address space `key`. Returns the others, if there are any.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn join(&self, key: usize, space: &Arc<S>) -> Result<Option<Others<S>>> {
        let mut by_key = self.by_key.lock();
        let Some(devices) = by_key.get_mut(&key) else {
            let mut spaces = KVec::new();
            spaces.push(space.clone(), GFP_KERNEL_ACCOUNT)?;
            let devices = Devices {
                spaces,
                shared_pins: None,
            };
            by_key.insert(RBTreeNode::new(key, devices, GFP_KERNEL_ACCOUNT)?);
            return Ok(None);
        };
        let mut others = KVec::with_capacity(devices.spaces.len(), GFP_KERNEL_ACCOUNT)?;
        for other in &devices.spaces {
            others.push(other.clone(), GFP_KERNEL_ACCOUNT)?;
        }
        let shared_pins = match &devices.shared_pins {
            Some(shared_pins) => shared_pins.clone(),
            None => SharedPins::new()?,
        };
        devices.spaces.push(space.clone(), GFP_KERNEL_ACCOUNT)?;
        devices.shared_pins = Some(shared_pins.clone());
        Ok(Some(Others {
            shared_pins,
            spaces: others,
        }))
    }

    /// Removes `space` of the address space `key`.
    pub(super) fn leave(&self, key: usize, space: &Arc<S>) {
        let mut by_key = self.by_key.lock();
        let Some(devices) = by_key.get_mut(&key) else {
            return;
        };
        devices.spaces.retain(|other| !Arc::ptr_eq(other, space));
        if devices.spaces.is_empty() {
            let gone = by_key.remove(&key);
            drop(by_key);
            drop(gone);
        }
    }
}

#[kunit_tests(uldma_address_spaces)]
mod tests {
    use super::*;

    fn space(number: u32) -> Result<Arc<u32>> {
        Ok(Arc::new(number, GFP_KERNEL)?)
    }

    #[test]
    fn spaces_of_one_address_space_share_pins_from_the_second_on() -> Result {
        let all = AddressSpaces::new()?;
        let (a, b, c) = (space(0)?, space(1)?, space(2)?);
        assert!(all.join(1, &a)?.is_none());
        assert!(all.join(2, &c)?.is_none());
        let first = all.join(1, &b)?.ok_or(EINVAL)?;
        assert!(first.spaces.len() == 1 && Arc::ptr_eq(first.spaces.first().ok_or(EINVAL)?, &a));
        let second = all.join(1, &c)?.ok_or(EINVAL)?;
        assert_eq!(second.spaces.len(), 2);
        assert!(Arc::ptr_eq(&first.shared_pins, &second.shared_pins));
        Ok(())
    }

    #[test]
    fn pins_are_shared_until_the_last_space_leaves() -> Result {
        let all = AddressSpaces::new()?;
        let (a, b) = (space(0)?, space(1)?);
        all.join(1, &a)?;
        let before = all.join(1, &b)?.ok_or(EINVAL)?;
        all.leave(1, &a);
        let after = all.join(1, &a)?.ok_or(EINVAL)?;
        assert!(Arc::ptr_eq(&before.shared_pins, &after.shared_pins));
        assert!(after.spaces.len() == 1 && Arc::ptr_eq(after.spaces.first().ok_or(EINVAL)?, &b));
        all.leave(1, &b);
        all.leave(1, &a);
        assert!(all.join(1, &b)?.is_none());
        let last = all.join(1, &a)?.ok_or(EINVAL)?;
        assert!(!Arc::ptr_eq(&before.shared_pins, &last.shared_pins));
        Ok(())
    }
}
