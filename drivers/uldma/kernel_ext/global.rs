// SPDX-License-Identifier: GPL-2.0

//! Objects of which the module has one, and which its devices share.

use core::ptr;

use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Release, //
        },
        Arc,
        ArcBorrow, //
    }, //
};

/// The place of an object that exists as long as its [`Keeper`].
///
/// # Invariants
///
/// It is null, or from `Arc::into_raw()` of a reference that the keeper drops.
pub(crate) struct Global<T: 'static>(Atomic<*mut T>);

/// Keeps the object of a [`Global`].
///
/// It has to be dropped after all that use the object: bound devices and open files.
pub(crate) struct Keeper<T: 'static> {
    place: &'static Global<T>,
    _object: Arc<T>,
}

impl<T: Send + Sync> Global<T> {
    /// Creates a place without an object.
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(ptr::null_mut()))
    }

    /// Puts `object` here until the result is dropped.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is one.
    pub(crate) fn keep(&'static self, object: Arc<T>) -> Result<Keeper<T>> {
        if !self.0.load(Acquire).is_null() {
            return Err(EBUSY);
        }
        // INVARIANT: The keeper has a reference of its own.
        self.0.store(Arc::as_ptr(&object).cast_mut(), Release);
        Ok(Keeper {
            place: self,
            _object: object,
        })
    }

    /// Returns the object, if there is one.
    pub(crate) fn get(&self) -> Option<Arc<T>> {
        let object = self.0.load(Acquire);
        if object.is_null() {
            return None;
        }
        // SAFETY: The caller belongs to a bound device or an open file, which end before the
        // keeper, so the reference that the pointer is from exists.
        let object = unsafe { ArcBorrow::from_raw(object) };
        Some(object.into())
    }
}

impl<T> Drop for Keeper<T> {
    fn drop(&mut self) {
        self.place.0.store(ptr::null_mut(), Release);
    }
}
