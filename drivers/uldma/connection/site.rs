// SPDX-License-Identifier: GPL-2.0

//! What connections need of the device that they are of.

use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::{
    Connections,
    Job, //
};
use crate::{
    hw::Hardware,
    kernel_ext::{
        errno::eopnotsupp,
        gate::Gate, //
    },
    link::{
        part::Parts,
        Link, //
    },
    options,
    pump::Pump,
    queue::Queue,
    tpt::Tpt, //
};

/// How long is waited for room in the queue, and between two looks.
const PATIENCE: Delta = Delta::from_secs(2);
const PAUSE: Delta = Delta::from_micros(50);

/// Where connections find what they need.
pub(crate) struct Site<'a> {
    pub(crate) gate: &'a Gate,
    pub(crate) hw: &'a dyn Hardware,
    pub(crate) tpt: &'a Tpt,
    /// The kernel's queue of descriptors, if the device can have one.
    pub(crate) queue: Option<&'a Queue<Job>>,
    pub(crate) link: &'a Link,
    pub(crate) parts: &'a Parts,
    pub(crate) connections: &'a Connections,
    pub(crate) pump: &'a Arc<Pump>,
}

impl Site<'_> {
    /// Does what there is to do, where nobody is interrupted.
    pub(crate) fn work_if_polling(&self) {
        if options::link_poll().is_some() {
            self.pump.now();
        }
    }

    /// Ends what uses `region`, by the kernel's queue; what was queued before has ended then.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` without a queue; those of [`Queue::invalidate`].
    pub(super) fn invalidate(&self, region: u32) -> Result {
        let queue = self.queue.ok_or_else(eopnotsupp)?;
        let since: Instant<Monotonic> = Instant::now();
        loop {
            let result = {
                let guard = self.gate.try_enter()?;
                queue.invalidate(guard.dev(), self.hw, region)
            };
            // Who hears of the end of commands makes room for more.
            self.pump.now();
            match result {
                Err(EBUSY) if since.elapsed() < PATIENCE => fsleep(PAUSE),
                result => return result,
            }
        }
    }
}
