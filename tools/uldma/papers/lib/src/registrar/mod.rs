// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration as in the paper on locking System V shared memory: three ways to keep the pages of
//! a region in memory, to compare them.
//!
//! In Linux 2.4 a driver could not lock shared pages by itself, so the paper (§4.1.2) locks by
//! address, from user level, around the driver's call. Today the driver's pins (`FOLL_LONGTERM`)
//! hold every kind of memory: only [`Mode::Pinned`] is needed, and [`crate::Device::register`] is
//! all that a program should use. The other modes do what the paper does *on top*, so that it can
//! be seen and measured.
//!
//! ```no_run
//! use uldma::registrar::{Mode, Registrar};
//! use uldma::{Access, Device, Kind, Memory};
//!
//! fn main() -> uldma::Result<()> {
//!     let device = Device::open(0)?;
//!     let memory = Memory::new(Kind::SysV, 1 << 20)?;
//!     let registrar = Registrar::new(&device, Mode::Mlock);
//!     // Timed from here: mlock(), the driver, mlock() of the whole segment.
//!     let area = registrar.register(&memory, 0..4096, Access::ReadWrite)?;
//!     println!("{:?}", area.answer());
//!     // And from here: the driver, munlock() of the whole segment.
//!     area.unregister()?;
//!     Ok(())
//! }
//! ```
//!
//! To measure:
//!
//! * Make one registrar per mode before the clock starts. A registration through [`Mode::Pinned`]
//!   is only the driver's one system call.
//! * The location of a [`Memory`] is read from `/proc/self/maps` once, at its first registration in
//!   another mode than [`Mode::Pinned`]; [`Memory::segment`] does it in advance. The paper's driver
//!   needs no look-up. [`Registrar::register_at`] makes one every time.
//! * The *first* registration of a segment and *later* ones differ (the paper's Tables 2 and 1):
//!   hold one area of the segment to measure later ones. In the paper's Table 1 another process
//!   holds it: pass that process [`Memory::segment_id`], for [`Memory::attach`].
//! * [`crate::calls`] counts the system calls of each mode.
//!
//! Intended differences from the paper:
//!
//! * The driver returns no action codes. The counters are in the library: areas per process and
//!   segment for [`Mode::Mlock`]; for [`Mode::ShmCtl`] areas per segment of this process, in
//!   addition to the number of attachments that the kernel reports.
//! * No capability is granted at open. RLIMIT_MEMLOCK limits mlock() and SHM_LOCK, which the kernel
//!   accounts separately from each other and from pinned pages.
//! * Areas are never physically unlocked (§4.1.1): the driver pins in all modes.
//! * The answer for private memory, which the paper leaves open, is `MLOCK_UNLOCK` of the range: its
//!   pins hold it.
//!
//! Use one registrar per process and mode. mlock() does not nest: memory that the program had
//! locked itself is unlocked with its segment's last area. munlock() goes by address, so unmap
//! memory only after its areas have ended.

mod agent;
mod lock_calls;
mod protocol;
mod shm_counter;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub use crate::segment::{Segment, Span};
pub use agent::{Action, Answer};

use agent::Agent;
use lock_calls::{MlockCalls, ShmLockCalls};
use shm_counter::ShmCounter;

use crate::entry::Entry;
use crate::region::sealed;
use crate::{Access, Borrowed, Device, Memory, Registered, Result};

/// The mechanism that keeps the pages of a region in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only the driver's pins.
    #[default]
    Pinned,
    /// Also mlock(), by the protocol of §4.1.2: lock the range, then call the driver, then act on
    /// the counters.
    Mlock,
    /// For System V segments also shmctl(SHM_LOCK), from the first area to the last; for other
    /// memory as [`Mode::Pinned`].
    ShmCtl,
}

/// Registers memory in one of the modes.
#[derive(Debug)]
pub struct Registrar {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    device: Device,
    mode: Mode,
    /// Locked during a registration, as the protocol must be one step for other threads: one that
    /// fails must not unlock memory that another is about to register.
    counters: Mutex<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    agent: Agent,
    shm: ShmCounter,
}

impl Registrar {
    /// Creates a registrar without areas.
    pub fn new(device: &Device, mode: Mode) -> Self {
        Self {
            inner: Arc::new(Inner {
                device: device.clone(),
                mode,
                counters: Mutex::default(),
            }),
        }
    }

    /// Returns the mechanism that keeps the pages in memory.
    pub fn mode(&self) -> Mode {
        self.inner.mode
    }

