// SPDX-License-Identifier: GPL-2.0

//! The objects of an open file: those with handles, the context, and the last transfers.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::{
    dma::{
        context::VirtualContext,
        engine::Transfer, //
    },
    link::segment::Segment,
    params,
    user::{
        endpoint::FileEndpoint,
        region::Region, //
    },
    user_abi::{
        handles::Handles,
        mmap_offset::MmapRange, //
    }, //
};

/// The kind of an object with a handle.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A region, or an import. Their number is limited.
    Region,
    /// Anything else.
    Other,
}

/// An object with a handle.
pub(crate) enum Object {
    /// Registered memory, or an import.
    Region(Region),
    /// One side of a window segment.
    Segment(Arc<Segment>),
    /// The end of a message connection.
    Endpoint(FileEndpoint),
}

/// The register context of an open file.
pub(crate) struct FileContext {
    pub(crate) vctx: Arc<VirtualContext>,
    /// Its number among the contexts that the open file has had.
    pub(crate) serial: u64,
    pub(crate) registers: MmapRange,
    pub(crate) status: MmapRange,
    pub(crate) queue: Option<MmapRange>,
}

/// Number of transfers whose outcome an open file can query: the last ones.
const REMEMBERED: usize = 64;

/// The objects of an open file.
pub(crate) struct Objects {
    pub(crate) handles: Handles<Object>,
    /// Regions and imports, made or being made.
    regions: usize,
    pub(crate) context: Option<FileContext>,
    /// Contexts that the open file has had.
    contexts: u64,
    transfers: [Option<Arc<Transfer>>; REMEMBERED],
    next_transfer: usize,
}

impl Objects {
    /// Creates the objects of a new open file: none.
    pub(super) fn new() -> Self {
        Self {
            handles: Handles::new(),
            regions: 0,
            context: None,
            contexts: 0,
            transfers: [const { None }; REMEMBERED],
            next_transfer: 0,
        }
    }

    /// Counts one more context. Returns its number.
    pub(super) fn next_serial(&mut self) -> u64 {
        self.contexts += 1;
        self.contexts
    }

    /// Remembers a transfer, in place of the oldest.
    pub(crate) fn remember(&mut self, transfer: Arc<Transfer>) {
        if let Some(place) = self.transfers.get_mut(self.next_transfer % REMEMBERED) {
            *place = Some(transfer);
        }
        self.next_transfer = self.next_transfer.wrapping_add(1);
    }

    /// The transfer of `ticket`.
    pub(crate) fn transfer(&self, ticket: u64) -> Result<Arc<Transfer>> {
        let mut transfers = self.transfers.iter().flatten();
        let found = transfers.find(|transfer| transfer.ticket == ticket);
        found.cloned().ok_or(ENOENT)
    }

    /// The region of `handle`.
    pub(crate) fn region(&self, handle: u32) -> Result<&Region> {
        match self.handles.get(handle)? {
            Object::Region(region) => Ok(region),
            Object::Segment(_) | Object::Endpoint(_) => Err(ENOENT),
        }
    }

    /// The region of `handle`, to be changed.
    pub(crate) fn region_mut(&mut self, handle: u32) -> Result<&mut Region> {
        match self.handles.get_mut(handle)? {
            Object::Region(region) => Ok(region),
            Object::Segment(_) | Object::Endpoint(_) => Err(ENOENT),
        }
    }

    /// Reserves a handle for a new object.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if there are as many objects, or regions, as an open file can have; `ENOMEM`.
    pub(crate) fn reserve(&mut self, kind: Kind) -> Result<u32> {
        if kind == Kind::Region && self.regions >= params::max_file_regions() {
            return Err(ENOSPC);
        }
        let handle = self.handles.reserve()?;
        self.regions += usize::from(kind == Kind::Region);
        Ok(handle)
    }

    /// Frees the handle of an object that could not be made.
    pub(crate) fn cancel(&mut self, kind: Kind, handle: u32) {
        self.handles.cancel(handle);
        self.regions -= usize::from(kind == Kind::Region);
    }

    /// Takes the region of `handle` out.
    pub(crate) fn take_region(&mut self, handle: u32) -> Result<Object> {
        self.region(handle)?;
        let object = self.handles.remove(handle)?;
        self.regions -= 1;
        Ok(object)
    }

    /// Takes any region out, until none is left.
    pub(super) fn take_any_region(&mut self) -> Option<Region> {
        let is_region = |object: &Object| matches!(object, Object::Region(_));
        match self.handles.pop_if(is_region)? {
            Object::Region(region) => {
                self.regions -= 1;
                Some(region)
            }
            Object::Segment(_) | Object::Endpoint(_) => None,
        }
    }

    /// Returns the number of regions and imports.
    pub(crate) fn regions(&self) -> usize {
        self.regions
    }

    /// The segment of `handle`.
    pub(crate) fn segment(&self, handle: u32) -> Result<&Arc<Segment>> {
        match self.handles.get(handle)? {
            Object::Segment(segment) => Ok(segment),
            Object::Region(_) | Object::Endpoint(_) => Err(ENOENT),
        }
    }

    /// Returns true if a send of a stream has failed; `None` without streams.
    pub(super) fn has_torn_stream(&self) -> Option<bool> {
        let streams = self.handles.iter().filter_map(|object| match object {
            Object::Endpoint(endpoint) if endpoint.is_stream() => Some(endpoint.is_torn()),
            _ => None,
        });
        streams.reduce(|one, other| one || other)
    }

    /// The endpoint of `handle`.
    pub(crate) fn endpoint_mut(&mut self, handle: u32) -> Result<&mut FileEndpoint> {
        match self.handles.get_mut(handle)? {
            Object::Endpoint(endpoint) => Ok(endpoint),
            Object::Region(_) | Object::Segment(_) => Err(ENOENT),
        }
    }
}
