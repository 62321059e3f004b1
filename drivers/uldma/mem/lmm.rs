// SPDX-License-Identifier: GPL-2.0

//! The locked memory manager: which pages of which address space are pinned, and how often.
//!
//! One [`Space`] per address space that has the device open, whatever the number of open files, so
//! that each page is entered in the page table once. The spaces that several devices have of one
//! address space share their pins, so that each page is pinned and charged once.

use kernel::{
    mm::MmWithUser,
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
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

use crate::{
    kernel_ext::{
        global::{
            Global,
            Keeper, //
        },
        shrinker::Shrinker, //
    },
    user_abi::ledger::Payer, //
};

mod address_spaces;
mod area;
mod cache;
mod deferred_work;
pub(crate) mod device_access;
mod evict;
mod map;
#[cfg(CONFIG_KUNIT = "y")]
mod map_tests;
pub(crate) mod members;
mod pages;
mod pin;
mod pin_plan;
pub(crate) mod pinned_range;
pub(crate) mod range;
mod reclaim;
mod retire;
mod revalidate;
pub(crate) mod space;
mod space_id;
pub(crate) mod subscription;
mod unpin;
mod worker;

use address_spaces::AddressSpaces;
pub(crate) use cache::Limits;
use reclaim::Reclaimable;
pub(crate) use space::Options;
use space::{
    DeviceOps,
    Space, //
};
pub(crate) use space_id::MAX_SPACES;
use space_id::{
    SpaceId,
    SpaceIds, //
};

/// The spaces of all devices.
static ADDRESS_SPACES: Global<AddressSpaces<Space>> = Global::new();

type PinShrinker = Shrinker<Reclaimable>;

/// The shrinker of all pin caches.
static SHRINKER: Global<PinShrinker> = Global::new();

/// The state that the managers of all devices share, which exists as long as the module.
pub(crate) struct ModuleState {
    _shrinker: Keeper<PinShrinker>,
    _address_spaces: Keeper<AddressSpaces<Space>>,
}

impl ModuleState {
    /// Creates the state. It has to be dropped after all devices and open files.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EBUSY` if it exists.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            _shrinker: SHRINKER.keep(Shrinker::new(c"uldma-pins")?)?,
            _address_spaces: ADDRESS_SPACES.keep(AddressSpaces::new()?)?,
        })
    }
}

/// The spaces of one device.
#[pin_data]
pub(crate) struct Lmm {
    options: Options,
    /// Number of pages in all pin caches.
    cached: Arc<Atomic<usize>>,
    ids: Arc<SpaceIds>,
    shrinker: Arc<PinShrinker>,
    /// The spaces of all devices.
    all: Arc<AddressSpaces<Space>>,
    /// By the address of the `mm_struct`, which a space keeps allocated.
    #[pin]
    spaces: Mutex<RBTree<usize, Users>>,
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
            Ok(try_pin_init!(Self {
                options,
                cached: Arc::new(Atomic::new(0), GFP_KERNEL)?,
                ids: SpaceIds::new()?,
                shrinker: SHRINKER.get().ok_or(ENODEV)?,
                all: ADDRESS_SPACES.get().ok_or(ENODEV)?,
                spaces <- new_mutex!(RBTree::new(), "uldma::Lmm::spaces"),
            }))
        })
    }

    /// Returns what the administrator chose.
    pub(crate) fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the space of `mm`, which the caller uses until [`Lmm::leave`]. If it is new, `payer`
    /// returns the payer of its memory.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the device has no number for another space, `ENOMEM`; the errors of `payer`.
    pub(crate) fn join(
        &self,
        mm: &MmWithUser,
        device: Arc<dyn DeviceOps>,
        payer: impl FnOnce() -> Result<Arc<Payer>>,
    ) -> Result<Arc<Space>> {
        let mut spaces = self.spaces.lock();
        if let Some(users) = spaces.get_mut(&key(mm)) {
            users.count += 1;
            return Ok(users.space.clone());
        }
        let id = SpaceId::take(&self.ids)?;
        let (cached, payer) = (self.cached.clone(), payer()?);
        let room = RBTreeNodeReservation::new(GFP_KERNEL)?;
        let space = self.all.join(key(mm), |sharing| {
            let all = (self.all.clone(), sharing);
            let space = Space::new(id, mm, device, payer, self.options, cached, all);
            Arc::pin_init(space, GFP_KERNEL)
        })?;
        let users = Users {
            space: space.clone(),
            count: 1,
        };
        spaces.insert(room.into_node(key(mm), users));
        space.start_work();
        Ok(space)
    }

    /// Ends a use of a space. The last one ends the space, and does not wait for its address space:
    /// the caller may be of another one.
    pub(crate) fn leave(&self, space: &Arc<Space>) {
        let mut spaces = self.spaces.lock();
        let Some(users) = spaces.get_mut(&space.key()) else {
            return;
        };
        users.count -= 1;
        if users.count > 0 {
            return;
        }
        let gone = spaces.remove(&space.key());
        drop(spaces);
        drop(gone);
        space.stop_work();
        space.evict_all(&space.device.access());
        self.all.leave(space.key(), space);
    }

    /// Returns the number of spaces that the device may access, including those that are retained
    /// until unbind.
    pub(crate) fn spaces(&self) -> usize {
        self.ids.taken()
    }

    /// Pages that all caches keep.
    pub(crate) fn cached(&self) -> usize {
        self.cached.load(Relaxed)
    }

    /// Lets reclaim of memory release pages that the cache of `space` has, for the control group of the
    /// current process. A charge to that may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn make_shrinkable(&self, space: &Space) -> Result {
        space.make_shrinkable(&self.shrinker)
    }
}
