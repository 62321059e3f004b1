// SPDX-License-Identifier: GPL-2.0

//! Measures the cost of sleeping until a command completes.

use kernel::{
    prelude::*,
    processor::cpu_relax,
    time::{
        Delta,
        Instant,
        Monotonic, //
    }, //
};

use super::Queue;
use crate::{
    hw::{
        Command,
        Hw, //
    },
    kernel_ext::{
        changes::Changes,
        wait::EndedBy,
        wakeup::Rounds, //
    }, //
};

/// Maximum time of a command by which the cost of a wake-up is measured.
const LONGEST_ROUND: Delta = Delta::from_millis(100);

impl<T: Unpin> Queue<T> {
    /// Returns the nanoseconds until a command that moves nothing has completed. The caller polls,
    /// or sleeps until the device's interrupt changes `interrupts`.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if the command takes long, `EINTR` on a fatal signal, `EBUSY` if the queue is full, `ENODEV` if it
    /// was torn down.
    fn round(&self, hw: Hw<'_>, interrupts: Option<&Changes>) -> Result<i64> {
        let since: Instant<Monotonic> = Instant::now();
        let command = Command::Invalidate { region: 0 };
        let ticket = self.submit_awaited(hw, &command)?;
        let result = loop {
            let seen = interrupts.map(|interrupts| (interrupts, interrupts.count()));
            if self.take(ticket).is_some() {
                return Ok(since.elapsed().as_nanos());
            }
            let left = LONGEST_ROUND - since.elapsed();
            if left <= Delta::ZERO {
                break ETIMEDOUT;
            }
            match seen {
                None => cpu_relax(),
                Some((interrupts, seen)) => {
                    if let Err(err) = hw.arm_context(self.context, ticket - 1) {
                        break err;
                    }
                    if !interrupts.wait(seen, left, EndedBy::Death) {
                        break EINTR;
                    }
                }
            }
        };
        self.abandon(ticket);
        Err(result)
    }

    /// Returns the nanoseconds that sleeping until a command completes takes longer than polling for
    /// it; `interrupts` change with the interrupts of the device.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` if a command takes long, `EINTR` on a fatal signal, `EBUSY` if the queue is full, `ENODEV` if it
    /// was torn down.
    pub(crate) fn measure_wakeup(&self, hw: Hw<'_>, interrupts: &Changes) -> Result<i64> {
        let (mut polled, mut slept) = (Rounds::default(), Rounds::default());
        while !slept.is_complete() {
            polled.add(self.round(hw, None)?);
            slept.add(self.round(hw, Some(interrupts))?);
        }
        Ok(slept.cost_beside(&polled))
    }
}
