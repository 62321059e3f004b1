// SPDX-License-Identifier: MIT OR Apache-2.0

//! Backends that register memory: uldma in its modes, io_uring, and mlock(). ibv_reg_mr() is in
//! [`super::verbs`].

use std::rc::Rc;

use io_uring::IoUring;
use nix::libc;
use nix::sys::mman::{mlock, munlock};
use uldma::region::Borrowed;
use uldma::{Access, Device, Memory};
use uldma_papers::registrar::{Area, Mode, Registrar, Segment};

use super::memory::{Range, Subject};
use crate::failure::Failure;

/// A way to register and deregister memory. Only these two calls are timed.
pub(crate) trait Backend {
    /// Prepares for this memory, before all else.
    fn begin(&mut self, _subject: &Subject) -> Result<(), Failure> {
        Ok(())
    }

    /// Begins a turn, before its first [`Backend::register`].
    fn prepare(&mut self, _range: Range) -> Result<(), Failure> {
        Ok(())
    }

    /// Registers a range. The previous registration has ended.
    fn register(&mut self, range: Range) -> Result<(), Failure>;

    /// Ends the last registration.
    fn deregister(&mut self) -> Result<(), Failure>;

    /// Ends a turn, after its last [`Backend::deregister`].
    fn clean_up(&mut self) -> Result<(), Failure> {
        Ok(())
    }
}

/// Registers a range for reading and writing: one system call.
pub(crate) fn add(device: &Device, range: Range) -> Result<Borrowed, Failure> {
    let (start, length) = (range.address(), range.length() as u64);
    // SAFETY: nothing here starts a transfer or exports a region, so the device touches nothing.
    Ok(unsafe { device.register_at(start, length, Access::ReadWrite) }?)
}

/// uldma, as every program would use it.
#[derive(Debug)]
pub(crate) struct Uldma {
    device: Device,
    region: Option<Borrowed>,
}

impl Uldma {
    /// Registers with this open file.
    pub(crate) fn new(device: &Device) -> Self {
        Self {
            device: device.clone(),
            region: None,
        }
    }
}

impl Backend for Uldma {
    fn register(&mut self, range: Range) -> Result<(), Failure> {
        self.region = Some(add(&self.device, range)?);
        Ok(())
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        Ok(self.region.take().map_or(Ok(()), Borrowed::unregister)?)
    }
}

/// A backend in a process that has registered the same range before.
#[derive(Debug)]
pub(crate) struct Again<C> {
    first: C,
    again: C,
}

impl<C> Again<C> {
    /// With two of these.
    pub(crate) fn new(one: impl Fn() -> C) -> Self {
        Self {
            first: one(),
            again: one(),
        }
    }
}

impl<C: Backend> Backend for Again<C> {
    fn prepare(&mut self, range: Range) -> Result<(), Failure> {
        self.first.register(range)
    }

    fn register(&mut self, range: Range) -> Result<(), Failure> {
        self.again.register(range)
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        self.again.deregister()
    }

    fn clean_up(&mut self) -> Result<(), Failure> {
        self.first.deregister()
    }
}

/// uldma with one of the paper's ways to lock on top of it.
#[derive(Debug)]
pub(crate) struct Locking {
    registrar: Registrar,
    memory: Option<(Rc<Memory>, Option<Segment>)>,
    area: Option<Area>,
}

impl Locking {
    /// The paper's protocol with mlock() by the library.
    pub(crate) fn mlock(device: &Device) -> Self {
        Self::new(device, Mode::Mlock)
    }

    /// The paper's way with shmctl(), which its driver called from inside the kernel.
    pub(crate) fn shm_ctl(device: &Device) -> Self {
        Self::new(device, Mode::ShmCtl)
    }

    fn new(device: &Device, mode: Mode) -> Self {
        Self {
            registrar: Registrar::new(device, mode),
            memory: None,
            area: None,
        }
    }
}

impl Backend for Locking {
    fn begin(&mut self, subject: &Subject) -> Result<(), Failure> {
        // The paper's driver knows where a segment lies; the library has to find it, once.
        let segment = self.registrar.segment(subject.memory())?;
        self.memory = Some((Rc::clone(subject.memory()), segment));
        Ok(())
    }

    fn register(&mut self, range: Range) -> Result<(), Failure> {
        if let Some((memory, segment)) = &self.memory {
            let start = range.address() - memory.address();
            let part = start..start + range.length() as u64;
            let area =
                self.registrar
                    .register(memory, segment.as_ref(), part, Access::ReadWrite)?;
            self.area = Some(area);
        }
        Ok(())
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        self.area.take().map(Area::unregister).transpose()?;
        Ok(())
    }
}

/// io_uring's registered buffers: pins, and nearly nothing else.
pub(crate) struct Ring(IoUring);

impl Ring {
    /// A ring of the smallest size.
    pub(crate) fn new() -> Result<Self, Failure> {
        IoUring::new(1)
            .map(Self)
            .map_err(|error| Failure::Io("io_uring", error))
    }
}

impl Backend for Ring {
    fn register(&mut self, range: Range) -> Result<(), Failure> {
        let buffer = libc::iovec {
            iov_base: range.base().as_ptr(),
            iov_len: range.length(),
        };
        // SAFETY: this ring starts no transfers at all.
        unsafe { self.0.submitter().register_buffers(&[buffer]) }
            .map_err(|error| Failure::Io("registration with io_uring", error))
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        self.0
            .submitter()
            .unregister_buffers()
            .map_err(|error| Failure::Io("end of a registration with io_uring", error))
    }
}

/// mlock(), which keeps memory resident and gives it to no device.
#[derive(Debug, Default)]
pub(crate) struct Mlock(Option<Range>);

impl Backend for Mlock {
    fn register(&mut self, range: Range) -> Result<(), Failure> {
        self.0 = Some(range);
        // SAFETY: locking changes nothing that a program can see.
        unsafe { mlock(range.base(), range.length()) }
            .map_err(|errno| Failure::Io("mlock()", errno.into()))
    }

    fn deregister(&mut self) -> Result<(), Failure> {
        let Some(range) = self.0.take() else {
            return Ok(());
        };
        // SAFETY: as above.
        unsafe { munlock(range.base(), range.length()) }
            .map_err(|errno| Failure::Io("munlock()", errno.into()))
    }
}
