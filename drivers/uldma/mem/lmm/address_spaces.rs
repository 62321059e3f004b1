// SPDX-License-Identifier: GPL-2.0

//! The address spaces of all devices, so that the spaces of one address space share their pins.
//!
//! Each device has its own spaces, with their own areas, page entries and invalidations. When a
//! second device gets a space of an address space, pins are shared from then on. Those from before
//! are left until a space pins or counts pages: opening a device takes the same time whatever the
//! process has pinned.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SetOnce, //
    }, //
};

use crate::kernel_ext::shared_pins::SharedPins;

/// The pins that the spaces of one address space share.
pub(super) struct Sharing {
    /// Set once there were two spaces: pins are made in it from then on.
    table: SetOnce<Arc<SharedPins>>,
    /// True if there may be pins from before.
    has_earlier_pins: Atomic<bool>,
}

impl Sharing {
    fn new() -> Self {
        Self {
            table: SetOnce::new(),
            has_earlier_pins: Atomic::new(false),
        }
    }

    /// Begins to share pins, if that has not begun.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn begin(&self) -> Result {
        if self.table.as_ref().is_none() {
            let table = SharedPins::new()?;
            // Before the table, which others may find at once.
            self.has_earlier_pins.store(true, Relaxed);
            self.table.populate(table);
        }
        Ok(())
    }

    /// Returns the table of shared pins, once there were two spaces.
    pub(super) fn table(&self) -> Option<&Arc<SharedPins>> {
        self.table.as_ref()
    }

    /// Returns the table of shared pins if there may be pins that are not in it.
    pub(super) fn incomplete_table(&self) -> Option<&Arc<SharedPins>> {
        let table = self.table.as_ref()?;
        self.has_earlier_pins.load(Acquire).then_some(table)
    }

    /// Notes that all pins are in the table.
    pub(super) fn completed(&self) {
        self.has_earlier_pins.store(false, Release);
    }
}

/// The spaces `S` of one address space.
struct Devices<S> {
    /// One for each device; never empty.
    spaces: KVec<Arc<S>>,
    sharing: Arc<Sharing>,
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

    /// Adds the space of the address space `key` that `make` returns.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `make`.
    pub(super) fn join(
        &self,
        key: usize,
        make: impl FnOnce(Arc<Sharing>) -> Result<Arc<S>>,
    ) -> Result<Arc<S>> {
        let mut by_key = self.by_key.lock();
        if let Some(devices) = by_key.get_mut(&key) {
            devices.spaces.reserve(1, GFP_KERNEL)?;
            devices.sharing.begin()?;
            let space = make(devices.sharing.clone())?;
            devices.spaces.push(space.clone(), GFP_KERNEL)?;
            return Ok(space);
        }
        let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let mut spaces = KVec::with_capacity(1, GFP_KERNEL)?;
        let sharing = Arc::new(Sharing::new(), GFP_KERNEL)?;
        let space = make(sharing.clone())?;
        spaces.push(space.clone(), GFP_KERNEL)?;
        by_key.insert(room.into_node(key, Devices { spaces, sharing }));
        Ok(space)
    }

    /// Returns the spaces of the address space `key`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn of(&self, key: usize) -> Result<KVec<Arc<S>>> {
        let mut found = KVec::new();
        loop {
            let by_key = self.by_key.lock();
            let Some(devices) = by_key.get(&key) else {
                return Ok(found);
            };
            let count = devices.spaces.len();
            if count <= found.capacity() {
                for space in &devices.spaces {
                    // There is room.
                    let _ = found.push_within_capacity(space.clone());
                }
                return Ok(found);
            }
            // Without the lock, which open() takes, as the control group can make this sleep.
            drop(by_key);
            found.reserve(count, GFP_KERNEL_ACCOUNT)?;
        }
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

    /// A space, as the number of its device.
    struct Device {
        number: u32,
        sharing: Arc<Sharing>,
    }

    fn join(all: &AddressSpaces<Device>, key: usize, number: u32) -> Result<Arc<Device>> {
        all.join(key, |sharing| {
            Ok(Arc::new(Device { number, sharing }, GFP_KERNEL)?)
        })
    }

    fn table(device: &Device) -> Result<&Arc<SharedPins>> {
        device.sharing.table().ok_or(ENOENT)
    }

    #[test]
    fn spaces_of_one_address_space_share_pins_from_the_second_on() -> Result {
        let all = AddressSpaces::new()?;
        let (a, other) = (join(&all, 1, 0)?, join(&all, 2, 0)?);
        assert!(a.sharing.table().is_none());
        let (b, c) = (join(&all, 1, 1)?, join(&all, 1, 2)?);
        assert!(Arc::ptr_eq(table(&a)?, table(&b)?));
        assert!(Arc::ptr_eq(table(&b)?, table(&c)?));
        assert!(other.sharing.table().is_none());
        let numbers = all.of(1)?;
        assert!(numbers.iter().map(|it| it.number).eq(0..3));
        assert!(all.of(3)?.is_empty());
        Ok(())
    }

    #[test]
    fn pins_are_shared_until_the_last_space_leaves() -> Result {
        let all = AddressSpaces::new()?;
        let (a, b) = (join(&all, 1, 0)?, join(&all, 1, 1)?);
        all.leave(1, &a);
        let again = join(&all, 1, 0)?;
        assert!(Arc::ptr_eq(table(&b)?, table(&again)?));
        all.leave(1, &b);
        all.leave(1, &again);
        assert!(all.of(1)?.is_empty());
        assert!(join(&all, 1, 0)?.sharing.table().is_none());
        Ok(())
    }

    /// The first space only can have pins that are not in the table.
    #[test]
    fn a_table_is_completed_once() -> Result {
        let all = AddressSpaces::new()?;
        let a = join(&all, 1, 0)?;
        assert!(a.sharing.incomplete_table().is_none());
        let b = join(&all, 1, 1)?;
        assert!(a.sharing.incomplete_table().is_some());
        b.sharing.completed();
        join(&all, 1, 2)?;
        all.leave(1, &a);
        let again = join(&all, 1, 0)?;
        assert!(again.sharing.incomplete_table().is_none() && table(&again).is_ok());
        Ok(())
    }

    #[test]
    fn a_space_that_cannot_be_made_does_not_join() -> Result {
        let all = AddressSpaces::<Device>::new()?;
        assert_eq!(all.join(1, |_| Err(ENOMEM)).err(), Some(ENOMEM));
        assert!(all.of(1)?.is_empty());
        let a = join(&all, 1, 0)?;
        assert_eq!(all.join(1, |_| Err(ENOMEM)).err(), Some(ENOMEM));
        assert_eq!(all.of(1)?.len(), 1);
        all.leave(1, &a);
        assert!(all.of(1)?.is_empty());
        Ok(())
    }
}
