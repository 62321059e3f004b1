// SPDX-License-Identifier: GPL-2.0

//! Work queues that `kernel::workqueue` lacks, and waiting for a work item.

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    bindings,
    prelude::*,
    sync::atomic::{
        Acquire,
        Atomic,
        Release, //
    },
    workqueue::{
        DelayedWork,
        Queue,
        Work, //
    }, //
};

/// Returns the system's queue for unbound work that may take long.
pub(crate) fn system_default() -> &'static Queue {
    // SAFETY: The system's queues are made before modules are loaded, and never go.
    unsafe { Queue::from_raw(bindings::system_dfl_wq) }
}

unsafe extern "C" {
    fn uldma_workqueue_new(
        name: *const c_char,
        flags: c_uint,
        max_active: c_int,
    ) -> *mut bindings::workqueue_struct;
}

/// Maximum number of work items of a queue that run at a time: `WQ_MAX_ACTIVE`.
const MOST: c_int = bindings::wq_consts_WQ_MAX_ACTIVE as c_int;

/// The kernel's default for that.
const DEFAULT: c_int = 0;

/// Flags of a queue for unbound work that may take long.
const UNBOUND: c_uint = bindings::wq_flags_WQ_UNBOUND;

/// The same for work that I/O depends on, which is why the reclaim of memory may. The queue has a thread
/// that runs it where there is no memory for another one.
const RECLAIM: c_uint = UNBOUND | bindings::wq_flags_WQ_MEM_RECLAIM;

/// The same for work that runs before that of others.
const URGENT: c_uint = RECLAIM | bindings::wq_flags_WQ_HIGHPRI;

/// A queue of this module; dropping it waits for its work.
///
/// # Invariants
///
/// The queue was made by `uldma_workqueue_new()`, and is destroyed by `drop` only.
struct OwnQueue(NonNull<bindings::workqueue_struct>);

// SAFETY: A work queue may be used from any thread.
unsafe impl Send for OwnQueue {}
// SAFETY: As above, also from many at once.
unsafe impl Sync for OwnQueue {}

impl OwnQueue {
    /// Creates a queue by which at most `most` work items run at a time.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    fn new(name: &'static CStr, flags: c_uint, most: c_int) -> Result<Self> {
        // SAFETY: The name is a string.
        let queue = unsafe { uldma_workqueue_new(name.as_char_ptr(), flags, most) };
        // INVARIANT: It was made just now.
        Ok(Self(NonNull::new(queue).ok_or(ENOMEM)?))
    }
}

impl Drop for OwnQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the queue is valid, and `self` was what it could be reached by.
        unsafe { bindings::destroy_workqueue(self.0.as_ptr()) };
    }
}

/// A queue of the module, while there is one.
type Place = Atomic<*mut bindings::workqueue_struct>;

static HEARTBEAT: Place = Atomic::new(ptr::null_mut());
static PROGRESS: Place = Atomic::new(ptr::null_mut());
static MODULE: Place = Atomic::new(ptr::null_mut());
static WAITING: Place = Atomic::new(ptr::null_mut());

/// The queues of the module, which exist once at a time.
///
/// They have to be dropped after everything that queues work, and before the module is unloaded.
/// Dropping them waits for all queued work, so that none runs in an unloaded module.
pub(crate) struct ModuleQueues {
    // Dropped in this order: the work of each queues work of those after it only.
    _heartbeat: OwnQueue,
    _progress: OwnQueue,
    _module: OwnQueue,
    _waiting: OwnQueue,
}

impl ModuleQueues {
    /// Makes the queues.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, `EBUSY` when there are some.
    pub(crate) fn new() -> Result<Self> {
        if !MODULE.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        let heartbeat = OwnQueue::new(c"uldma-heartbeat", URGENT, DEFAULT)?;
        let progress = OwnQueue::new(c"uldma-progress", RECLAIM, DEFAULT)?;
        let module = OwnQueue::new(c"uldma", UNBOUND, DEFAULT)?;
        let waiting = OwnQueue::new(c"uldma-mm", UNBOUND, MOST)?;
        for (place, queue) in [
            (&HEARTBEAT, &heartbeat),
            (&PROGRESS, &progress),
            (&MODULE, &module),
            (&WAITING, &waiting),
        ] {
            place.store(queue.0.as_ptr(), Release);
        }
        Ok(Self {
            _heartbeat: heartbeat,
            _progress: progress,
            _module: module,
            _waiting: waiting,
        })
    }
}

impl Drop for ModuleQueues {
    fn drop(&mut self) {
        // They are dropped when no device is bound and no file is open, so only queued work has a
        // reference to them, and dropping the fields waits for that.
        for place in [&HEARTBEAT, &PROGRESS, &MODULE, &WAITING] {
            place.store(ptr::null_mut(), Release);
        }
    }
}

fn queue(place: &Place) -> Option<&'static Queue> {
    let queue = place.load(Acquire);
    // SAFETY: The caller belongs to a bound device or an open file, or is work of a queue: all of
    // these end before the `ModuleQueues` are dropped, which is what `'static` stands for.
    (!queue.is_null()).then(|| unsafe { Queue::from_raw(queue) })
}

/// Returns the queue of the module for work that takes no lock under which memory is allocated, if there
/// is one. It runs however little memory there is.
pub(crate) fn heartbeat() -> Option<&'static Queue> {
    queue(&HEARTBEAT)
}

/// Returns the queue of the module for other work that I/O depends on, if there is one. That allocates
/// memory [without I/O](super::noio) only.
pub(crate) fn progress() -> Option<&'static Queue> {
    queue(&PROGRESS)
}

/// Returns the queue of the module for all other work, if there is one.
pub(crate) fn module() -> Option<&'static Queue> {
    queue(&MODULE)
}

/// Returns the queue of the module for work that waits for an address space, if there is one.
///
/// A user can make such work wait for minutes, so there is little of it for each address space, and
/// only the end of the module waits for it.
pub(crate) fn waiting() -> Option<&'static Queue> {
    queue(&WAITING)
}

/// Waits until `work` is neither queued nor running.
///
/// If the caller makes sure that it is not queued any more, it can then release the resources of
/// the work, and the module.
pub(crate) fn flush<T: ?Sized, const ID: u64>(work: &Work<T, ID>) {
    // SAFETY: The work item is initialized, and lives as long as the reference.
    unsafe { bindings::flush_work(Work::raw_get(work)) };
}

/// Waits until delayed `work` is neither queued nor running, and runs it at once if it is queued.
pub(crate) fn flush_delayed<T: ?Sized, const ID: u64>(work: &DelayedWork<T, ID>) {
    // SAFETY: As in `flush`. A `DelayedWork` is the `work` field of a `struct delayed_work`.
    unsafe {
        let work = Work::raw_get(DelayedWork::raw_as_work(work));
        bindings::flush_delayed_work(kernel::container_of!(work, bindings::delayed_work, work));
    }
}
