// SPDX-License-Identifier: GPL-2.0

//! Sections in which no allocation of the thread starts I/O or waits for it.
//!
//! C header: `include/linux/sched/mm.h`.

use kernel::{
    prelude::*,
    types::NotThreadSafe, //
};

unsafe extern "C" {
    fn uldma_noio_save() -> c_uint;
    fn uldma_noio_restore(flags: c_uint);
}

/// Allocations of this thread are as by `GFP_NOIO`, whatever their flags, until this is dropped.
struct NoIo {
    flags: c_uint,
    _not_send: NotThreadSafe,
}

impl NoIo {
    fn new() -> Self {
        // SAFETY: This sets a flag of the current thread.
        let flags = unsafe { uldma_noio_save() };
        Self {
            flags,
            _not_send: NotThreadSafe,
        }
    }
}

impl Drop for NoIo {
    fn drop(&mut self) {
        // SAFETY: `new` has set these flags in this thread. Sections are nested, since `without_io` has all
        // of them.
        unsafe { uldma_noio_restore(self.flags) };
    }
}

/// Calls `call`, of which no allocation starts I/O or waits for it.
///
/// For what I/O may depend on: the memory that it waits for could only be freed by that I/O.
pub(crate) fn without_io<R>(call: impl FnOnce() -> R) -> R {
    let _no_io = NoIo::new();
    call()
}

/// Returns true inside of [`without_io`].
#[cfg(CONFIG_KUNIT = "y")]
pub(crate) fn is_without_io() -> bool {
    // The kernel returns what it has set.
    NoIo::new().flags == 0
}

#[kunit_tests(uldma_noio)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_nested() {
        assert!(!is_without_io());
        without_io(|| {
            assert!(is_without_io());
            without_io(|| assert!(is_without_io()));
            assert!(is_without_io());
        });
        assert!(!is_without_io());
    }
}
