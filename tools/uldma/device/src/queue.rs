// SPDX-License-Identifier: MIT OR Apache-2.0

//! Descriptors in a node's memory: `struct uldma_descriptor`.
//!
//! The program may change a descriptor at any time. So each word is read once, and the checks and
//! the execution use the copy.

use std::sync::atomic::Ordering;

use vm_memory::{Bytes, VolatileSlice};

use crate::abi::{descriptor, redirect, Op, Status, STATUS_RECORDS};
use crate::atomic::Atomic;
use crate::check::{self, AccessCheck, PeerRegion};
use crate::layout::{
    DescriptorFlags, DescriptorHead, DescriptorRegions, PeerLink, OP_INVALIDATE, OP_PAGED,
};
use crate::location::List;
use crate::memory::{Bus, BusError, GuestMemory, Right};
use crate::transfer::Work;

/// A copy of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    op: u32,
    flags: u32,
    source: (u32, u64),
    destination: (u32, u64),
    length: u64,
    operand: u64,
    compare: u64,
}

impl Descriptor {
    /// Returns true if an error of this operation aborts the next one.
    pub fn is_linked(&self) -> bool {
        self.flags & descriptor::LINK != 0
    }

    /// Returns the message that it sends, if it is a send.
    pub fn send(&self) -> Option<Send> {
        (self.op == Op::Send as u32).then_some(Send {
            flags: self.flags & !(descriptor::FENCE | descriptor::LINK | descriptor::MORE | LIST),
            is_listed: self.flags & LIST != 0,
            endpoint: self.destination.0,
            from: self.source,
            length: self.length,
            more: self.flags & descriptor::MORE != 0,
        })
    }

    /// Returns the buffer that it posts.
    pub fn buffer(&self) -> Result<Buffer, Status> {
        if self.op != Op::Recv as u32 || self.flags & !descriptor::REDIRECT != 0 {
            return Err(Status::NotValid);
        }
        Ok((self.destination, self.length))
    }

    /// Returns the list and the length of the buffer that it posts, if it posts one as a list.
    pub fn listed_buffer(&self) -> Option<(List, u64)> {
        let posts = self.op == Op::Recv as u32 && self.flags == LIST;
        posts.then_some((list_of(self.destination), self.length))
    }

    /// Returns true if the receiver may redirect its message.
    pub fn can_be_redirected(&self) -> bool {
        self.flags & descriptor::REDIRECT != 0
    }

    /// Builds the operation of a context of `space`, or of a privileged one for `None`. A context
    /// executes its descriptors in order, so a fence is no operation.
    pub fn work<B: Bus + ?Sized>(
        &self,
        access_check: &AccessCheck<'_, B>,
        space: Option<u32>,
    ) -> Result<Work, Status> {
        let flags = self.flags & !(descriptor::FENCE | descriptor::LINK);
        if space.is_none() && (flags != 0 || matches!(self.op, OP_INVALIDATE | OP_PAGED)) {
            return self.privileged_work(access_check, flags);
        }
        if flags != 0 {
            return Err(Status::NotValid);
        }
        let atomic = |operation| {
            let at = check::region_word(access_check, space, self.destination)?;
            Ok(Work::Atomic { at, operation })
        };
        match Op::of(self.op).ok_or(Status::NotValid)? {
            Op::Copy => {
                let (from, to) = (self.source, self.destination);
                check::regions(access_check, space, from, to, self.length).map(Work::Copy)
            }
            Op::FetchAdd => atomic(Atomic::Add(self.operand)),
            Op::CompareSwap => atomic(Atomic::CompareSwap {
                compare: self.compare,
                swap: self.operand,
            }),
            Op::Nop => Ok(Work::Nothing),
            // Sends are matched before; a receive descriptor belongs to a receive ring.
            Op::Send | Op::Recv => Err(Status::NotValid),
        }
    }

    /// Builds an operation that only a privileged context may request.
    #[cold]
    fn privileged_work<B: Bus + ?Sized>(
        &self,
        access_check: &AccessCheck<'_, B>,
        flags: u32,
    ) -> Result<Work, Status> {
        let link = PeerLink::from_bits(self.compare);
        let at_peer = |(region, position)| {
            let peer = PeerRegion {
                node: link.get(PeerLink::NODE),
                link_generation: link.get(PeerLink::GENERATION),
                region,
                generation: self.operand,
            };
            (peer, position)
        };
        let (from, to) = (self.source, self.destination);
        let copies = self.op == Op::Copy as u32;
        match DescriptorFlags::from_bits(flags) {
            DescriptorFlags::NONE if self.op == OP_INVALIDATE => {
                Ok(Work::Invalidate { region: from.0 })
            }
            DescriptorFlags::NONE if self.op == OP_PAGED => Ok(Work::Paged),
            DescriptorFlags::SRC_OF_PEER if copies => {
                check::pull(access_check, at_peer(from), to, self.length).map(Work::Copy)
            }
            DescriptorFlags::DST_OF_PEER if copies => {
                check::push(access_check, from, at_peer(to), self.length).map(Work::Copy)
            }
            _ => Err(Status::NotValid),
        }
    }
}

/// The flag of memory that is given as a list.
const LIST: u32 = DescriptorFlags::LIST.bits();

