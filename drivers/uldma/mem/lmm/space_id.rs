// SPDX-License-Identifier: GPL-2.0

//! The numbers by which the device knows spaces.
//!
//! A space has its number for as long as it has entries in the tables of the device: regions of
//! open files, buffers of connections that outlive the open file, and memory that the device may
//! still access. Only then is the number used for another space.

use kernel::{
    id_pool::IdPool,
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

/// Numbers of a device, with that of the kernel.
const NUMBERS: usize = 1 << 16;
/// Spaces that a device can have at a time.
pub(crate) const MAX_SPACES: usize = NUMBERS - 1;

/// The numbers of one device.
#[pin_data]
pub(super) struct SpaceIds {
    #[pin]
    pool: Mutex<IdPool>,
    /// The number of numbers in use.
    taken: Atomic<usize>,
}

impl SpaceIds {
    /// Creates a set in which all numbers are free except 0, which is the kernel's.
    pub(super) fn new() -> Result<Arc<Self>> {
        let mut pool = IdPool::with_capacity(NUMBERS, GFP_KERNEL)?;
        pool.find_unused_id(0).ok_or(ENOSPC)?.acquire();
        let ids = pin_init!(Self {
            pool <- new_mutex!(pool, "uldma::SpaceIds::pool"),
            taken: Atomic::new(0),
        });
        Arc::pin_init(ids, GFP_KERNEL)
    }

    /// Returns how many are in use.
    pub(super) fn taken(&self) -> usize {
        self.taken.load(Relaxed)
    }
}

/// The number of a space; dropping it frees the number.
pub(super) struct SpaceId {
    ids: Arc<SpaceIds>,
    id: usize,
}

impl SpaceId {
    /// Takes a number.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when there is none.
    pub(super) fn take(ids: &Arc<SpaceIds>) -> Result<Self> {
        let id = {
            let mut pool = ids.pool.lock();
            let unused = pool.find_unused_id(1).ok_or(ENOSPC)?;
            let id = usize::try_from(unused.as_u32())?;
            unused.acquire();
            id
        };
        ids.taken.fetch_add(1, Relaxed);
        let ids = ids.clone();
        Ok(Self { ids, id })
    }

    /// The number.
    pub(super) fn number(&self) -> u32 {
        // There are `NUMBERS` numbers.
        u32::try_from(self.id).unwrap_or(u32::MAX)
    }
}

impl Drop for SpaceId {
    fn drop(&mut self) {
        self.ids.pool.lock().release_id(self.id);
        self.ids.taken.fetch_sub(1, Relaxed);
    }
}

#[kunit_tests(uldma_space_id)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_free_when_its_space_is_gone() -> Result {
        let ids = SpaceIds::new()?;
        let first = SpaceId::take(&ids)?;
        let second = SpaceId::take(&ids)?;
        assert!(first.number() != 0 && second.number() != 0);
        assert!(first.number() != second.number());
        assert_eq!(ids.taken(), 2);
        let number = first.number();
        drop(first);
        assert_eq!(SpaceId::take(&ids)?.number(), number);
        Ok(())
    }
}
