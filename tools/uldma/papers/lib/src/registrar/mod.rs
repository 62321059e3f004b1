// SPDX-License-Identifier: MIT OR Apache-2.0

//! Registration as in the paper on locking System V shared memory: three ways to keep the pages of
//! a region in memory, to compare them.
//!
//! In Linux 2.4 a driver could not lock shared pages by itself, so the paper (§4.1.2) locks by
//! address, from user level, around the driver's call. Today the driver's pins (`FOLL_LONGTERM`)
//! hold every kind of memory: only [`Mode::Pinned`] is needed, and [`Device::register`] is
//! all that a program should use. The other modes do what the paper does *on top*, so that it can
//! be seen and measured.
//!
//! ```no_run
//! use uldma::memory::Kind;
//! use uldma::{Access, Device, Memory};
//! use uldma_papers::registrar::{Mode, Registrar};
//!
//! fn main() -> uldma::Result<()> {
//!     let device = Device::open(0)?;
//!     let memory = Memory::new(Kind::SysV, 1 << 20)?;
//!     let registrar = Registrar::new(&device, Mode::Mlock);
//!     let segment = registrar.segment(&memory)?;
//!     // Timed from here: mlock(), the driver, mlock() of the whole segment.
//!     let area = registrar.register(&memory, segment.as_ref(), 0..4096, Access::ReadWrite)?;
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
//! * [`Registrar::segment`] reads the location of a [`Memory`] from `/proc/self/maps`; call it before
//!   the clock starts. The paper's driver needs no look-up.
//! * The *first* registration of a segment and *later* ones differ (the paper's Tables 2 and 1):
//!   hold one area of the segment to measure later ones. In the paper's Table 1 another process
//!   holds it: pass that process [`Memory::segment_id`], for [`Memory::attach`].
//! * [`uldma::measure::calls`] counts the system calls of each mode.
//!
//! Intended differences from the paper:
//!
//! * The driver returns no action codes. The counters are in the library: areas per process and
//!   segment for [`Mode::Mlock`]; for [`Mode::ShmCtl`] areas per segment of all processes, in a
//!   System V semaphore that is named after the segment.
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
mod all_areas;
mod lock_calls;
mod mlock;
mod protocol;
mod segment;
mod shm_counter;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uldma::region::{Borrowed, Miss};
use uldma::{Access, Device, Memory, Result};

pub use agent::{Action, Answer};
pub use segment::{Segment, Span};

use agent::Agent;
use all_areas::AllAreas;
use lock_calls::{MlockCalls, ShmLockCalls};

/// The mechanism that keeps the pages of a region in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Only the driver's pins.
    #[default]
    Pinned,
    /// None: the pages may go, and transfers that miss them end, or wait.
    Optimistic(Miss),
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

    /// Returns the segment of the memory, for [`Registrar::register`]; none in the modes that
    /// need none.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`] when `/proc/self/maps` cannot be read.
    pub fn segment(&self, memory: &Memory) -> Result<Option<Segment>> {
        match self.inner.mode {
            Mode::Pinned | Mode::Optimistic(_) => Ok(None),
            Mode::Mlock | Mode::ShmCtl => {
                Segment::containing(memory.address(), memory.length()).map(Some)
            }
        }
    }

    /// Registers a part of `memory`, whose segment [`Registrar::segment`] has returned.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::Range`] when the part does not exist; [`uldma::Error::System`]: ENOSPC when
    /// the device's table is full, EDQUOT when this user's share of it is used up, EOPNOTSUPP when
    /// this kind of memory cannot be pinned, ENOMEM or EPERM when pins, mlock() or SHM_LOCK would
    /// exceed RLIMIT_MEMLOCK. After an error no other memory is registered or locked than before.
    pub fn register(
        &self,
        memory: &Memory,
        segment: Option<&Segment>,
        part: Range<u64>,
        access: Access,
    ) -> Result<Area> {
        let (start, length) = memory.locate(&part)?;
        let given = Span { start, length };
        let device = &self.inner.device;
        let driver = || match self.inner.mode {
            Mode::Optimistic(miss) => device.register_optimistic(memory, part, access, miss),
            _ => device.register_memory(memory, part, access),
        };
        let mut answer = None;
        let region = match (self.inner.mode, segment) {
            (Mode::Mlock, Some(segment)) => {
                let agent = &mut self.inner.lock().agent;
                let (region, answered) =
                    protocol::register(&MlockCalls, agent, segment, given, driver)?;
                answer = Some(answered);
                region
            }
            (Mode::ShmCtl, Some(segment)) => match ShmLockCalls::of(segment) {
                Some(calls) => {
                    let mut counter = AllAreas::of(calls.number())?;
                    protocol::shm_register(&calls, &mut counter, segment, driver)?
                }
                None => driver()?,
            },
            _ => driver()?,
        };
        let lock = segment.map(|segment| Lock {
            registrar: self.inner.clone(),
            segment: segment.clone(),
            released: false,
        });
        Ok(Area {
            region,
            lock,
            answer,
        })
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Counters> {
        // The counters change in single steps: no panic can leave them half-changed.
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What holds the pages of an area beside the driver's pins.
#[derive(Debug)]
struct Lock {
    registrar: Arc<Inner>,
    segment: Segment,
    released: bool,
}

impl Lock {
    /// Ends the area by `driver`, and then unlocks by the rules of the mode.
    fn release(&mut self, driver: impl FnOnce() -> Result<()>) -> Result<Option<Answer>> {
        self.released = true;
        let segment = &self.segment;
        match (self.registrar.mode, ShmLockCalls::of(segment)) {
            (Mode::Mlock, _) => {
                let agent = &mut self.registrar.lock().agent;
                protocol::deregister(&MlockCalls, agent, segment, driver).map(Some)
            }
            (Mode::ShmCtl, Some(calls)) => match AllAreas::of(calls.number()) {
                Ok(mut counter) => {
                    protocol::shm_deregister(&calls, &mut counter, segment, driver).map(|()| None)
                }
                // The area ends whatever is counted.
                Err(error) => driver().and(Err(error)),
            },
            _ => driver().map(|()| None),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        if !self.released {
            // The region has ended before. Memory that stays locked is unlocked with the process.
            let _ = self.release(|| Ok(()));
        }
    }
}

/// A registered range. Ends on drop, by the rules of its registrar's mode.
#[derive(Debug)]
pub struct Area {
    // Fields drop in this order: the registration must end before the memory is unlocked.
    region: Borrowed,
    lock: Option<Lock>,
    answer: Option<Answer>,
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
    /// [`uldma::Error::System`]: ETIMEDOUT when the device does not answer; the area and its lock
    /// have ended.
    pub fn unregister(self) -> Result<Option<Answer>> {
        let Self { region, lock, .. } = self;
        let driver = || region.unregister();
        match lock {
            Some(mut lock) => lock.release(driver),
            None => driver().map(|()| None),
        }
    }
}
