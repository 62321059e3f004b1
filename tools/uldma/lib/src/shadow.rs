// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shadow pages: the registers that stand for the bytes of a region.

use std::marker::PhantomData;
use std::os::fd::AsFd;

use nix::sys::mman::ProtFlags;

use crate::mmio::ShadowAddress;
use crate::region::Registered;
use crate::sys::Mapping;
use crate::{Access, Error, Result};

/// The mapped shadow pages of a region or an import.
#[derive(Debug)]
pub struct Shadow<'region> {
    mapping: Mapping,
    first: u64,
    length: u64,
    index: u32,
    access: Access,
    region: PhantomData<&'region ()>,
}

impl<'region> Shadow<'region> {
    pub(crate) fn new(region: &'region impl Registered) -> Result<Self> {
        let entry = region.entry();
        let mut prot = ProtFlags::empty();
        // A source's register is loaded from, a destination's is stored to.
        prot.set(ProtFlags::PROT_READ, entry.access.reads());
        prot.set(ProtFlags::PROT_WRITE, entry.access.writes());
        let action = || format!("map {} bytes of shadow pages", entry.shadow_length);
        let mapping = Mapping::shared(
            entry.device.as_fd(),
            entry.shadow_offset,
            entry.shadow_length,
            prot,
        )
        .map_err(|errno| Error::system(action(), errno))?;
        Ok(Self {
            mapping,
            first: entry.first,
            length: entry.length,
            index: entry.index,
            access: entry.access,
            region: PhantomData,
        })
    }

    /// The place `offset` bytes from the region's start.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the region has no such byte.
    #[inline]
    pub fn at(&self, offset: u64) -> Result<Place<'_>> {
        let address = (offset < self.length)
            .then(|| usize::try_from(self.first + offset).ok())
            .flatten()
            .and_then(|offset| ShadowAddress::new(&self.mapping, offset))
            .ok_or(Error::Range {
                offset,
                length: 1,
                size: self.length,
            })?;
        Ok(Place {
            address,
            index: self.index,
            access: self.access,
        })
    }

    /// Bytes of the region.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// A byte of a region, as the start of one side of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Place<'shadow> {
    pub(crate) address: ShadowAddress<'shadow>,
    pub(crate) index: u32,
    pub(crate) access: Access,
}
