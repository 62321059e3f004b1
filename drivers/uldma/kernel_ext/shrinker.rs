// SPDX-License-Identifier: GPL-2.0

//! Shrinkers, which release memory when it is short.
//!
//! C header: `include/linux/shrinker.h`.

use core::ptr::NonNull;

use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// An owner of memory that can be released.
pub(crate) trait Shrink: Send + Sync + 'static {
    /// Returns the number of objects that could be released.
    fn count(&self) -> usize;

    /// Requests that `objects` objects be released later, in a context that holds no locks of an
    /// allocating thread.
    ///
    /// Called by a thread that allocates memory, under any locks, so this takes no lock.
    fn request_shrink(&self, objects: usize);
}

/// A shrinker that is registered until it is dropped.
///
/// # Invariants
///
/// `shrinker` is registered, and its private data is `owner`.
pub(crate) struct Registration<T: Shrink> {
    shrinker: NonNull<bindings::shrinker>,
    _owner: Arc<T>,
}

// SAFETY: A shrinker may be freed from any thread; the rest is `Send`.
unsafe impl<T: Shrink> Send for Registration<T> {}

impl<T: Shrink> Registration<T> {
    /// Registers `owner` as `name`.
    pub(crate) fn new(name: &'static CStr, owner: Arc<T>) -> Result<Self> {
        // SAFETY: The format takes one string, which is what is passed.
        let shrinker =
            unsafe { bindings::shrinker_alloc(0, c"%s".as_char_ptr(), name.as_char_ptr()) };
        let shrinker = NonNull::new(shrinker).ok_or(ENOMEM)?;
        // SAFETY: The shrinker is allocated and not registered yet. What `owner` points at lives until
        // it is freed.
        unsafe {
            let raw = shrinker.as_ptr();
            (*raw).count_objects = Some(Self::count);
            (*raw).scan_objects = Some(Self::scan);
            (*raw).private_data = core::ptr::from_ref(&*owner).cast_mut().cast();
            bindings::shrinker_register(raw);
        }
        // INVARIANT: It was registered just now.
        Ok(Self {
            shrinker,
            _owner: owner,
        })
    }

    /// # Safety
    ///
    /// `shrinker` must be registered by [`Self::new`].
    unsafe fn owner<'a>(shrinker: *mut bindings::shrinker) -> &'a T {
        // SAFETY: By the type invariant this is what the private data points at.
        unsafe { &*(*shrinker).private_data.cast() }
    }

    /// # Safety
    ///
    /// Called by the memory manager for a shrinker that [`Self::new`] registered.
    unsafe extern "C" fn count(
        shrinker: *mut bindings::shrinker,
        _control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: The shrinker is registered.
        unsafe { Self::owner(shrinker) }.count()
    }

    /// # Safety
    ///
    /// Called by the memory manager for a shrinker that [`Self::new`] registered.
    unsafe extern "C" fn scan(
        shrinker: *mut bindings::shrinker,
        control: *mut bindings::shrink_control,
    ) -> c_ulong {
        // SAFETY: The control block is valid during this call.
        let objects = unsafe { (*control).nr_to_scan };
        // SAFETY: The shrinker is registered.
        unsafe { Self::owner(shrinker) }.request_shrink(objects);
        // Nothing has been released yet; this is `SHRINK_STOP`.
        c_ulong::MAX
    }
}

impl<T: Shrink> Drop for Registration<T> {
    fn drop(&mut self) {
        // SAFETY: The shrinker is registered by the type invariant. It is not called afterwards.
        unsafe { bindings::shrinker_free(self.shrinker.as_ptr()) };
    }
}
