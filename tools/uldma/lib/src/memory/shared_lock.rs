// SPDX-License-Identifier: MIT OR Apache-2.0

//! A lock for processes that share pages.
//!
//! The device cannot tell processes apart that share the pages of a transfer, so they have to take
//! turns (fn 8). This lock is a way to do so: a word of shared memory that a process sleeps on, and
//! that the kernel releases when its holder dies.

mod robust;

use self::robust::{Held, Mutex};
use crate::error::{Error, Result};
use crate::memory::Memory;

/// A lock for several processes: each has its own value of this type, over the same memory.
///
/// One process creates it ([`SharedLock::create`]), the others open it ([`SharedLock::open`]) or
/// inherit it by fork(), where the memory is shared. It excludes only processes that use it; a
/// process that writes to the memory in other ways can make it fail for all.
#[derive(Debug)]
pub struct SharedLock {
    mutex: Mutex,
}

/// Holds a [`SharedLock`] until it is dropped.
///
/// It belongs to the thread, and cannot be sent to another one:
///
/// ```compile_fail
/// fn sent<T: Send>() {}
/// sent::<uldma::memory::SharedGuard<'static>>();
/// ```
#[derive(Debug)]
pub struct SharedGuard<'lock> {
    held: Held<'lock>,
}

impl SharedLock {
    /// Creates a lock in the first page of `memory`, which no process may use yet and all share:
    /// [`crate::memory::Kind::Shared`], [`crate::memory::Kind::SysV`] or a file.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for memory that is too small, private, or for reading only.
    pub fn create(memory: Memory) -> Result<Self> {
        Mutex::create(memory)
            .map(|mutex| Self { mutex })
            .map_err(|errno| Error::system("make a lock in shared memory", errno))
    }

    /// Opens the lock that another process has created in the same memory.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for memory as in [`SharedLock::create`], ENOENT when no lock was
    /// created there (yet).
    pub fn open(memory: Memory) -> Result<Self> {
        Mutex::open(memory)
            .map(|mutex| Self { mutex })
            .map_err(|errno| Error::system("use a lock in shared memory", errno))
    }

    /// Waits until no thread holds it, and takes it.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EDEADLK when this thread holds it already.
    pub fn lock(&self) -> Result<SharedGuard<'_>> {
        self.mutex
            .lock()
            .map(|held| SharedGuard { held })
            .map_err(|errno| Error::system("take a lock", errno))
    }
}

impl SharedGuard<'_> {
    /// Returns true if the last holder died while holding it: the data that it protects may be
    /// half-changed.
    pub fn holder_died(&self) -> bool {
        self.held.holder_died
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Kind;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn two_mappings_are_one_lock() {
        let memory = Memory::new(Kind::SysV, 4096).unwrap();
        let again = Memory::attach(memory.segment_id().unwrap(), true).unwrap();
        let lock = SharedLock::create(memory).unwrap();
        let other = SharedLock::open(again).unwrap();
        let count = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for lock in [&lock, &other] {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let guard = lock.lock().unwrap();
                        assert!(!guard.holder_died());
                        // Two steps that another thread could interleave.
                        let now = count.load(Ordering::Relaxed);
                        count.store(now + 1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 20_000);
    }

    #[test]
    fn a_thread_that_ends_with_it_does_not_keep_it() {
        let lock = SharedLock::create(Memory::new(Kind::Shared, 4096).unwrap()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| std::mem::forget(lock.lock().unwrap()));
        });
        assert!(lock.lock().unwrap().holder_died());
        assert!(!lock.lock().unwrap().holder_died());
    }
}
