// SPDX-License-Identifier: GPL-2.0

//! The pages of a memory and their states.
//!
//! | state | sends | copied | the program | the device |
//! | --- | --- | --- | --- | --- |
//! | *mapped* | 0 | no | reads and writes | the same page |
//! | *sending* | 1 or more | no | reads | the same page |
//! | *copied* | 1 or more | yes | reads and writes the copy | reads the original |
//!
//! The original of a page that is *copied* belongs to the table of the device, so only the copy is
//! here.

use core::ops::Range;

use kernel::prelude::*;

/// One page.
pub(super) struct PageState<P> {
    /// The page that the program maps.
    page: P,
    /// Sends that have not ended.
    sends: u16,
    /// True if `page` is a copy of the one that the device uses.
    copied: bool,
    /// True while the last send ends.
    ending: bool,
}

impl<P> PageState<P> {
    /// Returns the page that the program maps.
    pub(super) fn page(&self) -> &P {
        &self.page
    }

    /// Returns true if the program may write to the page.
    pub(super) fn is_writable(&self) -> bool {
        self.sends == 0 || self.copied || self.ending
    }

    /// Prepares a write to the page, which becomes what `copy` returns if it is being sent. Returns
    /// true then.
    pub(super) fn replace(&mut self, copy: impl FnOnce(&P) -> P) -> bool {
        if self.is_writable() {
            return false;
        }
        self.page = copy(&self.page);
        self.copied = true;
        true
    }
}

/// What the end of a send has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Pages that are not sent any more.
    pub(crate) pages: usize,
    /// Of these, the pages that were copied.
    pub(crate) copied: usize,
}

/// The pages of a memory.
pub(super) struct Pages<P>(KVVec<PageState<P>>);

impl<P> Pages<P> {
    /// Creates a list with room for `count` pages.
    pub(super) fn with_capacity(count: usize) -> Result<Self> {
        Ok(Self(KVVec::with_capacity(count, GFP_KERNEL_ACCOUNT)?))
    }

    /// Adds a page.
    pub(super) fn push(&mut self, page: P) -> Result {
        let state = PageState {
            page,
            sends: 0,
            copied: false,
            ending: false,
        };
        Ok(self.0.push(state, GFP_KERNEL)?)
    }

    /// Returns page `number`.
    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut PageState<P>> {
        self.0.get_mut(number)
    }

    /// Returns a reference to page `number`.
    pub(super) fn page(&self, number: usize) -> Result<P>
    where
        P: Clone,
    {
        Ok(self.0.get(number).ok_or(EINVAL)?.page.clone())
    }

    fn part(&mut self, range: Range<usize>) -> Result<&mut [PageState<P>]> {
        self.0.get_mut(range).ok_or(EINVAL)
    }

    /// Checks that the program and the device use the same pages, and that both may change them.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory, `EBUSY` if one is being sent.
    pub(super) fn check_mapped(&mut self, range: Range<usize>) -> Result {
        if self.part(range)?.iter().any(|page| page.sends > 0) {
            return Err(EBUSY);
        }
        Ok(())
    }

    /// Replaces page `number`, and returns the former one.
    pub(super) fn replace(&mut self, number: usize, page: P) -> Result<P> {
        let place = self.0.get_mut(number).ok_or(EINVAL)?;
        Ok(core::mem::replace(&mut place.page, page))
    }

    /// Checks that pages can be sent. Returns the number of those that are not being sent.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory, `EBUSY` if one is copied, since the device still
    /// uses the original, or is sent too often.
    pub(super) fn check_send(&mut self, range: Range<usize>) -> Result<usize> {
        let part = self.part(range)?;
        if part
            .iter()
            .any(|page| page.copied || page.sends == u16::MAX)
        {
            return Err(EBUSY);
        }
        Ok(part.iter().filter(|page| page.sends == 0).count())
    }

    /// Begins a send, which was [checked](Self::check_send).
    pub(super) fn send(&mut self, range: Range<usize>) -> Result {
        self.part(range)?
            .iter_mut()
            .for_each(|page| page.sends += 1);
        Ok(())
    }

    /// Begins to end a send: pages that are not sent any more are not copied from now on. Returns the
    /// number of those that were copied, which [`Pages::copies`] passes on.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory, or one that is not sent. Nothing has changed then.
    pub(super) fn begin_end(&mut self, range: Range<usize>) -> Result<usize> {
        let part = self.part(range)?;
        if part.iter().any(|page| page.sends == 0) {
            return Err(EINVAL);
        }
        let last = part.iter_mut().filter(|page| page.sends == 1);
        last.for_each(|page| page.ending = true);
        Ok(part
            .iter()
            .filter(|page| page.ending && page.copied)
            .count())
    }

    /// Returns how many pages are copied.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory.
    pub(super) fn copied(&mut self, range: Range<usize>) -> Result<usize> {
        Ok(self.part(range)?.iter().filter(|page| page.copied).count())
    }

    /// Passes the copies that are not sent any more to `each`, between the two steps of an end.
    ///
    /// # Errors
    ///
    /// `EINVAL` for pages outside of the memory; the errors of `each`.
    pub(super) fn copies(
        &mut self,
        range: Range<usize>,
        mut each: impl FnMut(usize, &P) -> Result,
    ) -> Result {
        let first = range.start;
        for (number, page) in self.part(range)?.iter().enumerate() {
            if page.ending && page.copied {
                each(first + number, &page.page)?;
            }
        }
        Ok(())
    }

    /// Undoes [`Pages::begin_end`]. The pages may have become writable meanwhile.
    pub(super) fn cancel_end(&mut self, range: Range<usize>) {
        if let Ok(part) = self.part(range) {
            part.iter_mut().for_each(|page| page.ending = false);
        }
    }

