// SPDX-License-Identifier: GPL-2.0

//! Lists of segments in host memory, by which the device finds memory that is no region.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    dma::{
        Coherent,
        DmaAddress, //
    },
    prelude::*,
    transmute::{
        AsBytes,
        FromBytes, //
    }, //
};

use crate::kernel_ext::compat::{
    dma_address,
    dma_write, //
};

use super::layout::{
    Segment,
    MAX_SEGMENTS, //
};

// SAFETY: Integers without padding, as the size assertion in `layout` shows.
unsafe impl AsBytes for Segment {}
// SAFETY: Any bits are integers.
unsafe impl FromBytes for Segment {}

/// A number of lists. It has to be dropped before the device is unbound.
pub(crate) struct Lists {
    memory: Coherent<[Segment]>,
    /// Segments that each list has room for.
    each: usize,
}

impl Lists {
    /// Creates `count` lists, each with room for `each` segments.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more segments than a list can have, `ENOMEM`.
    pub(crate) fn new(dev: &Device<Bound>, count: usize, each: u32) -> Result<Self> {
        if each > MAX_SEGMENTS {
            return Err(EINVAL);
        }
        let each = usize::try_from(each)?;
        let all = count.checked_mul(each).ok_or(EINVAL)?;
        Ok(Self {
            memory: Coherent::zeroed_slice(dev, all, GFP_KERNEL)?,
            each,
        })
    }

    /// Returns the bus address of list `number`.
    pub(crate) fn address(&self, number: usize) -> Result<DmaAddress> {
        let before = number.checked_mul(self.each).ok_or(EINVAL)?;
        if before >= self.memory.len() {
            return Err(EINVAL);
        }
        let bytes = u64::try_from(before * size_of::<Segment>())?;
        Ok(dma_address(&self.memory) + bytes)
    }

    /// Writes segment `place` of list `number`, which the device does not read meanwhile.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such list or place.
    pub(crate) fn write(&self, number: usize, place: usize, segment: Segment) -> Result {
        if place >= self.each {
            return Err(EINVAL);
        }
        let index = number.checked_mul(self.each).ok_or(EINVAL)? + place;
        dma_write!(self.memory, [try: index].address, segment.address);
        dma_write!(self.memory, [try: index].bytes, segment.bytes);
        Ok(())
    }
}
