// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers for what the `kernel` crate lacks.
//!
//! Each module is written as if it were to move to `rust/kernel/` one day: it knows nothing of
//! uldma, and it is the only place that calls `bindings` and C shims.

#![allow(
    improper_ctypes,
    reason = "structures of the bindings may have empty fields, as in `kernel::bindings`"
)]

pub(crate) mod accounting;
pub(crate) mod bh_lock;
pub(crate) mod capability;
pub(crate) mod changes;
pub(crate) mod chardev;
pub(crate) mod compat;
pub(crate) mod dma;
pub(crate) mod errno;
pub(crate) mod eventfd;
pub(crate) mod faux;
pub(crate) mod gate;
pub(crate) mod global;
pub(crate) mod gup;
pub(crate) mod hmm;
pub(crate) mod interval_tree;
pub(crate) mod irq_mask;
pub(crate) mod list;
pub(crate) mod mapping;
pub(crate) mod mmu_ageing;
pub(crate) mod mmu_notifier;
pub(crate) mod net;
pub(crate) mod noio;
pub(crate) mod nospec;
pub(crate) mod page_list;
pub(crate) mod pci;
pub(crate) mod plain;
pub(crate) mod random;
pub(crate) mod range_alloc;
pub(crate) mod ratelimit;
pub(crate) mod sched_switch;
pub(crate) mod shared_pins;
pub(crate) mod shrinker;
pub(crate) mod sleep;
pub(crate) mod sort;
pub(crate) mod timed_lock;
pub(crate) mod vma;
pub(crate) mod wait;
pub(crate) mod wakeup;
pub(crate) mod window;
pub(crate) mod workqueue;
