// SPDX-License-Identifier: GPL-2.0

//! Notifications of context switches.
//!
//! This is the `sched_switch` tracepoint, which reports all switches of all CPUs. Preempt notifiers
//! work only for threads that register themselves, and cannot be unregistered by other threads;
//! here all threads matter.
//!
//! C header: `include/linux/tracepoint.h`.

use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc, //
};

unsafe extern "C" {
    fn uldma_sched_switch_register(
        probe: unsafe extern "C" fn(
            *mut c_void,
            bool,
            *mut bindings::task_struct,
            *mut bindings::task_struct,
            c_uint,
        ),
        data: *mut c_void,
    ) -> c_int;
    fn uldma_sched_switch_unregister(
        probe: unsafe extern "C" fn(
            *mut c_void,
            bool,
            *mut bindings::task_struct,
            *mut bindings::task_struct,
            c_uint,
        ),
        data: *mut c_void,
    );
    fn uldma_sched_switch_synchronize();
    fn uldma_on_each_cpu(call: unsafe extern "C" fn(*mut c_void), data: *mut c_void);
    fn uldma_cpu() -> c_uint;
    fn uldma_possible_cpus() -> c_uint;
}

/// A receiver of notifications.
pub(crate) trait Switched: Send + Sync + 'static {
    /// On this CPU, which is `cpu`, a thread of the address space at `mm` runs from now on; `mm` is
    /// 0 for a kernel thread.
    ///
    /// Called with interrupts off and the lock of the run queue held, so this must neither sleep,
    /// nor wake a thread, nor take a lock under which a thread may be woken.
    fn switched(&self, cpu: u32, mm: usize);
}

/// Returns the maximum number of CPUs; the numbers of CPUs are less.
pub(crate) fn possible_cpus() -> u32 {
    // SAFETY: May be called from any context.
    unsafe { uldma_possible_cpus() }
}

/// Notifies `observer` of all switches.
///
/// # Invariants
///
/// The probe is registered with `observer` as its data.
pub(crate) struct Registration<T: Switched> {
    observer: Arc<T>,
}

impl<T: Switched> Registration<T> {
    /// Notifies `observer` from now on, and at once of the current thread of each CPU.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the kernel has no such tracepoint, `ENOMEM`.
    pub(crate) fn new(observer: Arc<T>) -> Result<Self> {
        // SAFETY: The probe has the form that this tracepoint calls, and `observer` lives until it is
        // unregistered.
        to_result(unsafe { uldma_sched_switch_register(Self::probe, Self::data(&observer)) })?;
        // INVARIANT: It was registered just now.
        let this = Self { observer };
        this.refresh();
        Ok(this)
    }

    /// Notifies again of the current thread of each CPU. Sleeps.
    pub(crate) fn refresh(&self) {
        // SAFETY: The data is what `now` expects, and this returns when all CPUs have called it.
        unsafe { uldma_on_each_cpu(Self::now, Self::data(&self.observer)) };
    }

    fn data(observer: &Arc<T>) -> *mut c_void {
        core::ptr::from_ref::<T>(observer).cast_mut().cast()
    }

    /// # Safety
    ///
    /// `data` is [`Self::data`] of what is alive; called with preemption off.
    unsafe extern "C" fn now(data: *mut c_void) {
        // SAFETY: As the function requires.
        let observer = unsafe { &*data.cast::<T>() };
        // SAFETY: There always is a current task.
        let mm = unsafe { (*bindings::get_current()).mm };
        // SAFETY: Preemption is off.
        observer.switched(unsafe { uldma_cpu() }, mm.addr());
    }

    /// # Safety
    ///
    /// `data` is [`Self::data`] of what is alive; called by the scheduler.
    unsafe extern "C" fn probe(
        data: *mut c_void,
        _preempt: bool,
        _prev: *mut bindings::task_struct,
        next: *mut bindings::task_struct,
        _prev_state: c_uint,
    ) {
        // SAFETY: As the function requires.
        let observer = unsafe { &*data.cast::<T>() };
        // SAFETY: The scheduler holds on to the task, whose address space changes only while it
        // runs.
        let mm = unsafe { (*next).mm };
        // SAFETY: Preemption is off.
        observer.switched(unsafe { uldma_cpu() }, mm.addr());
    }
}

impl<T: Switched> Drop for Registration<T> {
    /// Waits for a grace period, so the registration is not dropped under a lock that others take.
    fn drop(&mut self) {
        // SAFETY: By the type invariant the probe is registered with this data.
        unsafe { uldma_sched_switch_unregister(Self::probe, Self::data(&self.observer)) };
        // The observer lives until the probe has run for the last time.
        // SAFETY: Called from process context, as it sleeps.
        unsafe { uldma_sched_switch_synchronize() };
    }
}
