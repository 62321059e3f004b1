// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reaping of posted memory: by the device's counts, or by a call.

use std::os::fd::AsFd;
use std::task::Poll;

use nix::errno::Errno;

use super::{lock, Connection, Posted, Unsent};
use crate::error::{Error, Result};
use crate::region::chunk::{Chunk, Chunks};
use crate::sys;
use crate::sys::uapi;

impl Connection {
    pub(super) fn receive(&self, most: usize, flags: u32) -> Result<Poll<Option<Chunk>>> {
        let reap = |spins: bool| {
            let mut posted = lock(&self.posted);
            let Posted { ring, chunks } = &mut *posted;
            let ring = ring.as_mut()?;
            if spins && !ring.is_ready() {
                ring.spin();
            }
            Some(ring.reap(chunks, most))
        };
        self.reap_or_call(flags, reap, |flags| {
            get_back(
                &mut lock(&self.posted).chunks,
                (most, flags),
                "receive",
                |argument| sys::conn_recv(self.as_fd(), argument),
            )
        })
    }

    pub(super) fn reclaim(&self, most: usize, flags: u32) -> Result<Poll<Option<Chunk>>> {
        let reap = |spins: bool| {
            let mut unsent = lock(&self.unsent);
            let Unsent { queue, chunks } = &mut *unsent;
            let queue = queue.as_mut()?;
            queue.push(self.agreement.is_matched());
            if spins && !queue.is_ready() {
                queue.spin();
            }
            Some(queue.reap(chunks, most))
        };
        self.reap_or_call(flags, reap, |flags| {
            get_back(
                &mut lock(&self.unsent).chunks,
                (most, flags),
                "get sent memory back",
                |argument| sys::conn_recycle(self.as_fd(), argument),
            )
        })
    }

    /// Reaps memory that the device has counted, or else by a call. `reap` returns none if the
    /// driver has the memory; its argument is true to poll first. `ULDMA_RANGE_SPIN` in `flags` says
    /// that the caller will wait if there is none.
    fn reap_or_call(
        &self,
        flags: u32,
        reap: impl Fn(bool) -> Option<Option<Chunk>>,
        call: impl FnOnce(u32) -> Result<Poll<Option<Chunk>>>,
    ) -> Result<Poll<Option<Chunk>>> {
        let will_wait = flags & uapi::ULDMA_RANGE_SPIN != 0;
        match reap(will_wait && self.agreement.is_matched()) {
            Some(Some(memory)) => return Ok(Poll::Ready(Some(memory))),
            // The wait will tell of the end.
            Some(None) if will_wait && self.agreement.goes_on() => return Ok(Poll::Pending),
            Some(None) => self.negotiate()?,
            None => {}
        }
        let flags = match reap(false) {
            Some(Some(memory)) => return Ok(Poll::Ready(Some(memory))),
            // The driver knows of the end only.
            Some(None) => 0,
            None => flags,
        };
        let ended = call(flags);
        if matches!(ended, Ok(Poll::Pending)) {
            return ended;
        }
        if matches!(ended, Ok(Poll::Ready(None))) {
            self.agreement.note_end();
        }
        // What came before the end is reaped first.
        match reap(false) {
            Some(Some(memory)) => Ok(Poll::Ready(Some(memory))),
            _ => ended,
        }
    }
}

/// Reaps memory from the kernel, and checks that it is the oldest posted memory.
fn get_back(
    queue: &mut Chunks,
    (most, flags): (usize, u32),
    what: &str,
    call: impl FnOnce(uapi::uldma_conn_range) -> std::result::Result<uapi::uldma_conn_range, Errno>,
) -> Result<Poll<Option<Chunk>>> {
    // A run lies in one area; adjacent memory may belong to different areas.
    let run = queue.run();
    let length = if run == 0 { most } else { most.min(run) };
    let argument = uapi::uldma_conn_range {
        flags,
        length: length as u64,
        ..Default::default()
    };
    let failed = |errno| Error::connection(what, errno);
    match call(argument) {
        Ok(answer) if answer.out_length == 0 => Ok(Poll::Ready(None)),
        Ok(answer) => queue
            .take(answer.out_addr, answer.out_length)
            .map(|memory| Poll::Ready(Some(memory)))
            .ok_or_else(|| failed(Errno::EIO)),
        Err(Errno::EAGAIN | Errno::EINTR) => Ok(Poll::Pending),
        Err(errno) => Err(failed(errno)),
    }
}
