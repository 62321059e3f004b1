// SPDX-License-Identifier: GPL-2.0

//! Message slots of endpoints: the kernel variant of `COPY_DMA`.
//!
//! Calls copy messages into slots of the driver and post them to the queue of the open file's
//! context, or copy them out and post the slot to the endpoint's receive ring again. A shared queue
//! of the kernel would be the wrong place: there, a message that waits for its receiver delays those
//! of all users.
//!
//! The program maps both rings, and can write to them. So the driver believes nothing that it finds
//! there or in the status pages: what it decides by them is which of the caller's slots to use next,
//! and how many of a slot's bytes to copy to the caller. The device checks the owner of each
//! descriptor's region.
//!
//! Calls on the same slots take turns. The holder of the [`Turn`] has no lock, since it copies and
//! waits.

use kernel::{
    new_condvar,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    },
    uaccess::UserPtr, //
};

use crate::{
    device::Shared,
    dma::{
        context::VirtualContext,
        descriptor, //
    },
    kernel_ext::{
        dma::SharedPage,
        errno::emsgsize,
        wait::{
            self,
            Deadline,
            EndedBy, //
        },
        window::full_fence, //
    },
    mem::slots::{
        SlotMemory,
        SlotSizes, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    },
    user::endpoint::Receiver,
    user_abi::{
        access::Access,
        events::Events, //
    }, //
};

mod rotation;

use rotation::Rotation;

/// What slots are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

impl Direction {
    /// Returns the rights that the device needs.
    pub(crate) fn access(self) -> Access {
        Access {
            read: self == Self::Send,
            write: self == Self::Receive,
        }
    }
}

/// An endpoint of the open file, which may have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EndpointRef {
    pub(crate) handle: u32,
    pub(crate) generation: u64,
}

/// Memory of the calling process.
#[derive(Clone, Copy)]
pub(crate) struct UserMemory {
    pub(crate) ptr: UserPtr,
    pub(crate) length: u64,
}

/// The parts of an open file that a send uses.
pub(crate) struct SendQueue<'a> {
    pub(crate) open_file: u64,
    pub(crate) events: &'a Events,
    pub(crate) vctx: Arc<VirtualContext>,
    /// The number of the context among those of the open file.
    pub(crate) serial: u64,
}

/// A message to be sent.
pub(crate) struct Outgoing {
    /// Index of the slots' region.
    pub(crate) region: u32,
    /// Index of the endpoint.
    pub(crate) endpoint: u32,
    /// Ticket of the descriptor.
    pub(crate) ticket: u64,
    /// Flags of the descriptor.
    pub(crate) flags: u32,
}

/// A message that was received.
pub(crate) struct Incoming {
    pub(crate) bytes: u64,
    pub(crate) number: u64,
    /// Slots that have been posted so far.
    pub(crate) posted: u64,
    pub(crate) status: u32,
    pub(crate) flags: u32,
}

/// Slots of one direction of an endpoint.
#[pin_data]
pub(crate) struct MessageSlots {
    memory: SlotMemory,
    endpoint: EndpointRef,
    direction: Direction,
    /// None while a call has its turn.
    #[pin]
    rotation: Mutex<Option<Rotation>>,
    /// Notified when a turn ends.
    #[pin]
    turns: CondVar,
}

/// The turn of a call: no other one uses the slots.
struct Turn<'a> {
    slots: &'a MessageSlots,
    rotation: Rotation,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let rotation = core::mem::take(&mut self.rotation);
        *self.slots.rotation.lock() = Some(rotation);
        self.slots.turns.notify_one();
    }
}

