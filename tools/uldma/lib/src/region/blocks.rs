// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bus addresses of a region, for debugging a device.

use std::os::fd::AsFd;

use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::region::entry::Entry;
use crate::region::info::RegionInfo;
use crate::sys;
use crate::sys::uapi;

/// Blocks that one system call returns at most.
const AT_ONCE: usize = 256;

/// Memory that is consecutive for the device; whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Bus address of the first byte.
    pub address: u64,
    /// Bytes.
    pub length: u64,
}

/// Iterates over the blocks of a region, see [`crate::Region::blocks`].
///
/// The iterator ends after the first error.
#[derive(Debug)]
pub struct Blocks<'region> {
    region: &'region Entry,
    flags: u32,
    cursor: Cursor,
    fetched: std::vec::IntoIter<Block>,
}

impl<'region> Blocks<'region> {
    /// Runs of adjacent pages.
    pub(crate) fn merged(region: &'region Entry) -> Result<Self> {
        Self::new(region, 0)
    }

    /// Lists one block for each page.
    pub(crate) fn pages(region: &'region Entry) -> Result<Self> {
        Self::new(region, uapi::ULDMA_BLOCKS_PAGES)
    }

    fn new(region: &'region Entry, flags: u32) -> Result<Self> {
        let mut blocks = Self {
            region,
            flags,
            cursor: Cursor::new(RegionInfo::query(region)?.pages),
            fetched: Vec::new().into_iter(),
        };
        // Reports a missing capability here, and not with the first item.
        blocks.fetch()?;
        Ok(blocks)
    }

    fn fetch(&mut self) -> Result<()> {
        let Some(first_page) = self.cursor.next else {
            return Ok(());
        };
        let argument = uapi::uldma_region_blocks {
            flags: self.flags,
            handle: self.region.handle,
            first_page,
            ..Default::default()
        };
        let mut raw = [uapi::uldma_block::default(); AT_ONCE];
        let answer = sys::region_blocks(self.region.device.as_fd(), argument, &mut raw);
        let answer = answer.inspect_err(|_| self.cursor.next = None);
        let answer = answer.map_err(failed)?;
        self.cursor.advance(answer.out_next_page);
        let blocks: Vec<Block> = raw
            .iter()
            .take(answer.out_count as usize)
            .map(|block| Block {
                address: block.address,
                length: block.length,
            })
            .collect();
        self.fetched = blocks.into_iter();
        Ok(())
    }
}

impl Iterator for Blocks<'_> {
    type Item = Result<Block>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(block) = self.fetched.next() {
                return Some(Ok(block));
            }
            self.cursor.next?;
            if let Err(error) = self.fetch() {
                return Some(Err(error));
            }
        }
    }
}

/// Position in a region's list of blocks.
#[derive(Debug, PartialEq, Eq)]
struct Cursor {
    /// First page that has not been queried; none at the end.
    next: Option<u64>,
    pages: u64,
}

impl Cursor {
    fn new(pages: u64) -> Self {
        let next = (pages > 0).then_some(0);
        Self { next, pages }
    }

    /// Continues at `page`. Ends if that is no progress, so that the iteration is finite in any
    /// case.
    fn advance(&mut self, page: u64) {
        self.next = self
            .next
            .and_then(|before| (page > before && page < self.pages).then_some(page));
    }
}

fn failed(errno: Errno) -> Error {
    match errno {
        Errno::EPERM => Error::System {
            action: "query bus addresses".to_owned(),
            errno,
            hint: Some("bus addresses need CAP_SYS_ADMIN: run as root".to_owned()),
        },
        errno => Error::system("query bus addresses", errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cursor_goes_on_until_the_last_page() {
        let mut cursor = Cursor::new(1000);
        assert_eq!(cursor.next, Some(0));
        cursor.advance(256);
        assert_eq!(cursor.next, Some(256));
        cursor.advance(1000);
        assert_eq!(cursor.next, None);
        cursor.advance(300);
        assert_eq!(cursor.next, None);
    }

    #[test]
    fn an_answer_that_stands_still_ends_it() {
        let mut cursor = Cursor::new(10);
        cursor.advance(0);
        assert_eq!(cursor.next, None);
        assert_eq!(Cursor::new(0).next, None);
    }
}
