// SPDX-License-Identifier: GPL-2.0

//! Memory of message slots: pages of the driver that the device can access and no process maps.
//!
//! The table of the device has a reference to each page until an invalidation has ended. Calls that
//! copy have another one, and the charge is paid until both have ended.

use kernel::{
    mm::MmWithUser,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc,
    uaccess::UserPtr, //
};

use crate::{
    kernel_ext::dma::SharedPage,
    mem::{
        charge::Charge,
        lmm::space::Space,
        own_pages, //
    },
    uapi, //
};

/// Number and size of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotSizes {
    count: usize,
    /// Pages of one slot.
    pages: usize,
}

impl SlotSizes {
    /// Checks the sizes that a user asks for.
    ///
    /// # Errors
    ///
    /// `EINVAL` for no slots or more than there are places in a ring, and for slots that are empty,
    /// no multiple of a page, or larger than `ULDMA_MSG_MAX_SLOT`.
    pub(crate) fn new(count: u32, slot_bytes: u64) -> Result<Self> {
        let bytes = usize::try_from(slot_bytes).map_err(|_| EINVAL)?;
        if count == 0
            || count > uapi::ULDMA_STATUS_RECORDS
            || bytes == 0
            || bytes % PAGE_SIZE != 0
            || slot_bytes > uapi::ULDMA_MSG_MAX_SLOT.into()
        {
            return Err(EINVAL);
        }
        Ok(Self {
            count: usize::try_from(count)?,
            pages: bytes / PAGE_SIZE,
        })
    }

    /// Returns the number of slots.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes of one slot.
    pub(crate) fn slot_bytes(&self) -> usize {
        self.pages * PAGE_SIZE
    }

    /// Returns the pages of all slots: not more than 2^14.
    pub(crate) fn pages(&self) -> usize {
        self.count * self.pages
    }

    /// Returns the first page of slot `number`.
    fn first_page(&self, number: usize) -> usize {
        number * self.pages
    }
}

/// The memory of slots.
pub(crate) struct SlotMemory {
    sizes: SlotSizes,
    pages: KVVec<Arc<SharedPage>>,
    /// Paid for as long as a call may copy.
    _charge: Arc<Charge>,
}

impl SlotMemory {
    /// Allocates zeroed slots. Returns them, and what [`own_pages::allocate`] does.
    ///
    /// # Errors
    ///
    /// Those of [`own_pages::allocate`].
    pub(crate) fn allocate(
        owner: (&Space, &MmWithUser),
        sizes: SlotSizes,
    ) -> Result<(Self, KVVec<Arc<SharedPage>>, Arc<Charge>)> {
        let count = sizes.pages();
        let mut pages = KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?;
        let keep = |page| Ok(pages.push(page, GFP_KERNEL_ACCOUNT)?);
        let (entered, charge) = own_pages::allocate(owner, count, keep)?;
        let memory = Self {
            sizes,
            pages,
            _charge: charge.clone(),
        };
        Ok((memory, entered, charge))
    }

    /// Returns number and size of the slots.
    pub(crate) fn sizes(&self) -> SlotSizes {
        self.sizes
    }

    /// Copies `length` bytes of the current process to slot `number`.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more bytes than a slot has, `EFAULT` for memory that cannot be read; some bytes
    /// may have been copied then.
    pub(crate) fn fill(&self, number: usize, from: UserPtr, length: usize) -> Result {
        self.for_each_part(number, length, |page, done, bytes| {
            page.copy_from_user(0, from.wrapping_byte_add(done), bytes)
        })
    }

    /// Copies the first `length` bytes of slot `number` to the current process.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more bytes than a slot has, `EFAULT` for memory that cannot be written; some
    /// bytes may have been copied then.
    pub(crate) fn drain(&self, number: usize, to: UserPtr, length: usize) -> Result {
        self.for_each_part(number, length, |page, done, bytes| {
            page.copy_to_user(0, to.wrapping_byte_add(done), bytes)
        })
    }

    /// Passes the pages of the first `length` bytes of slot `number` to `copy`, with the bytes that
    /// come before, and those of the page.
    fn for_each_part(
        &self,
        number: usize,
        length: usize,
        mut copy: impl FnMut(&SharedPage, usize, usize) -> Result,
    ) -> Result {
        if length > self.sizes.slot_bytes() {
            return Err(EINVAL);
        }
        let first = self.sizes.first_page(number);
        let pages = self.pages.get(first..).ok_or(EINVAL)?;
        for (page, done) in pages.iter().zip((0..length).step_by(PAGE_SIZE)) {
            copy(page, done, PAGE_SIZE.min(length - done))?;
        }
        Ok(())
    }
}

#[kunit_tests(uldma_slots)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_fit_no_ring_are_refused() {
        let page = PAGE_SIZE as u64;
        let refused = |count, bytes| SlotSizes::new(count, bytes) == Err(EINVAL);
        assert!(refused(0, page) && refused(65, page) && refused(u32::MAX, page));
        assert!(refused(1, 0) && refused(1, page - 1) && refused(1, page + 1));
        assert!(refused(1, (1 << 20) + page) && refused(1, u64::MAX - page + 1));
        let most = SlotSizes::new(64, 1 << 20);
        assert_eq!(most.map(|sizes| sizes.pages() * PAGE_SIZE), Ok(64 << 20));
        let sizes = SlotSizes::new(3, 2 * page);
        assert_eq!(sizes.map(|sizes| sizes.first_page(2)), Ok(4));
        assert_eq!(sizes.map(|sizes| sizes.slot_bytes()), Ok(2 * PAGE_SIZE));
    }
}