/// Returns the list in place of a region and a byte in it.
pub fn list_of((segments, address): (u32, u64)) -> List {
    List { address, segments }
}

/// A message to send, as a descriptor asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Send {
    /// Flags that do not exist.
    pub flags: u32,
    /// The memory is given as a list.
    pub is_listed: bool,
    /// The sender's endpoint.
    pub endpoint: u32,
    /// Region and first byte.
    pub from: (u32, u64),
    /// Bytes.
    pub length: u64,
    /// The next send continues the message.
    pub more: bool,
}

/// Region, first byte and length of a buffer for a message.
pub type Buffer = ((u32, u64), u64);

/// Words of a descriptor.
const WORDS: usize = descriptor::SIZE as usize / size_of::<u64>();

/// A page of descriptors.
pub struct Ring<'a> {
    slice: VolatileSlice<'a>,
    memory: &'a GuestMemory,
    address: u64,
}

impl<'a> Ring<'a> {
    /// Returns the page at a bus address.
    pub fn new(memory: &'a GuestMemory, address: u64) -> Result<Self, BusError> {
        const BYTES: u64 = STATUS_RECORDS * descriptor::SIZE;
        let slice = memory.slice(address, BYTES, Right::Read)?;
        // The queue must not leave the mapped range that it begins in.
        let whole = slice.len() as u64 == BYTES;
        let ring = Self {
            slice,
            memory,
            address,
        };
        whole.then_some(ring).ok_or(BusError)
    }

    /// Takes a descriptor that can be redirected, and returns where it is redirected to, if it is.
    /// From now on the receiver cannot change that.
    pub fn take_redirected(&self, ticket: u64) -> Result<Option<Buffer>, BusError> {
        let place = self.address + ticket % STATUS_RECORDS * descriptor::SIZE;
        let operand = place + descriptor::OPERAND;
        let was = self.memory.update64(operand, |_| Some(redirect::TAKEN))?;
        if was != redirect::READY {
            return Ok(None);
        }
        let load = |offset| self.memory.load64(place + offset);
        let regions = DescriptorRegions::from_bits(load(descriptor::REGIONS)?);
        let region = regions.get(DescriptorRegions::SRC);
        let buffer = (region, load(descriptor::SRC_OFFSET)?);
        Ok(Some((buffer, load(descriptor::COMPARE)?)))
    }

    /// Reads the descriptor with this ticket; `None` if it is not written yet.
    pub fn read(&self, ticket: u64) -> Result<Option<Descriptor>, BusError> {
        let place = ticket % STATUS_RECORDS * descriptor::SIZE;
        let place = usize::try_from(place).map_err(|_| BusError)?;
        let found: u64 = self
            .slice
            .load(place, Ordering::Acquire)
            .map_err(|_| BusError)?;
        if u64::from_le(found) != ticket {
            return Ok(None);
        }
        let mut words = [0; WORDS];
        let whole = self.slice.subslice(place, size_of_val(&words));
        whole.map_err(|_| BusError)?.copy_to(&mut words);
        let word = |offset: u64| {
            let word = words.get(offset as usize / 8).copied();
            u64::from_le(word.unwrap_or_default())
        };
        let head = DescriptorHead::from_bits(word(descriptor::OP));
        let regions = DescriptorRegions::from_bits(word(descriptor::REGIONS));
        let (source, destination) = (
            regions.get(DescriptorRegions::SRC),
            regions.get(DescriptorRegions::DST),
        );
        Ok(Some(Descriptor {
            op: head.get(DescriptorHead::OP),
            flags: head.get(DescriptorHead::FLAGS),
            source: (source, word(descriptor::SRC_OFFSET)),
            destination: (destination, word(descriptor::DST_OFFSET)),
            length: word(descriptor::LENGTH),
            operand: word(descriptor::OPERAND),
            compare: word(descriptor::COMPARE),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::memfd;

    #[test]
    fn descriptors_are_found_at_their_place() {
        let mut memory = GuestMemory::default();
        memory
            .map(0x1000, 0x1000, Some((memfd(0x1000), 0)), true, true)
            .unwrap();
        let ring = Ring::new(&memory, 0x1000).unwrap();
        assert_eq!(ring.read(65), Ok(None));
        for (number, word) in [65, 0x2_0000_0001, 0x4_0000_0003, 5, 6, 7, 8, 9]
            .into_iter()
            .enumerate()
        {
            let place = 0x1000 + descriptor::SIZE + number as u64 * 8;
            memory.store64(place, word).unwrap();
        }
        assert_eq!(ring.read(1), Ok(None), "the place was used again");
        let found = ring.read(65).unwrap().unwrap();
        assert!(found.is_linked());
        assert_eq!(
            found,
            Descriptor {
                op: 1,
                flags: 2,
                source: (3, 5),
                destination: (4, 6),
                length: 7,
                operand: 8,
                compare: 9,
            }
        );
    }

    #[test]
    fn a_page_has_to_be_whole() {
        let mut memory = GuestMemory::default();
        memory
            .map(0x1000, 0x1000, Some((memfd(0x1000), 0)), true, true)
            .unwrap();
        for address in [0x1008, 0xff8, 0x1001, u64::MAX] {
            assert!(Ring::new(&memory, address).is_err(), "{address:#x}");
        }
    }
}
