// SPDX-License-Identifier: GPL-2.0

//! The pages of a pinned range, for the kernel to read and write.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use crate::kernel_ext::page_list::PageList;

use super::{
    pinned_range::PinnedRange,
    range::PageRange,
    space::Space, //
};

impl Space {
    /// Returns references to the pages of `length` bytes from byte `offset` of the first page of
    /// `pinned` on.
    ///
    /// # Errors
    ///
    /// `EINVAL` if some of them are not in the range, `ENOMEM`.
    pub(crate) fn page_list(
        &self,
        pinned: &PinnedRange,
        offset: usize,
        length: usize,
    ) -> Result<PageList> {
        let end = offset.checked_add(length).ok_or(EINVAL)?;
        let start = pinned.range().start;
        let wanted = PageRange {
            start: start.checked_add(offset / PAGE_SIZE).ok_or(EINVAL)?,
            end: start.checked_add(end.div_ceil(PAGE_SIZE)).ok_or(EINVAL)?,
        };
        let state = self.state.lock();
        let record = state.records.get(&pinned.number()).ok_or(EINVAL)?;
        let areas = record.parts.iter();
        let areas = areas.flat_map(|part| state.map.areas(part.pin_id, part.range));
        let parts = areas.filter_map(|area| {
            let common = area.range.intersection(&wanted)?;
            let first = common.start - area.range.start;
            Some((area.payload.memory.pages(), first..first + common.len()))
        });
        PageList::new(offset % PAGE_SIZE, length, parts)
    }
}
