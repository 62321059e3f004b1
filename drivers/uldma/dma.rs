// SPDX-License-Identifier: GPL-2.0

//! DMA by the device: register contexts, the kernel's queues of descriptors, and transfers.

pub(crate) mod context;
pub(crate) mod descriptor;
pub(crate) mod endpoint;
pub(crate) mod engine;
pub(crate) mod method;
pub(crate) mod queue;
pub(crate) mod sched_notify;
pub(crate) mod send_queue;
