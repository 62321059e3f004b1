// SPDX-License-Identifier: GPL-2.0

//! The status page of a context, `struct uldma_status_page`, which the device writes.

use core::mem::offset_of;

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::DmaAddress,
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::{
    kernel_ext::{
        compat::smp_rmb,
        dma::SharedPage,
        window::full_fence, //
    },
    uapi, //
};

type Layout = uapi::uldma_status_page;
type Record = uapi::uldma_completion;

const _: () = assert!(size_of::<Layout>() <= PAGE_SIZE);

/// The outcome of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    pub(crate) bytes: u64,
    pub(crate) status: u32,
}

impl Outcome {
    /// Fails with `EIO` unless the transfer succeeded.
    pub(crate) fn check(self) -> Result {
        match self.status {
            uapi::ULDMA_DMA_OK => Ok(()),
            _ => Err(EIO),
        }
    }
}

/// A status page, for the kernel.
pub(crate) struct StatusPage {
    page: SharedPage,
}

impl StatusPage {
    /// Allocates a zeroed page.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            page: SharedPage::new()?,
        })
    }

    /// Maps the page for the device.
    pub(crate) fn map(&self, dev: &Device<Bound>) -> Result<DmaAddress> {
        self.page.map(dev)
    }

    /// Frame number of the page.
    pub(crate) fn pfn(&self) -> usize {
        self.page.pfn()
    }

    /// Returns the highest completed ticket.
    pub(crate) fn completed(&self) -> u64 {
        let completed = self.page.read_u64(offset_of!(Layout, completed));
        // The device writes records before the ticket, so the records are read after it.
        smp_rmb();
        completed.unwrap_or(0)
    }

    /// Returns the number of completed tickets that failed.
    pub(crate) fn failed(&self) -> u64 {
        let failed = self.page.read_u64(offset_of!(Layout, failed));
        failed.unwrap_or(0)
    }

    /// Returns the number of bytes that a stream has received.
    pub(crate) fn received(&self) -> u64 {
        let received = self.page.read_u64(offset_of!(Layout, received));
        received.unwrap_or(0)
    }

    /// Returns true if a send of the stream has failed.
    pub(crate) fn is_torn(&self) -> bool {
        let torn = self.page.read_u64(offset_of!(Layout, torn));
        torn.is_ok_and(|torn| torn != 0)
    }

    /// Requests an interrupt when `count` messages, or bytes of a stream, were received. Receptions
    /// after this call either interrupt, or the caller finds them in [`StatusPage::completed`] or
    /// [`StatusPage::received`].
    pub(crate) fn notify_from(&self, count: u64) {
        // The offset is a constant, and in the page.
        let _ = self.page.write_u64(offset_of!(Layout, notify), count);
        full_fence();
    }

    /// Returns true if the device sleeps until it is woken.
    pub(crate) fn is_asleep(&self) -> bool {
        let wakeup = self.page.read_u64(offset_of!(Layout, wakeup));
        wakeup.is_ok_and(|wakeup| wakeup != 0)
    }

    /// Requests the process to wake the device. Must not be called while the device may write the
    /// page.
    pub(crate) fn ask_to_wake(&self) {
        // The offset is a constant, and in the page.
        let _ = self.page.write_u64(offset_of!(Layout, wakeup), 1);
    }

    /// Ends `ticket` as the device does.
    #[cfg(CONFIG_KUNIT)]
    pub(crate) fn end_as_device(&self, ticket: u64, outcome: Outcome) -> Result {
        let number = usize::try_from(ticket % u64::from(uapi::ULDMA_STATUS_RECORDS))?;
        let base = offset_of!(Layout, records) + number * size_of::<Record>();
        self.page
            .write_u64(base + offset_of!(Record, ticket), ticket)?;
        self.page
            .write_u64(base + offset_of!(Record, bytes), outcome.bytes)?;
        self.page
            .write_u64(base + offset_of!(Record, status), outcome.status.into())?;
        self.page.write_u64(offset_of!(Layout, completed), ticket)
    }

    /// Returns the flags of the record of `ticket`, which [`StatusPage::record`] has found.
    pub(crate) fn record_flags(&self, ticket: u64) -> Result<u32> {
        let number = usize::try_from(ticket % u64::from(uapi::ULDMA_STATUS_RECORDS))?;
        let base = offset_of!(Layout, records) + number * size_of::<Record>();
        // The flags follow the status in one u64, little-endian.
        let word = self.page.read_u64(base + offset_of!(Record, status))?;
        Ok(u32::try_from(word >> 32)?)
    }

    /// Returns the completion record of `ticket`, unless it was overwritten.
    pub(crate) fn record(&self, ticket: u64) -> Option<Outcome> {
        let number = usize::try_from(ticket % u64::from(uapi::ULDMA_STATUS_RECORDS)).ok()?;
        let base = offset_of!(Layout, records) + number * size_of::<Record>();
        let outcome = Outcome {
            bytes: self.page.read_u64(base + offset_of!(Record, bytes)).ok()?,
            // The status and the reserved field after it are one u64, little-endian.
            status: (self.page.read_u64(base + offset_of!(Record, status)).ok()? & 0xffff_ffff)
                .try_into()
                .ok()?,
        };
        smp_rmb();
        let found = self.page.read_u64(base + offset_of!(Record, ticket)).ok()?;
        (found == ticket).then_some(outcome)
    }
}
