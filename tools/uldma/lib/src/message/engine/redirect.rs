// SPDX-License-Identifier: MIT OR Apache-2.0

//! `REDIRECT`: a message arrives in the memory that it is received into if the call comes first, and
//! in a slot otherwise.

use std::time::Duration;

use super::Engine;
use crate::error::Result;
use crate::message::receiving::Redirections;
use crate::method::refusal::Refusal;
use crate::region::entry::Access;
use crate::transfer::endpoint::Reception;
use crate::wait::deadline::Deadline;

/// Time by which a call may end late, if the device moves a message to its memory.
const GRACE: Duration = Duration::from_secs(1);

impl Engine {
    /// Waits for the next message of the device, and redirects it to `target` if it has not arrived
    /// before.
    pub(super) fn wait_redirected(
        &mut self,
        target: &mut [u8],
        deadline: Deadline,
    ) -> Result<Reception> {
        let number = self.receiver.next();
        let room = target.len().min(self.options.slot);
        let target = target.get_mut(..room).unwrap_or_default();
        let arrived = self.endpoint.ended(number)?;
        let is_short = target.len() < self.options.exchange_from.max(1);
        let mut own = false;
        let reception = match arrived {
            Some(reception) => reception,
            None if is_short => self.wait_reception(deadline)?,
            None => {
                let device = self.device.clone();
                let waited = device.with_registered(target, Access::Write, |region| {
                    own = self.receiver.redirect(&self.endpoint, region);
                    let waited = self.wait_reception(deadline);
                    if waited.is_ok() || !own || self.endpoint.withdraw(number) {
                        own &= waited.is_ok();
                        return waited;
                    }
                    // The device moves it already. If it does not end, it does so with the region.
                    self.wait_reception(Deadline::after(GRACE))
                });
                match waited {
                    Ok(Err(error)) if own => self.endpoint.ended(number)?.ok_or(error)?,
                    Ok(waited) => waited?,
                    // This memory cannot be pinned.
                    Err(_) => self.wait_reception(deadline)?,
                }
            }
        };
        if !reception.redirected {
            self.redirections.from_slots += 1;
            return Ok(reception);
        }
        if own {
            self.redirections.redirected += 1;
            return Ok(reception);
        }
        // It went to the memory of a call that has ended.
        Ok(Reception {
            failure: reception.failure.or(Some(Refusal::Aborted)),
            ..reception
        })
    }

    /// Returns how messages have been received so far.
    pub(crate) fn redirections(&self) -> Redirections {
        self.redirections
    }
}
