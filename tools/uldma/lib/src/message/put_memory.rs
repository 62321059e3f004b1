// SPDX-License-Identifier: MIT OR Apache-2.0

//! The memory of `DIRECT_DMA` at the receiver, into which the sender puts bytes: on the receiver's side
//! a region that is exported, on the sender's its import and the notices of what is put there.

use std::time::Duration;

use nix::errno::Errno;

use super::notice::{Named, Put, PutArea};
use super::options::MessageOptions;
use crate::device::Device;
use crate::error::name::Name;
use crate::error::peer::Peer;
use crate::error::Result;
use crate::memory::buffer::Buffer;
use crate::message::ReceiveTechnique;
use crate::region::entry::Access;
use crate::region::export::Import;
use crate::region::{Region, Registered};
use crate::ring::Violation;
use crate::transfer::status::RECORDS;

/// The memory into which the peer puts bytes, and the name by which it imports it.
#[derive(Debug)]
pub(super) struct Inbound {
    region: Region,
    name: Name,
    puts: u32,
}

impl Inbound {
    /// Registers memory and exports it to `node`; none if the technique needs none.
    pub(super) fn new(
        device: &Device,
        node: u32,
        options: &MessageOptions,
    ) -> Result<Option<Self>> {
        if options.receiving != ReceiveTechnique::DirectDma {
            return Ok(None);
        }
        let region = options.register(device, Access::ReadWrite)?;
        let name = Name::random()?;
        region.export_for_life(Peer::node(node), name, Access::Write)?;
        Ok(Some(Self {
            region,
            name,
            puts: options.slots.into(),
        }))
    }

    /// Returns the memory.
    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns name and size, which the peer has to know.
    pub(super) fn named(&self) -> Named {
        Named {
            name: self.name,
            area: PutArea {
                bytes: self.region.length(),
                puts: self.puts,
            },
        }
    }
}

/// The memory of the peer, and the notices of what is put there.
#[derive(Debug)]
pub(super) struct Outbound {
    named: Named,
    /// None before the first put.
    import: Option<Import>,
    /// Notices, one for each send that can be under way.
    notices: Region,
}

impl Outbound {
    /// Prepares puts into what the peer has exported.
    pub(super) fn new(device: &Device, named: Named) -> Result<Self> {
        let count = usize::try_from(RECORDS).unwrap_or(usize::MAX);
        let notices = Buffer::new(count.saturating_mul(Put::NOTICE))?;
        Ok(Self {
            named,
            import: None,
            notices: device.register(notices, Access::Read)?,
        })
    }

    /// Imports the memory of `peer`, unless that has happened. Returns its index in the table of this
    /// node's device; none if the kernel of the peer does not answer for so long.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Violation`] when the peer does not export what it has named in the handshake, or has ended.
    pub(super) fn import(
        &mut self,
        device: &Device,
        peer: Peer,
        slice: Duration,
    ) -> Result<Option<u32>> {
        if self.import.is_none() {
            let Named { name, area } = self.named;
            let found = device.import_exported(peer, name, Access::Write, slice);
            let found = found.map_err(|error| match error.errno() {
                Some(Errno::ENOENT | Errno::EACCES | Errno::ENOTCONN) => {
                    Violation::Handshake.into()
                }
                _ => error,
            })?;
            if found.as_ref().is_some_and(|it| it.length() != area.bytes) {
                return Err(Violation::Handshake.into());
            }
            self.import = found;
        }
        Ok(self.import.as_ref().map(Import::index))
    }

    /// Returns what the peer says about its memory.
    pub(super) fn area(&self) -> PutArea {
        self.named.area
    }

    /// Writes a notice at an offset of the notices, and returns the place to send it from: the index of
    /// their region, and the offset.
    pub(super) fn write_notice(&self, offset: u64, notice: &[u8]) -> Result<(u32, u64)> {
        self.notices.write(offset, notice)?;
        Ok((self.notices.index(), offset))
    }
}