    /// Registers a part of `memory`.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Range`] when the part does not exist; [`crate::Error::System`]: ENOSPC,
    /// EDQUOT and EOPNOTSUPP as for [`Device::register_memory`], ENOMEM or EPERM when pins, mlock()
    /// or SHM_LOCK would exceed RLIMIT_MEMLOCK. After an error no other memory is registered or
    /// locked than before.
    pub fn register(&self, memory: &Memory, part: Range<u64>, access: Access) -> Result<Area> {
        let (start, length) = memory.locate(&part)?;
        let given = Span { start, length };
        let segment = match self.inner.mode {
            Mode::Pinned => None,
            Mode::Mlock | Mode::ShmCtl => Some(memory.segment()?.clone()),
        };
        // SAFETY: no reference to bytes of a `Memory` exists.
        unsafe { self.enter(given, segment, access) }
    }

    /// Registers the memory that is mapped at `start`.
    ///
    /// # Errors
    ///
    /// Errors of [`Registrar::register`] and of [`Segment::containing`].
    ///
    /// # Safety
    ///
    /// The requirements of [`Device::register_at`].
    pub unsafe fn register_at(&self, start: u64, length: u64, access: Access) -> Result<Area> {
        let segment = match self.inner.mode {
            Mode::Pinned => None,
            Mode::Mlock | Mode::ShmCtl => Some(Segment::containing(start, length)?),
        };
        // SAFETY: the caller keeps the same promise.
        unsafe { self.enter(Span { start, length }, segment, access) }
    }

    /// # Safety
    ///
    /// The requirements of [`Device::register_at`].
    unsafe fn enter(&self, given: Span, segment: Option<Segment>, access: Access) -> Result<Area> {
        // SAFETY: the caller keeps the same promise.
        let driver = || unsafe {
            let device = &self.inner.device;
            device.register_at(given.start, given.length, access)
        };
        let mut answer = None;
        let region = match (&self.inner.mode, &segment) {
            (Mode::Mlock, Some(segment)) => {
                let agent = &mut self.inner.lock().agent;
                let (region, answered) =
                    protocol::register(&MlockCalls, agent, segment, given, driver)?;
                answer = Some(answered);
                region
            }
            (Mode::ShmCtl, Some(segment)) => match ShmLockCalls::of(segment) {
                Some(calls) => {
                    let counter = &mut self.inner.lock().shm;
                    protocol::shm_register(&calls, counter, segment, driver)?
                }
                None => driver()?,
            },
            _ => driver()?,
        };
        Ok(Area {
            registrar: self.inner.clone(),
            region,
            segment,
            answer,
            over: false,
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Counters> {
        // The counters change in single steps: no panic can leave them half-changed.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, region: &Borrowed, segment: Option<&Segment>) -> Result<Option<Answer>> {
        let driver = || region.end();
        match (self.mode, segment) {
            (Mode::Mlock, Some(segment)) => {
                let agent = &mut self.lock().agent;
                protocol::deregister(&MlockCalls, agent, segment, driver).map(Some)
            }
            (Mode::ShmCtl, Some(segment)) => {
                match ShmLockCalls::of(segment) {
                    Some(calls) => {
                        let counter = &mut self.lock().shm;
                        let others = || calls.others_attach();
                        protocol::shm_deregister(&calls, counter, segment, driver, others)?;
                    }
                    None => driver()?,
                }
                Ok(None)
            }
            _ => driver().map(|()| None),
        }
    }
}

/// A registered range. Ends on drop, by the rules of its registrar's mode.
#[derive(Debug)]
pub struct Area {
    registrar: Arc<Inner>,
    region: Borrowed,
    segment: Option<Segment>,
    answer: Option<Answer>,
    /// The area has ended already.
    over: bool,
}

impl Area {
    /// Returns the driver's region of the area.
    pub fn region(&self) -> &Borrowed {
        &self.region
    }

    /// Returns the action of its registration; none in other modes than [`Mode::Mlock`].
    pub fn answer(&self) -> Option<Answer> {
        self.answer
    }

    /// Ends the area, and returns the action of its end; none in other modes than [`Mode::Mlock`].
    ///
    /// # Errors
    ///
    /// [`crate::Error::System`]: ETIMEDOUT when the device does not answer; the area and its lock
    /// have ended.
    pub fn unregister(mut self) -> Result<Option<Answer>> {
        self.over = true;
        self.registrar.end(&self.region, self.segment.as_ref())
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if !self.over {
            // A registration that cannot be ended ends with the device's file; memory that stays
            // locked, with the process.
            let _ = self.registrar.end(&self.region, self.segment.as_ref());
        }
    }
}

impl sealed::Registered for Area {
    fn entry(&self) -> &Entry {
        sealed::Registered::entry(&self.region)
    }
}

impl Registered for Area {}
