// SPDX-License-Identifier: GPL-2.0

//! The ioctls on message slots.

use kernel::{
    prelude::*,
    sync::ArcBorrow,
    uaccess::UserPtr, //
};

use crate::{
    kernel_ext::errno::eopnotsupp,
    mem::slots::SlotSizes,
    uapi::{
        self,
        *, //
    },
    user::{
        endpoint::FileEndpoint,
        message::{
            Direction,
            EndpointRef,
            MessageSlots,
            Outgoing,
            SendQueue,
            UserMemory, //
        },
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

pub(super) fn slots(open_file: ArcBorrow<'_, OpenFile>, user: &User) -> Result {
    let mut arg: uldma_msg_slots = user.read()?;
    let direction = match arg.flags {
        0 => Direction::Send,
        uapi::ULDMA_MSG_RECEIVE => Direction::Receive,
        _ => return Err(eopnotsupp()),
    };
    let sizes = SlotSizes::new(arg.count, arg.slot_bytes)?;
    open_file.check_space()?;
    // What is posted cannot be taken back, so check first that the result can be copied.
    user.write(&arg)?;
    let shared = &open_file.shared;
    let (endpoint, receiver) = {
        let mut objects = open_file.objects.lock();
        let endpoint = objects.endpoint_mut(arg.endpoint)?;
        let found = EndpointRef {
            handle: arg.endpoint,
            generation: endpoint.name().1,
        };
        (found, endpoint.receiver())
    };
    if direction == Direction::Receive && receiver.status().completed() != 0 {
        return Err(EBUSY);
    }
    open_file.make_region(user, &mut arg, |owner, arg| {
        let region = Region::create_slots(shared, owner, sizes, (endpoint, direction))?;
        let posted = match direction {
            Direction::Send => Ok(()),
            Direction::Receive => {
                let slots = region.slots(direction)?;
                slots.post_all(shared, &receiver, region.index())
            }
        };
        if let Err(err) = posted {
            // Memory that the device may still access is retained.
            let _ = region.release(shared, false);
            return Err(err);
        }
        arg.out_handle = owner.handle;
        arg.out_index = region.index();
        Ok(region)
    })
}

/// Returns the region of slots, and their endpoint.
fn find(
    objects: &mut Objects,
    handle: u32,
    direction: Direction,
) -> Result<(u32, kernel::sync::Arc<MessageSlots>, &mut FileEndpoint)> {
    let region = objects.region(handle)?;
    let (index, slots) = (region.index(), region.slots(direction)?.clone());
    let of = slots.endpoint();
    let endpoint = objects.endpoint_mut(of.handle)?;
    if endpoint.name().1 != of.generation {
        return Err(ENOENT);
    }
    Ok((index, slots, endpoint))
}

fn memory(addr: u64, length: u64) -> Result<UserMemory> {
    let addr = usize::try_from(addr).map_err(|_| EFAULT)?;
    Ok(UserMemory {
        ptr: UserPtr::from_addr(addr),
        length,
    })
}

pub(super) fn send(open_file: &OpenFile, user: &User) -> Result {
    let arg: uldma_msg_send = user.read()?;
    if arg.flags & !uapi::ULDMA_DESC_MORE != 0 {
        return Err(eopnotsupp());
    }
    zero(arg.reserved)?;
    open_file.check_space()?;
    let memory = memory(arg.addr, arg.length)?;
    let (slots, message, queue) = {
        let mut objects = open_file.objects.lock();
        let (region, slots, endpoint) = find(&mut objects, arg.slots, Direction::Send)?;
        let message = Outgoing {
            region,
            endpoint: endpoint.name().0,
            ticket: arg.ticket,
            flags: arg.flags,
        };
        let context = objects.context.as_ref().ok_or(ENXIO)?;
        let queue = SendQueue {
            open_file: open_file.number,
            events: &open_file.events,
            vctx: context.vctx.clone(),
            serial: context.serial,
        };
        (slots, message, queue)
    };
    user.wait(&arg, |deadline| {
        slots.send(&open_file.shared, &queue, (&message, memory), deadline)
    })
}

pub(super) fn receive(open_file: &OpenFile, user: &User) -> Result {
    let mut arg: uldma_msg_recv = user.read()?;
    no_flags(arg.flags)?;
    zero(arg.reserved)?;
    open_file.check_space()?;
    let memory = memory(arg.addr, arg.length)?;
    // A reception cannot be undone, so check first that the result can be copied.
    user.write(&arg)?;
    let (region, slots, receiver) = {
        let mut objects = open_file.objects.lock();
        let (region, slots, endpoint) = find(&mut objects, arg.slots, Direction::Receive)?;
        (region, slots, endpoint.receiver())
    };
    let (shared, events) = (&open_file.shared, &open_file.events);
    let message = user.wait(&arg, |deadline| {
        slots.receive(shared, events, (&receiver, region), memory, deadline)
    })?;
    arg.out_bytes = message.bytes;
    arg.out_number = message.number;
    arg.out_posted = message.posted;
    arg.out_status = message.status;
    arg.out_flags = message.flags;
    user.write(&arg)
}
