// SPDX-License-Identifier: GPL-2.0

//! The ioctls on regions and their pinned memory.

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        ArcBorrow, //
    },
    uaccess::{
        UserPtr,
        UserSlice, //
    }, //
};
use zerocopy::IntoBytes;

use crate::{
    kernel_ext::{
        capability::{
            capable,
            Capability, //
        },
        errno::{
            eopnotsupp,
            eproto, //
        },
        gup::untagged, //
    },
    link::message::{
        Answer,
        Query, //
    },
    mem::lmm::range::{
        pages_to_bytes,
        PageRange, //
    },
    params,
    uapi::{
        self,
        *, //
    },
    user::{
        open_file::{
            Kind,
            Object,
            OpenFile, //
        },
        region::{
            Owner,
            Region, //
        }, //
    },
    user_abi::{
        access::Access,
        miss_policy::MissPolicy, //
    }, //
};

use super::{
    no_flags,
    zero,
    Argument,
    User, //
};

impl OpenFile {
    /// Makes a region as [`OpenFile::make`] does, within the limit of the open file.
    pub(super) fn make_region<T: Argument>(
        self: ArcBorrow<'_, Self>,
        user: &User,
        arg: &mut T,
        make: impl FnOnce(&Owner<'_>, &mut T) -> Result<Region>,
    ) -> Result {
        self.make(Kind::Region, user, arg, |handle, arg| {
            let owner = Owner {
                open_file: self.number,
                space: &self.space,
                events: &self.events,
                handle,
            };
            Ok(Object::Region(make(&owner, arg)?))
        })
    }
}

pub(super) fn register(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_region_register = user.read()?;
    let access = Access::from_flags(arg.flags & !MissPolicy::FLAGS)?;
    let on_miss = MissPolicy::from_abi(arg.flags, arg.limit_us)?;
    zero(arg.reserved)?;
    open_file.make_region(user, &mut arg, |owner, arg| {
        let (shared, addr, length) = (&open_file.shared, arg.addr, arg.length);
        let region = match on_miss {
            None => Region::register(shared, owner, addr, length, access),
            Some(on_miss) => {
                Region::register_optimistic(shared, owner, addr, length, (access, on_miss))
            }
        }?;
        arg.out_handle = owner.handle;
        arg.out_index = region.index();
        arg.out_shadow_offset = region.range().offset();
        arg.out_shadow_length = region.range().length();
        Ok(region)
    })
}

pub(super) fn window(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_region_window = user.read()?;
    let access = Access::from_flags(arg.flags)?;
    zero(arg.reserved)?;
    let peer = open_file.shared.link.named(arg.peer)?.node();
    open_file.make_region(user, &mut arg, |owner, arg| {
        let shared = &open_file.shared;
        let region = Region::create_in_window(shared, owner, (peer, arg.length), access)?;
        arg.out_handle = owner.handle;
        arg.out_index = region.index();
        arg.out_offset = region.range().offset();
        arg.out_length = region.length();
        Ok(region)
    })
}

pub(super) fn unregister(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    open_file.check_space()?;
    let object = open_file.objects.lock().take_region(arg.handle)?;
    open_file.end(object)
}

pub(super) fn cleanup(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    zero(arg.handle)?;
    open_file.check_space()?;
    open_file.end_regions()
}

pub(super) fn query(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_region_query = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.shared.gate.check()?;
    let region = open_file.objects.lock().region(arg.handle)?.describe();
    // Without `objects`, as this may wait for the device.
    let lock = region.lock.map(|lock| open_file.space.describe(lock));
    let (areas, stale) = lock.unwrap_or((0, 0));
    let flags = [
        (region.exported, uapi::ULDMA_REGION_EXPORTED),
        (stale > 0, uapi::ULDMA_REGION_STALE),
    ];
    let set = flags.iter().filter(|(is_set, _)| *is_set);
    let fixed = region.access.to_flags() | region.flags;
    arg.out_flags = set.fold(fixed, |flags, (_, flag)| flags | flag);
    arg.out_addr = region.addr;
    arg.out_length = region.length;
    arg.out_pages = u64::try_from(region.pages)?;
    arg.out_stale = pages_to_bytes(stale);
    arg.out_areas = u32::try_from(areas)?;
    user.write(&arg)
}

pub(super) fn charge(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_region_charge = user.read()?;
    Access::from_flags(arg.flags & !MissPolicy::FLAGS)?;
    open_file.check_space()?;
    open_file.shared.gate.check()?;
    let cost = open_file
        .space
        .cost(PageRange::of_bytes(untagged(arg.addr), arg.length)?)?;
    arg.out_charge = match arg.flags & ULDMA_REGISTER_OPTIMISTIC {
        0 => pages_to_bytes(cost.charge),
        _ => 0,
    };
    arg.out_locked = pages_to_bytes(cost.locked);
    arg.out_pinned = pages_to_bytes(cost.pinned);
    arg.out_limit = cost.limit.unwrap_or(u64::MAX);
    user.write(&arg)
}

/// Number of blocks that are copied at a time. Copying may fault, so it must not hold locks.
const BLOCKS_AT_A_TIME: usize = 64;

pub(super) fn blocks(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_region_blocks = user.read()?;
    if arg.flags & !uapi::ULDMA_BLOCKS_PAGES != 0 {
        return Err(eopnotsupp());
    }
    zero(arg.reserved)?;
    if !capable(Capability::SysAdmin) {
        return Err(EPERM);
    }
    let merge = arg.flags & uapi::ULDMA_BLOCKS_PAGES == 0;
    let capacity = usize::try_from(arg.capacity)?;
    let length = capacity
        .checked_mul(size_of::<uldma_block>())
        .ok_or(EOVERFLOW)?;
    let mut writer = UserSlice::new(UserPtr::from_addr(arg.blocks.try_into()?), length).writer();
    let mut next = usize::try_from(arg.first_page).map_err(|_| EINVAL)?;
    let mut left = capacity;
    loop {
        let limit = left.min(BLOCKS_AT_A_TIME);
        let (blocks, after) = {
            let objects = open_file.objects.lock();
            let region = objects.region(arg.handle)?;
            region.blocks(&open_file.shared, next, limit, merge)?
        };
        next = after;
        left -= blocks.len();
        for (address, length) in &blocks {
            let block = uldma_block {
                address: *address,
                length: *length,
            };
            writer.write_slice(block.as_bytes())?;
        }
        if blocks.len() < BLOCKS_AT_A_TIME {
            break;
        }
    }
    arg.out_count = u32::try_from(capacity - left)?;
    arg.out_next_page = u64::try_from(next)?;
    user.write(&arg)
}

pub(super) fn lmm(open_file: &OpenFile, user: &User, writable: bool) -> Result {
    let mut arg: uldma_lmm = user.read()?;
    zero(arg.reserved)?;
    let keep = match arg.flags {
        0 => None,
        uapi::ULDMA_LMM_CACHE_ON => Some(true),
        uapi::ULDMA_LMM_CACHE_OFF => Some(false),
        flags if flags & !(uapi::ULDMA_LMM_CACHE_ON | uapi::ULDMA_LMM_CACHE_OFF) != 0 => {
            return Err(eopnotsupp());
        }
        _ => return Err(EINVAL),
    };
    if keep.is_some() {
        if !writable {
            return Err(EBADF);
        }
        open_file.check_space()?;
    }
    open_file.shared.gate.check()?;
    if keep == Some(true) {
        open_file.shared.lmm.make_shrinkable(&open_file.space)?;
    }
    let summary = open_file.space.summary();
    let limits = open_file.shared.lmm.options().cache;
    arg.out_areas = u32::try_from(summary.areas)?;
    arg.out_max_regions = u32::try_from(params::max_file_regions()).unwrap_or(u32::MAX);
    arg.out_locked = pages_to_bytes(summary.locked);
    arg.out_cached = pages_to_bytes(summary.cached);
    arg.out_cached_regions = u32::try_from(summary.cached_regions)?;
    arg.out_cache_max_regions = u64::try_from(limits.locks)?;
    arg.out_cache_max_bytes = u64::try_from(limits.bytes)?;
    arg.out_cache_hits = summary.counters.hits;
    arg.out_cache_misses = summary.counters.misses;
    arg.out_pins = summary.counters.pins;
    arg.out_revalidations = summary.counters.revalidations;
    user.write(&arg)?;
    if let Some(keep) = keep {
        open_file.keep_pins.store(keep, Relaxed);
    }
    Ok(())
}

pub(super) fn export(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_region_export = user.read()?;
    let access = Access::from_flags(arg.flags)?;
    open_file.check_space()?;
    let peer = open_file.shared.link.only(arg.peer)?;
    let mut objects = open_file.objects.lock();
    objects
        .region_mut(arg.handle)?
        .export(&open_file.shared, arg.name, peer, access)
}

pub(super) fn unexport(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    open_file.check_space()?;
    let mut objects = open_file.objects.lock();
    objects.region_mut(arg.handle)?.unexport(&open_file.shared)
}

pub(super) fn import(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_region_import = user.read()?;
    let access = Access::from_flags(arg.flags)?;
    open_file.check_space()?;
    if arg.name == 0 {
        return Err(EINVAL);
    }
    zero(arg.reserved)?;
    let peer = open_file.shared.link.named(arg.peer)?;
    let query = Query::Region(arg.name);
    let answer = user.wait(&arg, |deadline| {
        let shared = &open_file.shared;
        shared.ask(open_file.asker(), peer, query, deadline)
    })?;
    let Answer::Region(remote) = answer else {
        return Err(eproto());
    };
    if !remote.access.covers(access) {
        return Err(EACCES);
    }
    open_file.make_region(user, &mut arg, |owner, arg| {
        let region = Region::import(&open_file.shared, owner, peer, &remote, access)?;
        arg.out_handle = owner.handle;
        arg.out_index = region.index();
        arg.out_length = region.length();
        arg.out_shadow_offset = region.range().offset();
        arg.out_shadow_length = region.range().length();
        Ok(region)
    })
}
