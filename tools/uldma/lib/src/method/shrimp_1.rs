// SPDX-License-Identifier: MIT OR Apache-2.0

//! One load from a page that is mapped out (§2.4): the page names source and destination, and the
//! offset in it the size.
//!
//! The paper's access is an atomic exchange that carries the size as data. Guests' exchanges do not
//! reach an emulated device as one access, so here the size is in the address.

use crate::method::refusal::Refusal;
use crate::mmio::Register;

/// Granularity of sizes in bytes.
const STEP: u64 = 8;

/// Starts a transfer. Returns the ticket, or a negated status. `register` is that of [`place`].
#[inline]
pub(crate) fn initiate<R: Register>(register: R) -> i64 {
    register.begin();
    register.load()
}

/// Returns the offset of the load that moves the first `bytes` bytes of a page.
///
/// # Errors
///
/// [`Refusal::NotAligned`] for what no place stands for, [`Refusal::Bounds`] for more than a page.
#[inline]
pub(crate) fn place(bytes: u64, page_size: u64) -> Result<u64, Refusal> {
    if bytes == 0 {
        Err(Refusal::BadSize)
    } else if bytes > page_size {
        Err(Refusal::Bounds)
    } else if bytes % STEP != 0 {
        Err(Refusal::NotAligned)
    } else {
        Ok(bytes - STEP)
    }
}

/// A page of a region: its handle and the page's number.
pub(crate) type Page = (u32, u64);

/// The pages that this process has mapped out, by which the library refuses transfers that the
/// device would send to another destination.
#[derive(Debug, Default)]
pub(crate) struct MapOuts {
    /// Runs of pages: first source, first destination, number of pages. Later runs override earlier
    /// ones.
    runs: Vec<(Page, Page, u64)>,
}

impl MapOuts {
    /// Adds a run of pages; without a destination, removes their mapping.
    pub(crate) fn set(&mut self, source: Page, destination: Option<Page>, pages: u64) {
        // A new mapping replaces the old ones of the same pages.
        let (start, end) = (source.1, source.1.saturating_add(pages));
        let mut kept = Vec::with_capacity(self.runs.len() + 2);
        for &(from, to, count) in &self.runs {
            if from.0 != source.0 {
                kept.push((from, to, count));
                continue;
            }
            let before = start.saturating_sub(from.1).min(count);
            if before > 0 {
                kept.push((from, to, before));
            }
            let after = (from.1 + count).saturating_sub(end).min(count);
            if after > 0 {
                let skip = count - after;
                let further = |page: Page| (page.0, page.1 + skip);
                kept.push((further(from), further(to), after));
            }
        }
        kept.extend(destination.map(|to| (source, to, pages)));
        self.runs = kept;
    }

    /// Returns the page that a page is mapped out to.
    #[inline]
    pub(crate) fn get(&self, source: Page) -> Option<Page> {
        self.runs.iter().find_map(|&(from, to, pages)| {
            let further = source.1.checked_sub(from.1)?;
            (from.0 == source.0 && further < pages).then_some((to.0, to.1 + further))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mmio::fake::{Access, Bus};

    #[test]
    fn one_load_is_all() {
        let bus = Bus::new(|_| 5);
        assert_eq!(initiate(bus.at(0x38)), 5);
        assert_eq!(*bus.seen.borrow(), [Access::Begin, Access::Load(0x38)]);
    }

    #[test]
    fn the_place_is_the_size() {
        assert_eq!(place(8, 4096), Ok(0));
        assert_eq!(place(64, 4096), Ok(56));
        assert_eq!(place(4096, 4096), Ok(4088));
        assert_eq!(place(0, 4096), Err(Refusal::BadSize));
        assert_eq!(place(12, 4096), Err(Refusal::NotAligned));
        assert_eq!(place(4104, 4096), Err(Refusal::Bounds));
    }

    #[test]
    fn the_last_mapping_of_a_page_counts() {
        let mut maps = MapOuts::default();
        maps.set((1, 0), Some((2, 10)), 8);
        assert_eq!(maps.get((1, 7)), Some((2, 17)));
        assert_eq!(maps.get((1, 8)), None);
        assert_eq!(maps.get((3, 0)), None);
        maps.set((1, 2), Some((4, 0)), 3);
        let all: Vec<_> = (0..8).map(|page| maps.get((1, page))).collect();
        let two = |page| Some((2, page));
        let four = |page| Some((4, page));
        assert_eq!(
            all,
            [
                two(10),
                two(11),
                four(0),
                four(1),
                four(2),
                two(15),
                two(16),
                two(17)
            ]
        );
        maps.set((1, 0), None, 8);
        assert!((0..8).all(|page| maps.get((1, page)).is_none()));
        assert!(maps.runs.is_empty());
    }
}
