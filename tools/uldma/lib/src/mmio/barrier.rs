// SPDX-License-Identifier: MIT OR Apache-2.0

//! The order of accesses to shared memory that may be mapped write-combining, as the window is.
//!
//! Rust's atomics order accesses to memory that is cached. Stores to write-combining memory leave
//! the processor in any order, and loads from it are carried out early (Intel SDM 12.3.1, AMD APM 2,
//! 7.4.2; on Arm it is Normal Non-cacheable memory in the outer domain). Even an instruction with
//! `lock` need not hold loads from it back (Intel SDM 10.1.2.2), so fences are named here.

use std::arch::asm;

/// Orders earlier stores before later ones. To be called before the store that publishes them.
#[inline(always)]
pub(crate) fn publish_barrier() {
    // SAFETY: a barrier has no operands and no effect but ordering.
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    unsafe {
        asm!("sfence", options(nostack, preserves_flags))
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("dmb oshst", options(nostack, preserves_flags))
    };
}

/// Orders earlier loads before later ones. To be called after the load of a published index.
#[inline(always)]
pub(crate) fn acquire_barrier() {
    // SAFETY: a barrier has no operands and no effect but ordering.
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    unsafe {
        asm!("lfence", options(nostack, preserves_flags))
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("dmb oshld", options(nostack, preserves_flags))
    };
}

/// Orders earlier loads before later stores. To be called before the store that lets another one change
/// what was loaded. On x86 no store passes an earlier load, whatever the memory.
#[inline(always)]
pub(crate) fn release_barrier() {
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::Release);
    // SAFETY: a barrier has no operands and no effect but ordering.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("dmb osh", options(nostack, preserves_flags))
    };
}

/// Orders all earlier accesses before all later ones, stores before loads included.
#[inline(always)]
pub(crate) fn full_barrier() {
    // SAFETY: a barrier has no operands and no effect but ordering.
    #[cfg(any(target_arch = "x86_64", target_arch = "x86"))]
    unsafe {
        asm!("mfence", options(nostack, preserves_flags))
    };
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("dmb osh", options(nostack, preserves_flags))
    };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "x86", target_arch = "aarch64")))]
compile_error!(
    "define in barrier.rs how this architecture orders accesses to write-combining memory"
);
