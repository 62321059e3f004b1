// SPDX-License-Identifier: MIT OR Apache-2.0

//! Shadow pages: the registers that stand for the bytes of a region.

use std::marker::PhantomData;
use std::os::fd::AsFd;

use nix::sys::mman::ProtFlags;

use crate::error::{Error, Result};
use crate::mmio::RegisterAddress;
use crate::region::entry::{Access, Entry};
use crate::region::Registered;
use crate::sys::Mapping;

/// The mapped shadow pages of a region or an import; where the method needs none, only the region.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use uldma::{Access, Buffer, Device};
///
/// let device = Device::open(0)?;
/// let region = device.register(Buffer::new(8192)?, Access::ReadWrite)?;
/// let context = device.context()?;
/// let shadow = context.shadow(&region)?;
/// // An access of the second page's shadow names that page, and no other process can make it.
/// let (from, to) = (shadow.at(4096)?, shadow.at(0)?);
/// let ticket = context.initiate(from, to, 4096)?;
/// # let _ = ticket;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Shadow<'region> {
    mapping: Option<Mapping>,
    first: u64,
    length: u64,
    index: u32,
    handle: u32,
    access: Access,
    region: PhantomData<&'region ()>,
}

impl<'region> Shadow<'region> {
    /// Names the region, and maps its shadow pages if that is `needed`.
    pub(crate) fn new(region: &'region impl Registered, needed: bool) -> Result<Self> {
        let entry = region.entry();
        Ok(Self {
            mapping: needed.then(|| map(entry)).transpose()?,
            first: entry.first,
            length: entry.length,
            index: entry.index,
            handle: entry.handle,
            access: entry.access,
            region: PhantomData,
        })
    }

    /// Returns the shadow address of the byte at `offset` in the region.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the region has no such byte.
    #[inline]
    pub fn at(&self, offset: u64) -> Result<ShadowAddress<'_>> {
        let register = |mapping| {
            let place = usize::try_from(self.first + offset).ok();
            place.and_then(|place| RegisterAddress::new(mapping, place))
        };
        let address = self.mapping.as_ref().map(register);
        if offset >= self.length || address.is_some_and(|address| address.is_none()) {
            return Err(Error::Range {
                offset,
                length: 1,
                size: self.length,
            });
        }
        Ok(ShadowAddress {
            address: address.flatten(),
            offset,
            index: self.index,
            handle: self.handle,
            access: self.access,
        })
    }

    /// Bytes of the region.
    pub fn length(&self) -> u64 {
        self.length
    }
}

/// Maps the shadow pages of a region, with the region's rights.
fn map(entry: &Entry) -> Result<Mapping> {
    let mut prot = ProtFlags::empty();
    // A source's register is loaded from, a destination's is stored to.
    prot.set(ProtFlags::PROT_READ, entry.access.reads());
    prot.set(ProtFlags::PROT_WRITE, entry.access.writes());
    Mapping::shared(
        entry.device.as_fd(),
        entry.shadow_offset,
        entry.shadow_length,
        prot,
    )
    .map_err(|errno| {
        let action = format!("map {} bytes of shadow pages", entry.shadow_length);
        Error::system(action, errno)
    })
}

/// The shadow address of a byte of a region: the start of one side of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct ShadowAddress<'shadow> {
    /// The register of the byte, where the method needs one.
    pub(crate) address: Option<RegisterAddress<'shadow>>,
    /// From the region's start.
    pub(crate) offset: u64,
    pub(crate) index: u32,
    pub(crate) handle: u32,
    pub(crate) access: Access,
}
