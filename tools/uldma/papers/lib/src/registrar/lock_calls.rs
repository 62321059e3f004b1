// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two ways to lock memory from user level: by address, and a segment as a whole.

use std::ptr;

use nix::errno::Errno;
use nix::libc;
use uldma::measure::count_call;
use uldma::region::Memlock;
use uldma::{Error, Result};

use super::mlock::{mlock, munlock};
use super::protocol::LockCalls;
use super::segment::{Segment, Span};

/// Builds the error of mlock() or shmctl(), which have their own limit.
fn locking(action: String, errno: Errno) -> Error {
    let hint = matches!(errno, Errno::ENOMEM | Errno::EPERM | Errno::EAGAIN)
        .then(|| advice(&Memlock::read()));
    Error::System {
        action,
        errno,
        hint,
    }
}

/// Returns advice for an mlock() that found no room; mlock() counts apart from pinned memory.
fn advice(memlock: &Memlock) -> String {
    let locked = memlock.locked / 1024;
    match memlock.limit {
        Some(limit) => format!(
            "RLIMIT_MEMLOCK is {} KiB, {locked} KiB of it in use by mlock(): raise it (ulimit -l), \
             or run with CAP_IPC_LOCK",
            limit / 1024
        ),
        None => format!("{locked} KiB are locked, without a limit: is all of it mapped?"),
    }
}

/// mlock() and munlock().
pub(super) struct MlockCalls;

impl LockCalls for MlockCalls {
    fn lock(&self, span: Span) -> Result<()> {
        mlock(span.start, span.length)
            .map_err(|errno| locking(format!("lock {} bytes", span.length), errno))
    }

    fn unlock(&self, span: Span) -> Result<()> {
        match munlock(span.start, span.length) {
            // Memory that was unmapped is not locked.
            Ok(()) | Err(Errno::ENOMEM) => Ok(()),
            Err(errno) => {
                let action = format!("unlock {} bytes", span.length);
                Err(locking(action, errno))
            }
        }
    }
}

/// SHM_LOCK and SHM_UNLOCK, of one System V segment whatever the addresses.
pub(super) struct ShmLockCalls {
    id: i32,
}

impl ShmLockCalls {
    /// Returns none for memory that is no System V segment.
    pub(super) fn of(segment: &Segment) -> Option<Self> {
        segment.shm_id().map(|id| Self { id })
    }

    /// Returns the number of the segment.
    pub(super) fn number(&self) -> i32 {
        self.id
    }

    /// Executes SHM_LOCK or SHM_UNLOCK.
    fn control(&self, command: libc::c_int) -> std::result::Result<(), Errno> {
        count_call();
        // SAFETY: these commands take no third argument.
        Errno::result(unsafe { libc::shmctl(self.id, command, ptr::null_mut()) }).map(drop)
    }
}

impl LockCalls for ShmLockCalls {
    fn lock(&self, _: Span) -> Result<()> {
        self.control(libc::SHM_LOCK)
            .map_err(|errno| locking(format!("lock segment {}", self.id), errno))
    }

    fn unlock(&self, _: Span) -> Result<()> {
        match self.control(libc::SHM_UNLOCK) {
            // A segment that has ended is not locked.
            Ok(()) | Err(Errno::EINVAL | Errno::EIDRM) => Ok(()),
            Err(errno) => {
                let action = format!("unlock segment {}", self.id);
                Err(locking(action, errno))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uldma::memory::Kind;
    use uldma::Memory;

    use super::*;

    fn span_of(memory: &Memory) -> Span {
        Span {
            start: memory.address(),
            length: memory.length(),
        }
    }

    #[test]
    fn memory_that_has_gone_is_not_locked() {
        let memory = Memory::new(Kind::Shared, 4096).unwrap();
        let span = span_of(&memory);
        MlockCalls.lock(span).unwrap();
        drop(memory);
        MlockCalls.unlock(span).unwrap();
    }

    #[test]
    fn a_segment_is_locked_by_its_number() {
        let memory = Memory::new(Kind::SysV, 8192).unwrap();
        let segment = Segment::containing(memory.address(), 1).unwrap();
        let calls = ShmLockCalls::of(&segment).unwrap();
        calls.lock(span_of(&memory)).unwrap();
        let again = Memory::attach(segment.shm_id().unwrap(), false).unwrap();
        calls.unlock(span_of(&memory)).unwrap();
        drop((memory, again));
        calls.unlock(segment.span()).unwrap();
    }
}
