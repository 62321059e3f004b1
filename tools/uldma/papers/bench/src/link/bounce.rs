// SPDX-License-Identifier: MIT OR Apache-2.0

//! Bounce memory of the kernel, which a program reaches by write() and read() only, and the device
//! by DMA: the pages of a memory file.

use std::fs::File;
use std::mem::forget;
use std::os::unix::fs::FileExt;

use nix::sys::memfd::{memfd_create, MFdFlags};
use uldma::region::Borrowed;
use uldma::{Access, Device, Memory, Name};

use crate::failure::Failure;

/// Pages of the kernel, registered for the device.
pub(super) struct Bounce {
    region: Borrowed,
    /// Keeps the pages mapped, which the program does not access.
    _memory: Memory,
    file: File,
}

impl Bounce {
    pub(super) fn new(device: &Device, bytes: usize) -> Result<Self, Failure> {
        let failed = |error| Failure::Io("bounce memory", error);
        let made = memfd_create("bounce", MFdFlags::MFD_CLOEXEC);
        let file = File::from(made.map_err(|errno| failed(errno.into()))?);
        file.set_len(bytes as u64).map_err(failed)?;
        let memory = Memory::of_file(&file, bytes as u64, true)?;
        let region = device.register_memory(&memory, 0..bytes as u64, Access::ReadWrite)?;
        Ok(Self {
            region,
            _memory: memory,
            file,
        })
    }

    /// Exports it for writing, for as long as it exists.
    pub(super) fn export(&self, name: Name) -> Result<(), Failure> {
        // An export ends with its region.
        forget(self.region.export(name, Access::Write)?);
        Ok(())
    }

    /// The memory, for transfers.
    pub(super) fn region(&self) -> &Borrowed {
        &self.region
    }

    /// Has the kernel copy memory of the program in. Returns the number of bytes copied.
    pub(super) fn write(&self, place: usize, from: &[u8]) -> Result<usize, Failure> {
        let copied = self.file.write_at(from, place as u64);
        whole(copied, from.len()).map_err(|error| Failure::Io("write()", error))
    }

    /// Has the kernel copy to memory of the program. Returns the number of bytes copied.
    pub(super) fn read(&self, place: usize, to: &mut [u8]) -> Result<usize, Failure> {
        let wanted = to.len();
        let copied = self.file.read_at(to, place as u64);
        whole(copied, wanted).map_err(|error| Failure::Io("read()", error))
    }
}

fn whole(copied: std::io::Result<usize>, wanted: usize) -> std::io::Result<usize> {
    match copied? {
        copied if copied == wanted => Ok(copied),
        _ => Err(std::io::ErrorKind::UnexpectedEof.into()),
    }
}
