// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counter of the shm_ctl mode over all processes: a System V semaphore for each segment.
//!
//! A set has two semaphores, a turn and the number of areas. A process takes the turn, locks or
//! unlocks the segment by what it finds, changes the number, and ends the turn. The kernel undoes
//! what a process that dies has added (`SEM_UNDO`), so it leaves neither a turn nor areas behind; if
//! it was the last one, the segment stays locked until the next last area or its own end.

use std::time::Duration;

use nix::errno::Errno;
use nix::libc;
use uldma::measure::count_call;
use uldma::Result;

use super::shm_counter::AreaCounter;
use crate::failure::system;

/// Distinguishes the keys of these semaphores from other programs': "uldm".
const KEY: i32 = 0x756c_646d;
const TURN: libc::c_ushort = 0;
const AREAS: libc::c_ushort = 1;
/// A turn is a few system calls, unless a process is stopped in it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Sets that other processes may remove under this one's eyes before it gives up.
const TRIES: usize = 100;

/// The counter of one segment, while this process has the turn.
#[derive(Debug)]
pub(super) struct AllAreas {
    set: i32,
    areas: u64,
}

impl AllAreas {
    /// Waits for the turn at a segment.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`]: EAGAIN when another process keeps the turn, EACCES when the semaphores
    /// belong to another user, ENOSPC when the system has no more.
    pub(super) fn of(shmid: i32) -> Result<Self> {
        let failed = |errno| system(format!("count areas of segment {shmid}"), errno);
        for _ in 0..TRIES {
            let set = open(shmid ^ KEY).map_err(failed)?;
            let turn = [change(TURN, 0, 0), change(TURN, 1, libc::SEM_UNDO)];
            match operate(set, turn) {
                Ok(()) => {
                    let mut counter = Self { set, areas: 0 };
                    counter.areas = value(set).map_err(failed)?;
                    return Ok(counter);
                }
                // The last area has ended, and its process has removed the set.
                Err(Errno::EIDRM | Errno::EINVAL | Errno::EINTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
        }
        Err(failed(Errno::EAGAIN))
    }
}

impl AreaCounter for AllAreas {
    fn areas(&self) -> u64 {
        self.areas
    }

    fn add(&mut self) -> Result<()> {
        operate(self.set, [change(AREAS, 1, libc::SEM_UNDO)])
            .map_err(|errno| system("count an area", errno))?;
        self.areas += 1;
        Ok(())
    }

    fn remove(&mut self) -> bool {
        let flags = libc::SEM_UNDO | libc::IPC_NOWAIT;
        if operate(self.set, [change(AREAS, -1, flags)]).is_err() {
            return false;
        }
        self.areas = self.areas.saturating_sub(1);
        self.areas == 0
    }
}

impl Drop for AllAreas {
    fn drop(&mut self) {
        if self.areas == 0 {
            count_call();
            // SAFETY: the command takes no argument, and its effect is on the set only.
            let removed = unsafe { libc::semctl(self.set, 0, libc::IPC_RMID) };
            if removed == 0 {
                return;
            }
        }
        // If this fails, the set is gone, and with it the turn.
        let _ = operate(self.set, [change(TURN, -1, libc::SEM_UNDO)]);
    }
}

fn change(semaphore: libc::c_ushort, by: libc::c_short, flags: libc::c_int) -> libc::sembuf {
    libc::sembuf {
        sem_num: semaphore,
        sem_op: by,
        // The flags are two bits.
        sem_flg: flags as libc::c_short,
    }
}

fn open(key: libc::key_t) -> std::result::Result<i32, Errno> {
    count_call();
    // SAFETY: the call takes numbers only.
    Errno::result(unsafe { libc::semget(key, 2, libc::IPC_CREAT | 0o600) })
}

fn operate<const N: usize>(
    set: i32,
    mut changes: [libc::sembuf; N],
) -> std::result::Result<(), Errno> {
    let limit = libc::timespec {
        tv_sec: PATIENCE.as_secs() as libc::time_t,
        tv_nsec: 0,
    };
    count_call();
    // SAFETY: the pointers are to as many changes and to the limit, which live until the call
    // returns.
    let done = unsafe {
        let changes = changes.as_mut_ptr();
        libc::syscall(libc::SYS_semtimedop, set, changes, N, &raw const limit)
    };
    Errno::result(done).map(drop)
}

fn value(set: i32) -> std::result::Result<u64, Errno> {
    count_call();
    // SAFETY: the command takes no argument.
    let value = Errno::result(unsafe { libc::semctl(set, AREAS.into(), libc::GETVAL) })?;
    Ok(u64::try_from(value).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use uldma::memory::Kind;
    use uldma::Memory;

    use super::*;

    /// A segment, so that no test that runs at the same time has its number.
    fn segment() -> (Memory, i32) {
        let memory = Memory::new(Kind::SysV, 4096).unwrap();
        let shmid = memory.segment_id().unwrap();
        (memory, shmid)
    }

    #[test]
    fn the_number_outlives_turns_and_ends_with_the_last_area() {
        let (_memory, shmid) = segment();
        for _ in 0..3 {
            let mut first = AllAreas::of(shmid).unwrap();
            assert_eq!(first.areas(), 0);
            first.add().unwrap();
            drop(first);
            let mut second = AllAreas::of(shmid).unwrap();
            assert_eq!(second.areas(), 1);
            second.add().unwrap();
            assert!(!second.remove());
            assert!(second.remove());
            assert!(!second.remove());
        }
    }

    #[test]
    fn one_has_the_turn_at_a_time() {
        const ROUNDS: u64 = 500;
        let (_memory, shmid) = segment();
        let count = std::sync::atomic::AtomicU64::new(0);
        let work = || {
            for _ in 0..ROUNDS {
                let mut counter = AllAreas::of(shmid).unwrap();
                let before = count.load(std::sync::atomic::Ordering::Relaxed);
                counter.add().unwrap();
                counter.remove();
                // Two steps that another could interleave.
                count.store(before + 1, std::sync::atomic::Ordering::Relaxed);
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
        assert_eq!(count.into_inner(), 2 * ROUNDS);
    }
}