    /// Ends a send that [was to end](Self::begin_end). The device uses all copies from now on.
    pub(super) fn end(&mut self, range: Range<usize>) -> Result<Ended> {
        let mut ended = Ended::default();
        for page in self.part(range)? {
            page.sends = page.sends.saturating_sub(1);
            if core::mem::take(&mut page.ending) {
                ended.pages += 1;
                ended.copied += usize::from(core::mem::take(&mut page.copied));
            }
        }
        Ok(ended)
    }
}

#[kunit_tests(uldma_exchange)]
mod tests {
    use super::*;

    /// Pages with the numbers 0, 10, 20, ...
    fn pages(count: usize) -> Result<Pages<usize>> {
        let mut pages = Pages::with_capacity(count)?;
        for number in 0..count {
            pages.push(10 * number)?;
        }
        Ok(pages)
    }

    /// Writes to a page; a copy is one more. Returns the page.
    fn write(pages: &mut Pages<usize>, number: usize) -> Result<usize> {
        let page = pages.get_mut(number).ok_or(EINVAL)?;
        page.replace(|from| from + 1);
        Ok(*page.page())
    }

    /// Ends a send. Returns the copies, and what has ended.
    fn end(pages: &mut Pages<usize>, range: Range<usize>) -> Result<(KVec<usize>, Ended)> {
        let mut copies = KVec::new();
        let count = pages.begin_end(range.clone())?;
        pages.copies(range.clone(), |_, page| Ok(copies.push(*page, GFP_KERNEL)?))?;
        assert_eq!(copies.len(), count);
        Ok((copies, pages.end(range)?))
    }

    #[test]
    fn a_page_that_is_written_while_it_is_sent_is_copied_once() -> Result {
        let mut pages = pages(3)?;
        assert_eq!(write(&mut pages, 0), Ok(0));
        assert_eq!(pages.check_send(0..3), Ok(3));
        pages.send(0..3)?;
        assert!(!pages.get_mut(1).ok_or(EINVAL)?.is_writable());
        assert_eq!(write(&mut pages, 1), Ok(11));
        assert_eq!(write(&mut pages, 1), Ok(11));
        assert!(pages.get_mut(1).ok_or(EINVAL)?.is_writable());
        assert_eq!((pages.copied(0..3), pages.copied(2..3)), (Ok(1), Ok(0)));
        assert_eq!(pages.copied(0..4), Err(EINVAL));
        let (copies, ended) = end(&mut pages, 0..3)?;
        assert_eq!(copies.as_slice(), [11]);
        assert_eq!((ended.pages, ended.copied), (3, 1));
        assert_eq!(write(&mut pages, 0), Ok(0));
        assert_eq!(write(&mut pages, 1), Ok(11));
        Ok(())
    }

    #[test]
    fn a_page_is_writable_after_the_last_of_its_sends() -> Result {
        let mut pages = pages(2)?;
        pages.send(0..2)?;
        assert_eq!(pages.check_send(0..1), Ok(0));
        pages.send(0..1)?;
        assert_eq!(end(&mut pages, 0..2)?.1.pages, 1);
        assert_eq!(write(&mut pages, 1), Ok(10));
        assert_eq!(write(&mut pages, 0), Ok(1));
        assert_eq!(end(&mut pages, 0..1)?.0.as_slice(), [1]);
        assert_eq!(write(&mut pages, 0), Ok(1));
        Ok(())
    }

    #[test]
    fn a_copied_page_is_not_sent_before_its_original_was() -> Result {
        let mut pages = pages(2)?;
        pages.send(0..1)?;
        write(&mut pages, 0)?;
        assert_eq!(pages.check_send(0..2), Err(EBUSY));
        end(&mut pages, 0..1)?;
        assert_eq!(pages.check_send(0..2), Ok(2));
        Ok(())
    }

    #[test]
    fn an_end_that_fails_changes_nothing() -> Result {
        let mut pages = pages(2)?;
        pages.send(0..1)?;
        assert_eq!(end(&mut pages, 0..2).err(), Some(EINVAL));
        assert_eq!(end(&mut pages, 1..3).err(), Some(EINVAL));
        write(&mut pages, 0)?;
        assert_eq!(pages.begin_end(0..1), Ok(1));
        assert_eq!(pages.copies(0..1, |_, _| Err(ENOMEM)), Err(ENOMEM));
        pages.cancel_end(0..1);
        assert_eq!(pages.check_send(0..1), Err(EBUSY));
        pages.begin_end(0..1)?;
        pages.cancel_end(0..1);
        assert_eq!(pages.check_send(0..1), Err(EBUSY));
        assert_eq!(end(&mut pages, 0..1)?.1.copied, 1);
        Ok(())
    }

    #[test]
    fn a_page_that_is_sent_is_not_replaced() -> Result {
        let mut pages = pages(3)?;
        pages.send(1..2)?;
        assert_eq!(pages.check_mapped(0..1), Ok(()));
        assert_eq!(pages.check_mapped(0..3), Err(EBUSY));
        assert_eq!(pages.check_mapped(2..4), Err(EINVAL));
        end(&mut pages, 1..2)?;
        assert_eq!(pages.check_mapped(0..3), Ok(()));
        assert_eq!(pages.replace(1, 7), Ok(10));
        assert_eq!(write(&mut pages, 1), Ok(7));
        assert_eq!(pages.replace(3, 7), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn a_page_is_not_copied_while_its_last_send_ends() -> Result {
        let mut pages = pages(1)?;
        pages.send(0..1)?;
        assert_eq!(pages.begin_end(0..1), Ok(0));
        assert_eq!(write(&mut pages, 0), Ok(0));
        assert_eq!(pages.end(0..1)?.copied, 0);
        Ok(())
    }
}
