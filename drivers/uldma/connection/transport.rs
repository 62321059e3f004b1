// SPDX-License-Identifier: GPL-2.0

//! The transports of connection data.

use crate::hw::{
    Backend,
    Hardware, //
};

/// The mover of the data of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// The engine of the mover, from memory to memory.
    Engine,
    /// A CPU of the mover, from memory to memory.
    Memory,
    /// CPUs of both, into the window and out of it.
    Window,
}

/// Maximum number of bytes of one step, so that connections take turns.
const ENGINE_STEP: u64 = 1 << 20;
const CPU_STEP: u64 = 64 << 10;

impl Transport {
    /// Returns the transport of `hw`.
    pub(crate) fn of(hw: &dyn Hardware) -> Self {
        match hw.geometry().backend {
            Backend::Adapter if hw.kernel_queues().is_some() => Self::Engine,
            Backend::Loopback => Self::Memory,
            Backend::Adapter | Backend::Ivshmem => Self::Window,
        }
    }

    /// Returns the maximum number of bytes of one step.
    pub(super) fn step(self) -> u64 {
        match self {
            Self::Engine => ENGINE_STEP,
            Self::Memory | Self::Window => CPU_STEP,
        }
    }
}
