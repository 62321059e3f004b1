// SPDX-License-Identifier: GPL-2.0

//! The ioctls on register contexts.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

use crate::{
    dma::{
        context::NewContext,
        method::Method, //
    },
    kernel_ext::errno::eopnotsupp,
    uapi::{
        self,
        *, //
    },
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

pub(super) fn create(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_context_create = user.read()?;
    if arg.flags & !uapi::ULDMA_CONTEXT_NO_DATA != 0 {
        return Err(eopnotsupp());
    }
    zero(arg.reserved)?;
    let method = Method::from_number(arg.method, open_file.shared.hw.geometry().methods)?;
    let watched = open_file.watch()?;
    let no_data = arg.flags & uapi::ULDMA_CONTEXT_NO_DATA != 0;
    let (space, events) = (&open_file.space, open_file.events.clone());
    let new = NewContext::allocate(open_file.number, space, method, no_data, events)?;
    let vctx = new.vctx.clone();
    let mut objects = open_file.objects.lock();
    let (number, key) = open_file.take_context(&watched, &mut objects, new)?;
    let context = objects.context.as_ref().ok_or(ENXIO)?;
    arg.out_context = number;
    arg.out_page_offset = context.registers.offset();
    arg.out_status_offset = context.status.offset();
    arg.out_page_length = u32::try_from(context.registers.length())?;
    arg.out_key = key;
    arg.out_queue_offset = context.queue.map_or(0, |queue| queue.offset());
    drop(objects);
    user.write(&arg).inspect_err(|_| {
        // The user does not know it; another thread may have ended it meanwhile.
        let mut objects = open_file.objects.lock();
        let context = objects.context.as_ref();
        if context.is_some_and(|context| Arc::ptr_eq(&context.vctx, &vctx)) {
            let _ = open_file.drop_context(&mut objects);
        }
    })
}

pub(super) fn destroy(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    zero(arg.handle)?;
    open_file.check_space()?;
    open_file.drop_context(&mut open_file.objects.lock())
}

pub(super) fn stats(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_context_stats = user.read()?;
    no_flags(arg.flags)?;
    let objects = open_file.objects.lock();
    let context = objects.context.as_ref().ok_or(ENXIO)?;
    let shared = &open_file.shared;
    let guard = shared.gate.try_enter()?;
    let contexts = &shared.contexts;
    let counters = contexts.counters(guard.hw(), &context.vctx)?;
    arg.out_shadow_stores = counters.shadow_stores;
    arg.out_shadow_loads = counters.shadow_loads;
    arg.out_page_stores = counters.page_stores;
    arg.out_page_loads = counters.page_loads;
    arg.out_initiations = counters.initiations;
    arg.out_refused = counters.refused;
    arg.out_completed = open_file.events.context_completed().unwrap_or(0);
    arg.out_bytes = counters.bytes;
    arg.out_bad_keys = counters.bad_keys.into();
    drop(guard);
    drop(objects);
    user.write(&arg)
}

pub(super) fn map_out(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_map_out = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    let objects = open_file.objects.lock();
    let source = objects.region(arg.src)?;
    let destination = match arg.dst {
        0 => None,
        handle => Some((objects.region(handle)?, arg.dst_page)),
    };
    Region::map_out(
        &open_file.shared,
        (source, arg.src_page),
        destination,
        arg.pages,
    )
}
