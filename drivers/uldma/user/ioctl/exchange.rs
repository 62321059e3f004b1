// SPDX-License-Identifier: GPL-2.0

//! The ioctls on exchangeable memory.

use kernel::prelude::*;

use crate::{
    uapi::*,
    user::{
        open_file::OpenFile,
        region::Region, //
    }, //
};

use super::{
    no_flags,
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
