// SPDX-License-Identifier: MIT OR Apache-2.0

//! The two ways to lock memory from user level: by address, and a segment as a whole.

use nix::errno::Errno;

use super::protocol::LockCalls;
use crate::segment::{Segment, Span};
use crate::sys::{self, ShmId};
use crate::{Error, Result};

/// mlock() and munlock().
pub(super) struct MlockCalls;

impl LockCalls for MlockCalls {
    fn lock(&self, span: Span) -> Result<()> {
        sys::mlock(span.start, span.length)
            .map_err(|errno| Error::locking(format!("lock {} bytes", span.length), errno))
    }

    fn unlock(&self, span: Span) -> Result<()> {
        match sys::munlock(span.start, span.length) {
            // Memory that was unmapped is not locked.
            Ok(()) | Err(Errno::ENOMEM) => Ok(()),
            Err(errno) => {
                let action = format!("unlock {} bytes", span.length);
                Err(Error::locking(action, errno))
            }
        }
    }
}

/// SHM_LOCK and SHM_UNLOCK, of one System V segment whatever the addresses.
pub(super) struct ShmLockCalls<'a> {
    id: ShmId,
    segment: &'a Segment,
}

impl<'a> ShmLockCalls<'a> {
    /// Returns none for memory that is no System V segment.
    pub(super) fn of(segment: &'a Segment) -> Option<Self> {
        let id = segment.shm_id().map(ShmId)?;
        Some(Self { id, segment })
    }

    /// Returns true if other processes have the segment attached, or if that is unknown.
    pub(super) fn others_attach(&self) -> bool {
        self.id
            .stat()
            .map_or(true, |stat| stat.mappings > self.segment.own_mappings())
    }
}

impl LockCalls for ShmLockCalls<'_> {
    fn lock(&self, _: Span) -> Result<()> {
        let action = || format!("lock segment {}", self.id.0);
        self.id
            .lock()
            .map_err(|errno| Error::locking(action(), errno))
    }

    fn unlock(&self, _: Span) -> Result<()> {
        match self.id.unlock() {
            // A segment that has ended is not locked.
            Ok(()) | Err(Errno::EINVAL | Errno::EIDRM) => Ok(()),
            Err(errno) => {
                let action = format!("unlock segment {}", self.id.0);
                Err(Error::locking(action, errno))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, Memory};

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
        assert!(!calls.others_attach());
        let again = Memory::attach(segment.shm_id().unwrap(), false).unwrap();
        assert!(!calls.others_attach(), "both are this process's");
        calls.unlock(span_of(&memory)).unwrap();
        drop((memory, again));
        calls.unlock(segment.span()).unwrap();
    }
}
