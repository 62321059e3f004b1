// SPDX-License-Identifier: MIT OR Apache-2.0

//! Slots in this node's section of the window, to which and from which the processor moves messages:
//! `PIO`.

use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use super::options::MessageOptions;
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::message::{ReceiveTechnique, SendTechnique};
use crate::mmio::{acquire_barrier, publish_barrier};
use crate::region::entry::Access;
use crate::sys;
use crate::sys::{uapi, Mapping};

/// Slots of one direction, which the peer could write.
#[derive(Debug)]
pub(super) struct WindowSlots {
    // Dropped before the handle is: the memory is not mapped any more when it ends.
    mapping: Mapping,
    index: u32,
    count: u64,
    _end: Handle,
}

/// The handle of the region, ended on drop.
#[derive(Debug)]
struct Handle {
    device: Device,
    handle: u32,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Fails only after the device has been removed; closing the file ends the region, too.
        let _ = sys::region_unregister(self.device.as_fd(), sys::handle(self.handle));
    }
}

impl WindowSlots {
    /// Creates the slots of `options` for messages to or from `peer`, which the device may access as
    /// `access` says; none if the device cannot reach the window.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOSPC or EDQUOT when the window, or this user's share of it, is used up.
    pub(super) fn new(
        device: &Device,
        peer: Peer,
        options: &MessageOptions,
        access: Access,
    ) -> Result<Option<Self>> {
        let length = (options.slot as u64).saturating_mul(options.slots.into());
        let argument = uapi::uldma_region_window {
            flags: access.flags(),
            length,
            peer: peer.field(),
            ..Default::default()
        };
        let made = match sys::region_window(device.as_fd(), argument) {
            Err(Errno::EOPNOTSUPP) => return Ok(None),
            made => made.map_err(|errno| {
                Error::system(
                    format!("create slots of {length} bytes in the window"),
                    errno,
                )
            })?,
        };
        let end = Handle {
            device: device.clone(),
            handle: made.out_handle,
        };
        let both = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapping = Mapping::shared(device.as_fd(), made.out_offset, made.out_length, both);
        Ok(Some(Self {
            mapping: mapping.map_err(|errno| Error::system("map slots in the window", errno))?,
            index: made.out_index,
            count: options.slots.into(),
            _end: end,
        }))
    }

    /// Returns the index of the region in the device's table.
    pub(super) fn index(&self) -> u32 {
        self.index
    }

    /// Returns the number of slots.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Writes to the slots. The device can read it when this returns.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let start = self.check(offset, bytes.len())?;
        self.mapping.write(start, bytes);
        publish_barrier();
        Ok(())
    }

    /// Reads what the device has written to the slots.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub(super) fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let start = self.check(offset, target.len())?;
        acquire_barrier();
        self.mapping.read(start, target);
        // The slot may be posted again now.
        acquire_barrier();
        Ok(())
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize> {
        let size = self.mapping.length();
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        match start.checked_add(length) {
            Some(end) if end <= size => Ok(start),
            _ => Err(Error::Range {
                offset,
                length: length as u64,
                size: size as u64,
            }),
        }
    }
}

/// The slots in the window that a connection needs from the beginning.
#[derive(Debug, Default)]
pub(super) struct Pio {
    pub(super) sending: Option<WindowSlots>,
    pub(super) receiving: Option<WindowSlots>,
}

impl Pio {
    /// Creates the slots that the techniques of `options` need; none if the device cannot reach the
    /// window.
    ///
    /// # Errors
    ///
    /// Those of [`WindowSlots::new`].
    pub(super) fn new(
        device: &Device,
        peer: Peer,
        options: &MessageOptions,
    ) -> Result<Option<Self>> {
        let mut pio = Self::default();
        if options.sending == SendTechnique::Pio {
            pio.sending = WindowSlots::new(device, peer, options, Access::Read)?;
            if pio.sending.is_none() {
                return Ok(None);
            }
        }
        if options.receiving == ReceiveTechnique::Pio {
            pio.receiving = WindowSlots::new(device, peer, options, Access::Write)?;
            if pio.receiving.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(pio))
    }
}
