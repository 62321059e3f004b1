// SPDX-License-Identifier: GPL-2.0

//! The ioctls on endpoints.

use kernel::{
    prelude::*,
    sync::ArcBorrow, //
};

use crate::{
    dma::endpoint::PeerEndpoint,
    hw::layout::SizeWord,
    uapi::*,
    user::{
        endpoint::FileEndpoint,
        open_file::{
            Kind,
            Object,
            OpenFile, //
        }, //
    }, //
};

use super::{
    no_flags,
    zero,
    User, //
};

pub(super) fn create(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_endpoint_create = user.read()?;
    no_flags(arg.flags & !ULDMA_ENDPOINT_STREAM)?;
    let is_stream = arg.flags & ULDMA_ENDPOINT_STREAM != 0;
    zero(arg.reserved)?;
    if arg.max_message == 0 || arg.max_message > SizeWord::BYTES.max() {
        return Err(EINVAL);
    }
    open_file.check_space()?;
    open_file.make(Kind::Other, user, &mut arg, |handle, arg| {
        let endpoint = FileEndpoint::create(
            &open_file.shared,
            open_file.number,
            &open_file.space,
            &open_file.events,
            (arg.timeout_ms, arg.max_message, is_stream),
        )?;
        (arg.out_index, arg.out_generation) = endpoint.name();
        (arg.out_ring_offset, arg.out_status_offset) = endpoint.offsets();
        arg.out_handle = handle;
        Ok(Object::Endpoint(endpoint))
    })
}

pub(super) fn connect(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_endpoint_connect = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    let peer = PeerEndpoint {
        node: arg.node,
        index: arg.peer_index,
        generation: arg.peer_generation,
    };
    let mut objects = open_file.objects.lock();
    objects
        .endpoint_mut(arg.handle)?
        .connect(&open_file.shared, peer)
}

pub(super) fn destroy(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_handle = user.read()?;
    open_file.check_space()?;
    let object = {
        let mut objects = open_file.objects.lock();
        objects.endpoint_mut(arg.handle)?;
        objects.handles.remove(arg.handle)?
    };
    open_file.end(object)
}

pub(super) fn wait(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_endpoint_wait = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    let receiver = {
        let mut objects = open_file.objects.lock();
        objects.endpoint_mut(arg.handle)?.receiver()
    };
    let (shared, events) = (&open_file.shared, &open_file.events);
    arg.out_completed = user.wait(&arg, |deadline| {
        receiver.wait(shared, events, arg.count, deadline.left())
    })?;
    user.write(&arg)
}
