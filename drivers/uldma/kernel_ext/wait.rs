// SPDX-License-Identifier: GPL-2.0

//! Bounded waiting, the signals that end it, and the end of polling.

use kernel::{
    bindings,
    prelude::*,
    sync::{
        CondVar,
        CondVarTimeoutResult,
        Mutex, //
    },
    time::{
        msecs_to_jiffies,
        Delta,
        Instant,
        Jiffies,
        Monotonic,
        NSEC_PER_MSEC, //
    }, //
};

unsafe extern "C" {
    fn uldma_need_resched() -> bool;
}

/// Returns true if another thread waits for the processor of this one, which should not poll then.
pub(crate) fn is_processor_wanted() -> bool {
    // SAFETY: This reads the flags of the current thread.
    unsafe { uldma_need_resched() }
}

/// What ends a wait before its time, besides that which is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Each signal, also SIGSTOP.
    Signals,
    /// A fatal signal. Others, and stops, have to wait.
    Death,
    Nothing,
}

impl EndedBy {
    /// Returns the state in which the thread sleeps.
    pub(super) fn state(self) -> c_uint {
        match self {
            Self::Signals => bindings::TASK_INTERRUPTIBLE,
            Self::Death => bindings::TASK_KILLABLE,
            Self::Nothing => bindings::TASK_UNINTERRUPTIBLE,
        }
    }
}

/// The end of the time that a call has.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    begun: Instant<Monotonic>,
    timeout_ns: u64,
}

impl Deadline {
    /// Begins the time of a call.
    pub(crate) fn after(timeout_ns: u64) -> Self {
        Self {
            begun: Instant::now(),
            timeout_ns,
        }
    }

    /// Returns the nanoseconds that are left.
    pub(crate) fn left(self) -> u64 {
        let elapsed = u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(0);
        self.timeout_ns.saturating_sub(elapsed)
    }

    /// Returns the time that is left.
    pub(crate) fn time_left(self) -> Delta {
        Delta::from_nanos(i64::try_from(self.left()).unwrap_or(i64::MAX))
    }
}

/// Returns true if a signal ended the call that failed with `err`: it fails with `EINTR` if the signal
/// has a handler. After other wake-ups, for example SIGSTOP and SIGCONT, the kernel makes it anew, with
/// the same argument.
pub(crate) fn is_interrupted(err: Error) -> bool {
    err == ERESTARTNOHAND
}

fn jiffies(timeout_ns: u64) -> Jiffies {
    let ms = timeout_ns.div_ceil(NSEC_PER_MSEC.unsigned_abs());
    msecs_to_jiffies(u32::try_from(ms).unwrap_or(u32::MAX))
}

/// Waits on `condvar` until `ready`, which is called with `mutex` held, returns something.
///
/// # Errors
///
/// `ETIMEDOUT` after `timeout_ns`; `EINTR` if a signal with a handler comes. Other wake-ups, for
/// example SIGSTOP and SIGCONT, restart the call.
pub(crate) fn until<T: Unpin, R>(
    condvar: &CondVar,
    mutex: &Mutex<T>,
    timeout_ns: u64,
    mut ready: impl FnMut(&mut T) -> Option<R>,
) -> Result<R> {
    let mut left = jiffies(timeout_ns);
    let mut guard = mutex.lock();
    loop {
        if let Some(result) = ready(&mut guard) {
            return Ok(result);
        }
        if left == 0 {
            return Err(ETIMEDOUT);
        }
        left = match condvar.wait_interruptible_timeout(&mut guard, left) {
            CondVarTimeoutResult::Woken { jiffies } => jiffies,
            CondVarTimeoutResult::Timeout => 0,
            CondVarTimeoutResult::Signal { .. } => return Err(ERESTARTNOHAND),
        };
    }
}
