// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutexes in memory that processes share: the C library's, which the kernel releases when their
//! holder dies.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use nix::errno::Errno;
use nix::libc;

use crate::memory::Memory;

/// Marks an initialised mutex: "uldmlock".
const MADE: u64 = 0x6b63_6f6c_6d64_6c75;
/// Offset of the mutex, on its own cache line.
const MUTEX: usize = 64;

/// A mutex in the first page of memory that processes share.
///
/// # Invariants
///
/// The memory is shared, writable and large enough, and contains an initialised mutex.
#[derive(Debug)]
pub(crate) struct Mutex(Memory);

/// The calling thread holds a mutex, until this is dropped.
#[derive(Debug)]
pub(crate) struct Held<'mutex> {
    mutex: &'mutex Mutex,
    /// The last holder died.
    pub(crate) holder_died: bool,
    /// Only the thread that has locked it may unlock it.
    not_send: PhantomData<*const ()>,
}

impl Mutex {
    /// Creates a mutex in memory that is not used yet.
    pub(crate) fn create(memory: Memory) -> Result<Self, Errno> {
        let mutex = pointer(&memory)?;
        let mut attributes = MaybeUninit::<libc::pthread_mutexattr_t>::uninit();
        let attributes = attributes.as_mut_ptr();
        // SAFETY: the attributes are initialised before they are used and are destroyed after; the
        // mutex lies in memory that is mapped and writable, is aligned, and is not used yet.
        let made = unsafe {
            check(libc::pthread_mutexattr_init(attributes))?;
            let shared = libc::PTHREAD_PROCESS_SHARED;
            let robust = libc::PTHREAD_MUTEX_ROBUST;
            // A second lock by the same thread is an error, and not a deadlock.
            let kind = libc::PTHREAD_MUTEX_ERRORCHECK;
            let made = check(libc::pthread_mutexattr_setpshared(attributes, shared))
                .and_then(|()| check(libc::pthread_mutexattr_setrobust(attributes, robust)))
                .and_then(|()| check(libc::pthread_mutexattr_settype(attributes, kind)))
                .and_then(|()| check(libc::pthread_mutex_init(mutex, attributes)));
            libc::pthread_mutexattr_destroy(attributes);
            made
        };
        made?;
        memory.mapping().word(0).store(MADE, Ordering::Release);
        Ok(Self(memory))
    }

    /// Opens the mutex that another process has created in the same memory; ENOENT when there is
    /// none.
    pub(crate) fn open(memory: Memory) -> Result<Self, Errno> {
        pointer(&memory)?;
        match memory.mapping().word(0).load(Ordering::Acquire) {
            MADE => Ok(Self(memory)),
            _ => Err(Errno::ENOENT),
        }
    }

    /// Waits until no thread holds it, and takes it; EDEADLK when this thread holds it already.
    pub(crate) fn lock(&self) -> Result<Held<'_>, Errno> {
        let mutex = pointer(&self.0)?;
        // SAFETY: it has been made, by the type's invariant, and stays mapped for as long as the
        // result borrows `self`.
        let holder_died = match unsafe { libc::pthread_mutex_lock(mutex) } {
            libc::EOWNERDEAD => {
                // SAFETY: as above; this thread holds it.
                check(unsafe { libc::pthread_mutex_consistent(mutex) })?;
                true
            }
            errno => {
                check(errno)?;
                false
            }
        };
        Ok(Held {
            mutex: self,
            holder_died,
            not_send: PhantomData,
        })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Ok(mutex) = pointer(&self.mutex.0) {
            // SAFETY: as in `lock`, and this thread holds it, as `Held` cannot be sent. It can only
            // fail when another process has overwritten it.
            let _ = unsafe { libc::pthread_mutex_unlock(mutex) };
        }
    }
}

/// Returns the address of the mutex; EINVAL for memory that cannot contain one.
fn pointer(memory: &Memory) -> Result<*mut libc::pthread_mutex_t, Errno> {
    let end = MUTEX + size_of::<libc::pthread_mutex_t>();
    if !memory.is_shared() || !memory.is_writable() || end > memory.mapping().length() {
        return Err(Errno::EINVAL);
    }
    // Mappings begin with a page, so this is aligned.
    let base = memory.mapping().base().as_ptr();
    Ok(base.wrapping_add(MUTEX).cast())
}

/// These functions return their errors.
fn check(errno: libc::c_int) -> Result<(), Errno> {
    match errno {
        0 => Ok(()),
        errno => Err(Errno::from_raw(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Kind;
    use nix::sys::wait::{waitpid, WaitStatus};
    use nix::unistd::{fork, ForkResult};

    #[test]
    fn only_shared_memory_that_has_a_mutex_will_do() {
        let new = |kind, length| Memory::new(kind, length).unwrap();
        let private = Mutex::create(new(Kind::Private, 4096));
        assert_eq!(private.unwrap_err(), Errno::EINVAL);
        let none = Mutex::open(new(Kind::Memfd, 4096));
        assert_eq!(none.unwrap_err(), Errno::ENOENT);
        let small = Mutex::create(new(Kind::Memfd, 64));
        assert_eq!(small.unwrap_err(), Errno::EINVAL);
    }

    #[test]
    fn a_dead_process_does_not_keep_it() {
        let mutex = Mutex::create(Memory::new(Kind::Shared, 4096).unwrap()).unwrap();
        // SAFETY: the child does nothing but lock and end, which needs nothing that other threads
        // may have held at the fork.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let held = mutex.lock();
                let failed = !held.as_ref().is_ok_and(|held| !held.holder_died);
                // SAFETY: ends this process at once, with the mutex in its hands.
                unsafe { libc::_exit(i32::from(failed)) }
            }
            ForkResult::Parent { child } => {
                assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
            }
        }
        let held = mutex.lock().unwrap();
        assert!(held.holder_died);
        assert_eq!(mutex.lock().unwrap_err(), Errno::EDEADLK);
        drop(held);
        assert!(!mutex.lock().unwrap().holder_died);
    }
}
