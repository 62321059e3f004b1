// SPDX-License-Identifier: GPL-2.0

//! Commands of the kernel, copies between nodes and invalidations, and callers that wait for them.

use kernel::prelude::*;

use super::Queue;
use crate::{
    hw::{
        layout::{
            DescriptorFlags as Flags,
            PeerLink,
            OP_INVALIDATE,
            OP_PAGED, //
        },
        wait,
        Command,
        Hw,
        PeerRegionOffset, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    },
    user_abi::status_page::Outcome, //
};

impl Command {
    /// Returns the descriptor of the command.
    fn descriptor(&self, ticket: u64) -> uldma_descriptor {
        let none = uldma_descriptor {
            ticket,
            ..zerocopy::FromZeros::new_zeroed()
        };
        let copy = uldma_descriptor {
            op: uapi::ULDMA_OP_COPY,
            ..none
        };
        match *self {
            Self::Push { src, dst, length } => uldma_descriptor {
                flags: Flags::DST_OF_PEER.bits(),
                src: src.region,
                src_offset: src.offset,
                dst: dst.at.region,
                dst_offset: dst.at.offset,
                length,
                operand: dst.generation,
                compare: link_of(&dst).bits(),
                ..copy
            },
            Self::Pull { src, dst, length } => uldma_descriptor {
                flags: Flags::SRC_OF_PEER.bits(),
                src: src.at.region,
                src_offset: src.at.offset,
                dst: dst.region,
                dst_offset: dst.offset,
                length,
                operand: src.generation,
                compare: link_of(&src).bits(),
                ..copy
            },
            Self::Invalidate { region } => uldma_descriptor {
                op: OP_INVALIDATE,
                src: region,
                dst: region,
                ..none
            },
            Self::ReadAnswers => uldma_descriptor {
                op: OP_PAGED,
                ..none
            },
        }
    }
}

fn link_of(place: &PeerRegionOffset) -> PeerLink {
    PeerLink::NONE
        .with(PeerLink::NODE, place.node)
        .with(PeerLink::GENERATION, place.link_generation)
}

impl<T: Unpin> Queue<T> {
    /// Enables the context of the queue.
    pub(crate) fn enable(&self, hw: Hw<'_>) -> Result {
        self.enable_with(hw, ())
    }

    /// Submits a command. [`Queue::reap`] returns `waiter` when it has completed.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the queue is full, `ENODEV` if it is not enabled.
    pub(crate) fn submit(&self, hw: Hw<'_>, command: &Command, waiter: T) -> Result {
        self.submit_for(hw, command, Some(waiter), false).map(drop)
    }

    /// Submits a command whose outcome tells nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::submit`].
    pub(crate) fn post(&self, hw: Hw<'_>, command: &Command) -> Result {
        self.submit_for(hw, command, None, false).map(drop)
    }

    /// Submits a command whose outcome the caller awaits. Returns its ticket.
    pub(super) fn submit_awaited(&self, hw: Hw<'_>, command: &Command) -> Result<u64> {
        self.submit_for(hw, command, None, true)
    }

    fn submit_for(
        &self,
        hw: Hw<'_>,
        command: &Command,
        mut waiter: Option<T>,
        is_awaited: bool,
    ) -> Result<u64> {
        self.submit_with(hw, &mut waiter, is_awaited, |(), ticket, _| {
            Ok(command.descriptor(ticket))
        })
    }

    /// Requests an interrupt for the next completion.
    pub(crate) fn arm(&self, hw: Hw<'_>) -> Result {
        let reaped = self.state.lock().tickets.reaped();
        hw.arm_context(self.context, reaped)
    }

    /// Invalidates `region` and waits for that; bounded, and without waiting while the device is
    /// sick.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EBUSY` if the queue is full, `ENODEV` if it was
    /// torn down, `EIO` if the command fails or the device was reset and has lost the queue.
    pub(crate) fn invalidate(&self, hw: Hw<'_>, region: u32) -> Result {
        hw.health().check()?;
        let ticket = self.submit_awaited(hw, &Command::Invalidate { region })?;
        let outcome: Result<Outcome> = self.wait(hw, || Ok(self.take(ticket)));
        if outcome.is_err() {
            self.abandon(ticket);
        }
        outcome?.check()
    }

    /// Waits until the device has read all commands that were submitted before; bounded. It
    /// normally reads them at once, however long they take.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the device does not answer, `EIO` if it was reset and has lost the queue.
    pub(crate) fn wait_until_read(&self, hw: Hw<'_>) -> Result {
        let submitted = self.submitted();
        self.wait(hw, || {
            let is_read = self.completed() >= submitted || self.last_read(hw)? >= submitted;
            Ok(is_read.then_some(()))
        })
    }

    /// Waits until all commands that were submitted before have completed; bounded.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::wait_until_read`].
    pub(crate) fn wait_until_ended(&self, hw: Hw<'_>) -> Result {
        let submitted = self.submitted();
        self.wait(hw, || Ok((self.completed() >= submitted).then_some(())))
    }

    fn wait<R>(&self, hw: Hw<'_>, ready: impl FnMut() -> Result<Option<R>>) -> Result<R> {
        wait::until(hw, || self.completed(), ready)
    }
}

#[kunit_tests(uldma_queue_commands)]
mod tests {
    use super::*;
    use crate::hw::RegionOffset;

    const HERE: RegionOffset = RegionOffset {
        region: 3,
        offset: 0x1000,
    };
    const THERE: PeerRegionOffset = PeerRegionOffset {
        node: 2,
        link_generation: 5,
        at: RegionOffset {
            region: 7,
            offset: 0x2000,
        },
        generation: 11,
    };

    #[test]
    fn copies_name_the_peer_and_the_generations() {
        let (src, dst, length) = (HERE, THERE, 64);
        let push = Command::Push { src, dst, length }.descriptor(9);
        let pull = Command::Pull {
            src: THERE,
            dst: HERE,
            length,
        }
        .descriptor(9);
        for descriptor in [&push, &pull] {
            assert_eq!((descriptor.ticket, descriptor.length), (9, length));
            assert_eq!(descriptor.op, uapi::ULDMA_OP_COPY);
            assert_eq!(descriptor.operand, THERE.generation);
            assert_eq!(descriptor.compare, link_of(&THERE).bits());
        }
        assert_eq!(push.flags, Flags::DST_OF_PEER.bits());
        assert_eq!((push.src, push.src_offset), (3, 0x1000));
        assert_eq!((push.dst, push.dst_offset), (7, 0x2000));
        assert_eq!(pull.flags, Flags::SRC_OF_PEER.bits());
        assert_eq!((pull.src, pull.src_offset), (7, 0x2000));
        assert_eq!((pull.dst, pull.dst_offset), (3, 0x1000));
    }
}