impl MessageSlots {
    /// Creates slots in `memory`.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(
        memory: SlotMemory,
        endpoint: EndpointRef,
        direction: Direction,
    ) -> Result<Arc<Self>> {
        let rotation = Rotation::new(memory.sizes().count())?;
        let slots = pin_init!(Self {
            memory,
            endpoint,
            direction,
            rotation <- new_mutex!(Some(rotation), "uldma::MessageSlots::rotation"),
            turns <- new_condvar!("uldma::MessageSlots::turns"),
        });
        Arc::pin_init(slots, GFP_KERNEL_ACCOUNT)
    }

    /// Returns what the slots are for.
    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// Returns the endpoint that the slots belong to.
    pub(crate) fn endpoint(&self) -> EndpointRef {
        self.endpoint
    }

    fn sizes(&self) -> SlotSizes {
        self.memory.sizes()
    }

    fn turn(&self, deadline: Deadline) -> Result<Turn<'_>> {
        let left = deadline.left();
        let rotation = wait::until(&self.turns, &self.rotation, left, Option::take)?;
        Ok(Turn {
            slots: self,
            rotation,
        })
    }

    /// Copies a message to the next slot, and posts it to the queue of a context.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a message that is longer than a slot; `ETIMEDOUT` if the slot, or a context, is
    /// not free in time; `EINTR`; `EINVAL` unless the context has a queue, and for a ticket that has
    /// ended; `EBUSY` if the queue has no place for the ticket; `EFAULT`; `ENXIO` if the context has
    /// ended; `ENODEV` if the device is unbound. Nothing is sent then.
    pub(crate) fn send(
        &self,
        shared: &Shared,
        queue: &SendQueue<'_>,
        (message, memory): (&Outgoing, UserMemory),
        deadline: Deadline,
    ) -> Result {
        let length = usize::try_from(memory.length).map_err(|_| emsgsize())?;
        if length > self.sizes().slot_bytes() {
            return Err(emsgsize());
        }
        let ring = queue.vctx.queue.as_ref().ok_or(EINVAL)?;
        let mut turn = self.turn(deadline)?;
        if let Some(last) = turn.rotation.last_sent(queue.serial) {
            let left = deadline.left();
            queue.events.wait_for_context(last, left, shared)?;
        }
        check_ticket(message.ticket, queue.vctx.page.completed())?;
        let slot = turn.rotation.slot();
        self.memory.fill(slot, memory.ptr, length)?;
        // Before the device can find the message, so that nothing is sent if this fails.
        if queue.vctx.page.is_asleep() {
            queue.attach(shared, deadline, EndedBy::Signals)?;
        }
        let offset = u64::try_from(slot * self.sizes().slot_bytes())?;
        let descriptor = uldma_descriptor {
            ticket: message.ticket,
            op: uapi::ULDMA_OP_SEND,
            flags: message.flags,
            src: message.region,
            src_offset: offset,
            dst: message.endpoint,
            length: memory.length,
            ..zerocopy::FromZeros::new_zeroed()
        };
        descriptor::write(ring, &descriptor)?;
        turn.rotation.sent(queue.serial, message.ticket);
        queue.submit(shared)
    }

    /// Posts all slots to an endpoint that none was posted to.
    ///
    /// # Errors
    ///
    /// `ENODEV` if the device is unbound.
    pub(crate) fn post_all(&self, shared: &Shared, receiver: &Receiver, region: u32) -> Result {
        let count = u64::try_from(self.sizes().count())?;
        for number in 1..=count {
            self.post(receiver.ring(), region, number)?;
        }
        receiver.submit(shared)
    }

    /// Posts the slot of receive descriptor `number`.
    fn post(&self, ring: &SharedPage, region: u32, number: u64) -> Result {
        let bytes = u64::try_from(self.sizes().slot_bytes())?;
        let count = u64::try_from(self.sizes().count())?;
        let before = number.checked_sub(1).ok_or(EINVAL)?;
        let slot = before.checked_rem(count).ok_or(EINVAL)?;
        let descriptor = uldma_descriptor {
            ticket: number,
            op: uapi::ULDMA_OP_RECV,
            dst: region,
            dst_offset: slot * bytes,
            length: bytes,
            ..zerocopy::FromZeros::new_zeroed()
        };
        descriptor::write(ring, &descriptor)
    }

    /// Waits for the next message, copies as much of it as there is room, and posts its slot again.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT`, `EINTR`, `ENOTCONN` if the endpoint is not connected or the link to the peer
    /// went down, `EIO` if the record of the message is lost, `EFAULT`, `ENODEV` if the device is
    /// unbound. The message stays for the next call then.
    pub(crate) fn receive(
        &self,
        shared: &Shared,
        events: &Events,
        (receiver, region): (&Receiver, u32),
        memory: UserMemory,
        deadline: Deadline,
    ) -> Result<Incoming> {
        let mut turn = self.turn(deadline)?;
        let number = turn.rotation.next();
        receiver.wait(shared, events, number, deadline.left())?;
        let outcome = receiver.status().record(number).ok_or(EIO)?;
        let flags = receiver.status().record_flags(number)?;
        let most = u64::try_from(self.sizes().slot_bytes())?;
        let length = usize::try_from(outcome.bytes.min(memory.length).min(most))?;
        self.memory
            .drain(turn.rotation.slot(), memory.ptr, length)?;
        let posted = number + u64::try_from(self.sizes().count())?;
        self.post(receiver.ring(), region, posted)?;
        turn.rotation.received();
        receiver.submit(shared)?;
        Ok(Incoming {
            bytes: outcome.bytes,
            number,
            posted,
            status: outcome.status,
            flags: flags & uapi::ULDMA_COMPLETION_MORE,
        })
    }
}

impl SendQueue<'_> {
    /// Waits until the context is attached to registers.
    fn attach(&self, shared: &Shared, deadline: Deadline, signals: EndedBy) -> Result {
        shared.contexts.wait_for_registers(
            &shared.gate,
            &shared.mmap_offsets,
            self.open_file,
            deadline,
            signals,
        )
    }

    /// Makes the device poll the queue. Only a fatal signal ends the wait for a context that has
    /// lost its registers again.
    fn submit(&self, shared: &Shared) -> Result {
        full_fence();
        while self.vctx.page.is_asleep() {
            let guard = shared.gate.try_enter()?;
            let hw = guard.hw();
            if shared.contexts.wake(hw, &self.vctx)? {
                break;
            }
            drop(guard);
            self.attach(shared, Deadline::after(u64::MAX), EndedBy::Death)?;
        }
        Ok(())
    }
}

/// Checks that a queue in which all tickets up to `completed` have ended has a place for `ticket`.
///
/// # Errors
///
/// `EINVAL` for a ticket that has ended, `EBUSY` without a place.
fn check_ticket(ticket: u64, completed: u64) -> Result {
    let ahead = ticket.checked_sub(completed).ok_or(EINVAL)?;
    match ahead {
        0 => Err(EINVAL),
        _ if ahead > u64::from(uapi::ULDMA_STATUS_RECORDS) => Err(EBUSY),
        _ => Ok(()),
    }
}

#[kunit_tests(uldma_message)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_has_a_place_in_the_queue() {
        assert_eq!(check_ticket(1, 0), Ok(()));
        assert_eq!(check_ticket(64, 0), Ok(()));
        assert_eq!(check_ticket(65, 0), Err(EBUSY));
        assert_eq!(check_ticket(u64::MAX, 0), Err(EBUSY));
        assert_eq!(check_ticket(0, 0), Err(EINVAL));
        assert_eq!(check_ticket(7, 7), Err(EINVAL));
        assert_eq!(check_ticket(1, u64::MAX), Err(EINVAL));
    }
}
