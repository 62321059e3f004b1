// SPDX-License-Identifier: GPL-2.0

//! The ioctls on exchangeable memory.

use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};

use crate::{
    mem::{
        exchange::{
            Part,
            Turn, //
        },
        lmm::range::pages_to_bytes, //
    },
    uapi::*,
    user::{
        open_file::{
            Objects,
            OpenFile, //
        },
        region::Region, //
    }, //
};

use super::{
    no_flags,
    zero,
    User, //
};

/// Returns the turn at the parts that `find` finds. Waits for other calls without the lock of the
/// objects, so that only calls on the same memories wait for those.
///
/// # Errors
///
/// `ENODEV` if the device is unbound; `ENOENT` if a memory ends; `ETIMEDOUT`; `EINTR` on a fatal
/// signal; the errors of `find`.
fn take_turn<const N: usize>(
    open_file: &OpenFile,
    find: impl Fn(&Objects) -> Result<[Part; N]>,
) -> Result<Turn<'_, N>> {
    let exchange = &open_file.exchange;
    exchange.turn(|| {
        open_file.shared.gate.check()?;
        let objects = open_file.objects.lock();
        // While the objects are locked, a memory that is found keeps its number.
        exchange.try_turn(find(&objects)?)
    })
}

pub(super) fn create(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
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
    take_turn(open_file, |objects| {
        let region = objects.region(arg.handle)?;
        Ok([region.exchangeable_part(arg.offset, arg.length)?])
    })?
    .protect(open_file.shared.mmap_offsets.mapping())
}

pub(super) fn release(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_exchange_range = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    // What has ended cannot be undone, so check first that the result can be copied.
    user.write(&arg)?;
    let find = |objects: &Objects| {
        let region = objects.region(arg.handle)?;
        Ok([region.exchangeable_part(arg.offset, arg.length)?])
    };
    let shared = &open_file.shared;
    // Each time there are more copies, of no more pages than there are.
    let ended = loop {
        shared.gate.check()?;
        // Before the turn, and outside of the gate, since the caller may wait for its memory.
        let [part] = find(&open_file.objects.lock())?;
        let copies = open_file.exchange.room_for_copies(&part)?;
        let turn = take_turn(open_file, find)?;
        let guard = shared.gate.try_enter()?;
        let hw = guard.hw();
        match turn.release(copies, (hw, &shared.tpt, shared.mmap_offsets.mapping())) {
            Err(EAGAIN) => (),
            ended => break ended?,
        }
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
    let turn = take_turn(open_file, |objects| {
        let (one, other) = (objects.region(arg.handle)?, objects.region(arg.other)?);
        Ok([
            one.exchangeable_part(arg.offset, arg.length)?,
            other.exchangeable_part(arg.other_offset, arg.length)?,
        ])
    })?;
    let shared = &open_file.shared;
    let guard = shared.gate.try_enter()?;
    let hw = guard.hw();
    turn.swap((hw, &shared.tpt, shared.mmap_offsets.mapping()))
}
