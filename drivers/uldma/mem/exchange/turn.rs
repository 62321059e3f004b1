// SPDX-License-Identifier: GPL-2.0

//! The turn of a call that changes pages of exchangeable memory, and the changes.

use kernel::prelude::*;

use crate::{
    hw::Hw,
    kernel_ext::mapping::SharedMapping,
    mem::tpt::{
        NewPages,
        Tpt, //
    }, //
};

use super::{
    pages::Ended,
    Exchange,
    Memory,
    Part, //
};

/// The turn at parts of memories: no other call changes these memories, and none of them ends.
pub(crate) struct Turn<'a, const N: usize> {
    exchange: &'a Exchange,
    parts: [Part; N],
}

impl<'a, const N: usize> Turn<'a, N> {
    /// Creates the turn of a caller that has taken the memories of `parts`.
    pub(super) fn new(exchange: &'a Exchange, parts: [Part; N]) -> Self {
        Self { exchange, parts }
    }
}

impl<const N: usize> Drop for Turn<'_, N> {
    fn drop(&mut self) {
        self.exchange.end_turn(&self.parts);
    }
}

impl Turn<'_, 1> {
    /// Begins a send: writes to the pages go to copies from now on, until [`Turn::release`].
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory; `EBUSY` if the device still uses the original of
    /// one, or one is sent too often; `EPERM` if `RLIMIT_MEMLOCK` is 0; `ENOMEM` beyond
    /// `RLIMIT_MEMLOCK`, which has to have room for a copy of each page.
    pub(crate) fn protect(&self, mapping: &SharedMapping) -> Result {
        let [part] = &self.parts;
        self.exchange.with(part, |memory| {
            let count = memory.pages.check_send(part.pages.clone())?;
            memory.copies.grow(count)?;
            memory.pages.send(part.pages.clone())?;
            // Later faults find the change.
            memory.zap(mapping, part.pages.clone());
            Ok(())
        })
    }

    /// Ends a send: the pages are writable from now on, and where there is a copy, the device uses
    /// it, and the original is freed. `new` has room for the copies that there were.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there are more copies by now, and nothing has changed; `EINVAL` for pages outside of the
    /// memory, or that are not sent; `EREMOTEIO` if the device cannot access a copy; `ETIMEDOUT` if it does
    /// not answer.
    pub(crate) fn release(
        &self,
        new: NewPages,
        (hw, tpt, mapping): (Hw<'_>, &Tpt, &SharedMapping),
    ) -> Result<Ended> {
        let [part] = &self.parts;
        let count = self
            .exchange
            .with(part, |memory| memory.pages.begin_end(part.pages.clone()))?;
        // Without the lock, since this waits for the device.
        let result = match count {
            0 => Ok(()),
            _ if count > new.room() => Err(EAGAIN),
            _ => self
                .add_copies(new)
                .and_then(|copies| tpt.replace_pages(hw, part.memory, copies)),
        };
        self.exchange.with(part, |memory| {
            if let Err(err) = result {
                memory.pages.cancel_end(part.pages.clone());
                memory.zap(mapping, part.pages.clone());
                return Err(err);
            }
            let ended = memory.pages.end(part.pages.clone())?;
            drop(memory.copies.split(ended.pages));
            Ok(ended)
        })
    }

    /// Adds the copies of pages whose send is to end to `copies`.
    fn add_copies(&self, mut copies: NewPages) -> Result<NewPages> {
        let [part] = &self.parts;
        self.exchange.with(part, |memory| {
            memory.pages.copies(part.pages.clone(), |number, page| {
                copies.add(u32::try_from(number)?, page.clone())
            })
        })?;
        Ok(copies)
    }
}

impl Turn<'_, 2> {
    /// Exchanges the pages of two parts, for the program and for the device, which does not use a
    /// page at its former place any more when this returns.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of a memory, and for parts that overlap or differ in length;
    /// `EBUSY` if a page is being sent; `ETIMEDOUT` if the device does not answer.
    pub(crate) fn swap(&self, (hw, tpt, mapping): (Hw<'_>, &Tpt, &SharedMapping)) -> Result {
        let [one, other] = &self.parts;
        if one.pages.len() != other.pages.len() || one.overlaps(other) {
            return Err(EINVAL);
        }
        for part in [one, other] {
            let check = |memory: &mut Memory| memory.pages.check_mapped(part.pages.clone());
            self.exchange.with(part, check)?;
        }
        // Without the lock, since this waits for the device. The program writes to its page until
        // that is replaced, as if it had written before this call.
        tpt.swap_pages(hw, one.entries()?, other.entries()?)?;
        let mut memories = self.exchange.memories.lock();
        for (number, place) in one.pages.clone().zip(other.pages.clone()) {
            let page = one.of(&mut memories)?.pages.page(number)?;
            let page = other.of(&mut memories)?.pages.replace(place, page)?;
            one.of(&mut memories)?.pages.replace(number, page)?;
        }
        for part in [one, other] {
            part.of(&mut memories)?.zap(mapping, part.pages.clone());
        }
        Ok(())
    }
}
