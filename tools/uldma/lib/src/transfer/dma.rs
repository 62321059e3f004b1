// SPDX-License-Identifier: MIT OR Apache-2.0

//! Transfers through the kernel: two system calls each, no register context.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::method::refusal::Refusal;
use crate::region::Registered;
use crate::sys;
use crate::sys::uapi;
use crate::transfer::status::Completion;
use crate::transfer::ticket::{KernelTicket, Ticket};
use crate::wait::deadline::nanoseconds;

impl Device {
    /// Starts a transfer of `bytes` bytes through the kernel.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL when the range leaves a region, EACCES when a right is missing,
    /// EBUSY when the queue is full.
    pub fn dma(
        &self,
        source: (&impl Registered, u64),
        destination: (&impl Registered, u64),
        bytes: u64,
    ) -> Result<KernelTicket> {
        self.dma_by_handle(
            (source.0.entry().handle, source.1),
            (destination.0.entry().handle, destination.1),
            bytes,
        )
    }

    /// Starts a transfer between regions given by their handles.
    pub(crate) fn dma_by_handle(
        &self,
        source: (u32, u64),
        destination: (u32, u64),
        bytes: u64,
    ) -> Result<KernelTicket> {
        let argument = uapi::uldma_dma {
            src: source.0,
            dst: destination.0,
            src_offset: source.1,
            dst_offset: destination.1,
            length: bytes,
            ..Default::default()
        };
        sys::dma(self.as_fd(), argument)
            .map(|answer| KernelTicket(answer.out_ticket))
            .map_err(|errno| Error::system(format!("start a transfer of {bytes} bytes"), errno))
    }

    /// Sleeps until a transfer that the kernel started has ended.
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] when it failed, [`Error::Timeout`], [`Error::System`]: ENOENT when 64
    /// later transfers have overwritten its record, EINTR when a signal was handled.
    pub fn dma_wait(&self, ticket: KernelTicket, timeout: Duration) -> Result<Completion> {
        let argument = uapi::uldma_dma_wait {
            ticket: ticket.0,
            timeout_ns: nanoseconds(timeout),
            ..Default::default()
        };
        let answer = sys::dma_wait(self.as_fd(), argument).map_err(|errno| match errno {
            Errno::ETIMEDOUT => Error::Timeout {
                what: format!("end of kernel transfer {}", ticket.0),
                after: timeout,
            },
            errno => Error::system(format!("wait for kernel transfer {}", ticket.0), errno),
        })?;
        let failure = Refusal::from_status(answer.out_status);
        Completion {
            ticket: Ticket(ticket.0),
            bytes: answer.out_bytes,
            failure,
        }
        .check()
    }
}
