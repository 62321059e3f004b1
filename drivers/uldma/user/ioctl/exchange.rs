// SPDX-License-Identifier: GPL-2.0

//! The ioctls on exchangeable memory.

use kernel::prelude::*;

use crate::{
    hw::Hw,
    mem::lmm::range::pages_to_bytes,
    uapi::*,
    user::{
        open_file::OpenFile,
        region::Region, //
    }, //
};

use super::{
    no_flags,
    zero,
    User, //
};

pub(super) fn create(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_exchange_create = user.read()?;
    no_flags(arg.flags)?;
    let (shared, exchange) = (&open_file.shared, &open_file.exchange);
    open_file.make_region(user, &mut arg, |owner, arg| {
        let (region, memory) = Region::create_exchangeable(shared, owner, exchange, arg.length)?;
        arg.out_handle = owner.handle;
        arg.out_index = region.index();
        arg.out_offset = memory.offset();
        arg.out_shadow_offset = region.range().offset();
        arg.out_shadow_length = region.range().length();
        Ok(region)
    })
}

pub(super) fn protect(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_exchange_range = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    let shared = &open_file.shared;
    shared.gate.check()?;
    let objects = open_file.objects.lock();
    let part = objects.region(arg.handle)?;
    let part = part.exchangeable_part(arg.offset, arg.length)?;
    let mapping = shared.mmap_offsets.mapping();
    open_file.exchange.protect(mapping, &part)
}

pub(super) fn release(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_exchange_range = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    // What has ended cannot be undone, so check first that the result can be copied.
    user.write(&arg)?;
    let shared = &open_file.shared;
    let ended = {
        // Held to the end, so that calls on exchangeable memory do not meet.
        let objects = open_file.objects.lock();
        let part = objects.region(arg.handle)?;
        let part = part.exchangeable_part(arg.offset, arg.length)?;
        let guard = shared.gate.try_enter()?;
        let hw = Hw::new(guard.dev(), &*shared.hw);
        let with = (hw, &shared.tpt, shared.mmap_offsets.mapping());
        open_file.exchange.release(with, &part)?
    };
    arg.out_pages = u32::try_from(ended.pages)?;
    arg.out_copied = u32::try_from(ended.copied)?;
    user.write(&arg)
}

pub(super) fn swap(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_exchange_swap = user.read()?;
    no_flags(arg.flags)?;
    open_file.check_space()?;
    let pages = [arg.offset, arg.other_offset, arg.length];
    if pages.iter().any(|bytes| bytes % pages_to_bytes(1) != 0) {
        return Err(EINVAL);
    }
    let shared = &open_file.shared;
    // Held to the end, so that calls on exchangeable memory do not meet.
    let objects = open_file.objects.lock();
    let (one, other) = (objects.region(arg.handle)?, objects.region(arg.other)?);
    let one = one.exchangeable_part(arg.offset, arg.length)?;
    let other = other.exchangeable_part(arg.other_offset, arg.length)?;
    let guard = shared.gate.try_enter()?;
    let hw = Hw::new(guard.dev(), &*shared.hw);
    let with = (hw, &shared.tpt, shared.mmap_offsets.mapping());
    open_file.exchange.swap(with, &one, &other)
}
