// SPDX-License-Identifier: MIT OR Apache-2.0

//! Register contexts: transfers that a process starts without the kernel.

use std::cell::Cell;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::mman::ProtFlags;

use crate::mmio;
use crate::region::Registered;
use crate::shadow::{Place, Shadow};
use crate::size_word::{self, Side, MAX_TRANSFER};
use crate::status::StatusPage;
use crate::sys::{self, Mapping};
use crate::{uapi, Completion, Device, Error, Refusal, Result, Spin};

/// A transfer that was started by this context; greater for later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// The number that the device gave.
    pub fn get(self) -> u64 {
        self.0
    }
}

/// The register context of an opener.
///
/// It can be sent to another thread but not shared: the store and the load of an initiation are
/// two steps, and nobody must come in between. For transfers from several threads, open the
/// device once for each.
#[derive(Debug)]
pub struct Context {
    status: StatusPage,
    number: u32,
    max_transfer: u64,
    device: Device,
    not_sync: PhantomData<Cell<()>>,
}

impl Device {
    /// Takes a register context for extended shadow addressing; an opener can have one.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EBUSY when this opener has one or all are taken; transfers through the
    /// kernel ([`Device::dma`]) work without.
    pub fn context(&self) -> Result<Context> {
        let max_transfer = self.query()?.max_transfer.min(MAX_TRANSFER);
        let argument = uapi::uldma_context_create {
            method: uapi::ULDMA_METHOD_EXTENDED_SHADOW,
            ..Default::default()
        };
        let answer = sys::context_create(self.as_fd(), argument)
            .map_err(|errno| Error::system("create a register context", errno))?;
        let length = u64::from(answer.out_page_length);
        let mapped = Mapping::shared(
            self.as_fd(),
            answer.out_status_offset,
            length,
            ProtFlags::PROT_READ,
        )
        .map_err(|errno| Error::system("map the status page", errno))
        .and_then(StatusPage::new);
        match mapped {
            Ok(status) => Ok(Context {
                status,
                number: answer.out_context,
                max_transfer,
                device: self.clone(),
                not_sync: PhantomData,
            }),
            Err(error) => {
                let _ = sys::context_destroy(self.as_fd(), sys::handle(0));
                Err(error)
            }
        }
    }
}

impl Context {
    /// The context's number at the device.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Bytes that one initiation can move.
    pub fn max_transfer(&self) -> u64 {
        self.max_transfer
    }

    /// Maps the shadow pages of a region or an import of the same opener.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the kernel refuses the mapping.
    pub fn shadow<'region>(&self, region: &'region impl Registered) -> Result<Shadow<'region>> {
        Shadow::new(region)
    }

    /// Starts a transfer of `bytes` bytes: one store and one load, no system call.
    ///
    /// Returns before the bytes have moved; neither side may be touched until the transfer has
    /// ended ([`Context::wait`]).
    ///
    /// # Errors
    ///
    /// What the device answered. The sizes and rights that cannot be said in an initiation are
    /// refused here: [`Refusal::BadSize`], [`Refusal::NoRight`].
    #[inline]
    pub fn initiate(
        &self,
        source: Place<'_>,
        destination: Place<'_>,
        bytes: u64,
    ) -> std::result::Result<Ticket, Refusal> {
        if !source.access.reads() || !destination.access.writes() {
            return Err(Refusal::NoRight);
        }
        let side = |place: Place<'_>| Side {
            low: place.address.low(),
            region: place.index,
        };
        let word = size_word::encode(bytes, side(source), side(destination));
        let word = word.ok_or(Refusal::BadSize)?;
        match mmio::initiate(destination.address, source.address, word) {
            ticket @ 1.. => Ok(Ticket(ticket as u64)),
            refusal => Err(Refusal::from_answer(refusal)),
        }
    }

    /// How the transfer ended; none while it has not.
    ///
    /// # Errors
    ///
    /// [`Error::RecordLost`] when 64 later transfers have ended since.
    #[inline]
    pub fn ended(&self, ticket: Ticket) -> Result<Option<Completion>> {
        self.status.ended(ticket)
    }

    /// Waits until the transfer has ended: looks at the status page for a moment (`spin`), then
    /// sleeps in poll().
    ///
    /// # Errors
    ///
    /// [`Error::Transfer`] when it failed, [`Error::Timeout`], [`Error::RecordLost`].
    pub fn wait(&self, ticket: Ticket, spin: Spin, timeout: Duration) -> Result<Completion> {
        if let Some(ended) = spin.until(|| self.ended(ticket).transpose()) {
            return ended?.check();
        }
        let deadline = Instant::now() + timeout;
        loop {
            let seen = self.device.events().snapshot().completions;
            if let Some(completion) = self.ended(ticket)? {
                return completion.check();
            }
            let woken = self
                .device
                .events()
                .wait(self.device.as_fd(), deadline, |now| now.completions != seen)?;
            if !woken && self.ended(ticket)?.is_none() {
                let what = format!("end of transfer {}", ticket.get());
                return Err(Error::Timeout {
                    what,
                    after: timeout,
                });
            }
        }
    }

    /// The device's counters of this context: loads, stores, initiations.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device is gone.
    pub fn stats(&self) -> Result<ContextStats> {
        let raw = sys::context_stats(self.device.as_fd(), Default::default())
            .map_err(|errno| Error::system("read the context's counters", errno))?;
        Ok(ContextStats {
            shadow_stores: raw.out_shadow_stores,
            shadow_loads: raw.out_shadow_loads,
            page_stores: raw.out_page_stores,
            page_loads: raw.out_page_loads,
            initiations: raw.out_initiations,
            refused: raw.out_refused,
            completed: raw.out_completed,
            bytes: raw.out_bytes,
        })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // It can only fail when the device has gone.
        let _ = sys::context_destroy(self.device.as_fd(), sys::handle(0));
    }
}

/// The device's counters of one context, since it was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContextStats {
    /// Stores to shadow pages.
    pub shadow_stores: u64,
    /// Loads from shadow pages.
    pub shadow_loads: u64,
    /// Stores to the context page.
    pub page_stores: u64,
    /// Loads from the context page.
    pub page_loads: u64,
    /// Transfers started.
    pub initiations: u64,
    /// Initiations refused.
    pub refused: u64,
    /// Transfers ended.
    pub completed: u64,
    /// Bytes moved.
    pub bytes: u64,
}

impl ContextStats {
    /// All loads from the device that the context's owner made.
    pub fn loads(&self) -> u64 {
        self.shadow_loads + self.page_loads
    }

    /// All stores to the device that the context's owner made.
    pub fn stores(&self) -> u64 {
        self.shadow_stores + self.page_stores
    }

    /// What was counted since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            shadow_stores: self.shadow_stores.wrapping_sub(before.shadow_stores),
            shadow_loads: self.shadow_loads.wrapping_sub(before.shadow_loads),
            page_stores: self.page_stores.wrapping_sub(before.page_stores),
            page_loads: self.page_loads.wrapping_sub(before.page_loads),
            initiations: self.initiations.wrapping_sub(before.initiations),
            refused: self.refused.wrapping_sub(before.refused),
            completed: self.completed.wrapping_sub(before.completed),
            bytes: self.bytes.wrapping_sub(before.bytes),
        }
    }
}
