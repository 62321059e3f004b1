// SPDX-License-Identifier: MIT OR Apache-2.0

//! A store and a load of registers that are restarted when the thread was interrupted in between: a
//! restartable sequence of the kernel, see rseq(2).
//!
//! The C library registers each thread; this module finds that registration. While a thread is in
//! the sequence, its area points to a descriptor of it. When the kernel preempts, migrates or
//! signals the thread there, it resumes the thread at the descriptor's abort address.

use crate::mmio::RegisterAddress;

/// The thread was interrupted in the sequence: the store may have happened, and the load's answer
/// is lost or was never read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interrupted;

/// Restartable sequences of the calling thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RestartableThread {
    /// Offset from the thread pointer to the area that is registered with the kernel.
    offset: isize,
}

#[cfg(target_arch = "x86_64")]
impl RestartableThread {
    /// Finds the area of each thread as registered by the C library; none when it registers none
    /// (glibc does so from 2.35 on, unless its tunable `glibc.pthread.rseq` is zero).
    pub(crate) fn find() -> Option<Self> {
        use nix::libc::{c_uint, dlsym, RTLD_DEFAULT};
        // SAFETY: the names are zero-terminated strings, and looking up data symbols runs no
        // foreign code.
        let (offset, size) = unsafe {
            (
                dlsym(RTLD_DEFAULT, c"__rseq_offset".as_ptr()),
                dlsym(RTLD_DEFAULT, c"__rseq_size".as_ptr()),
            )
        };
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: the C library defines these two with these types, and never changes them once
        // the program runs.
        let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<c_uint>()) };
        // Zero means that the kernel refused the registration, or that it was turned off.
        (size != 0).then_some(Self { offset })
    }

    /// Stores `word` to `first`, then loads from `second`.
    ///
    /// # Errors
    ///
    /// [`Interrupted`]: the caller has to restart.
    #[inline(never)]
    pub(crate) fn store_load(
        self,
        first: RegisterAddress<'_>,
        second: RegisterAddress<'_>,
        word: u64,
    ) -> Result<i64, Interrupted> {
        let answer: i64;
        let interrupted: u64;
        // SAFETY: both registers are mapped and aligned, as in `Register`. The area belongs to this
        // thread and lies where the C library says; its `rseq_cs` (at byte 8) is meant to be
        // written. The descriptor has the kernel's format: version and flags of zero, start,
        // length, and the abort address, which is preceded by the signature that glibc registered.
        // The sequence has no other effects, and an interruption only loses registers that are
        // outputs. The pointer is cleared before any other code runs.
        unsafe {
            std::arch::asm!(
                ".pushsection __rseq_cs, \"aw\"",
                ".balign 32",
                "2:",
                ".long 0, 0",
                ".quad 3f, 4f - 3f, 6f",
                ".popsection",
                "mov {area}, fs:[0]",
                "add {area}, {offset}",
                "lea {scratch}, [rip + 2b]",
                "mov qword ptr [{area} + 8], {scratch}",
                "xor {interrupted:e}, {interrupted:e}",
                // Only the load commits: after an interruption before its end the sequence
                // restarts.
                "3:",
                "mov qword ptr [{first}], {word}",
                "mov {answer}, qword ptr [{second}]",
                "4:",
                "jmp 7f",
                ".byte 0x0f, 0xb9, 0x3d",
                ".long 0x53053053",
                "6:",
                "mov {interrupted:e}, 1",
                "7:",
                "mov qword ptr [{area} + 8], 0",
                area = out(reg) _,
                scratch = out(reg) _,
                interrupted = out(reg) interrupted,
                answer = out(reg) answer,
                offset = in(reg) self.offset,
                first = in(reg) first.word(),
                second = in(reg) second.word(),
                word = in(reg) word,
                options(nostack),
            );
        }
        if interrupted == 0 {
            Ok(answer)
        } else {
            Err(Interrupted)
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
impl RestartableThread {
    /// Returns none: this architecture's sequence has not been written.
    pub(crate) fn find() -> Option<Self> {
        None
    }

    /// Never called, since there is no value of this type.
    pub(crate) fn store_load(
        self,
        _: RegisterAddress<'_>,
        _: RegisterAddress<'_>,
        _: u64,
    ) -> Result<i64, Interrupted> {
        let _ = self.offset;
        Err(Interrupted)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::sys::Mapping;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    const NEEDS: &str = "this test needs a C library with restartable sequences (glibc 2.35)";
    /// Time after which a preemption between the store and the load must have happened, which on
    /// memory take a nanosecond.
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn it_stores_then_loads() {
        let thread = RestartableThread::find().expect(NEEDS);
        let map = Mapping::anonymous(8192).unwrap();
        map.word(4096).store(77, Ordering::Relaxed);
        let first = RegisterAddress::new(&map, 13).unwrap();
        let second = RegisterAddress::new(&map, 4099).unwrap();
        let answer = (0..100).find_map(|_| thread.store_load(first, second, 0x1234).ok());
        assert_eq!(answer, Some(77));
        assert_eq!(map.word(8).load(Ordering::Relaxed), 0x1234);
    }

    /// At last one attempt is interrupted, and the others have made both accesses.
    #[test]
    fn an_interrupted_thread_is_told() {
        let thread = RestartableThread::find().expect(NEEDS);
        let interrupted = AtomicU32::new(0);
        let end = Instant::now() + LONG;
        // More threads than processors, so that they are preempted.
        let threads = 2 * std::thread::available_parallelism().unwrap().get();
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let map = Mapping::anonymous(4096).unwrap();
                    let register = RegisterAddress::new(&map, 0).unwrap();
                    let mut number = 0;
                    while interrupted.load(Ordering::Relaxed) == 0 && Instant::now() < end {
                        for _ in 0..10_000 {
                            number += 1;
                            match thread.store_load(register, register, number) {
                                Ok(answer) => assert_eq!(answer as u64, number),
                                Err(Interrupted) => {
                                    interrupted.fetch_add(1, Ordering::Relaxed);
                                }
                            }
                        }
                    }
                });
            }
        });
        assert_ne!(interrupted.into_inner(), 0);
    }
}
