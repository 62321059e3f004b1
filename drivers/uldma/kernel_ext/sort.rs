// SPDX-License-Identifier: GPL-2.0

//! Sorting by the kernel's heap sort.
//!
//! `core` has a quicker one, of whose parts that never return objtool does not know.

use core::{
    cmp::Ordering,
    ffi::c_void, //
};

use kernel::prelude::*;

type Compare = unsafe extern "C" fn(*const c_void, *const c_void, *const c_void) -> c_int;
type Swap = unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, *const c_void);

unsafe extern "C" {
    // As in include/linux/sort.h, of which there are no bindings.
    fn sort_r(
        base: *mut c_void,
        num: usize,
        size: usize,
        compare: Option<Compare>,
        swap: Option<Swap>,
        private: *const c_void,
    );
}

/// Sorts by a key; what has the same key is in no order.
pub(crate) fn sort_by_key<T: Copy, K: Ord, F: Fn(&T) -> K>(all: &mut [T], key: F) {
    /// Compares two elements for `sort_r()`.
    ///
    /// # Safety
    ///
    /// The arguments are pointers to a `T`, another one, and an `F`.
    unsafe extern "C" fn compare<T, K: Ord, F: Fn(&T) -> K>(
        a: *const c_void,
        b: *const c_void,
        key: *const c_void,
    ) -> c_int {
        // SAFETY: As the caller promises.
        let (a, b, key) = unsafe { (&*a.cast::<T>(), &*b.cast::<T>(), &*key.cast::<F>()) };
        match key(a).cmp(&key(b)) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    // SAFETY: The first three arguments are those of a slice, whose elements may be moved byte by byte;
    // `compare` gets two of them and the key, all of which outlive the call.
    unsafe {
        sort_r(
            all.as_mut_ptr().cast(),
            all.len(),
            size_of::<T>(),
            Some(compare::<T, K, F>),
            None,
            (&raw const key).cast(),
        )
    };
}

#[kunit_tests(uldma_sort)]
mod tests {
    use super::*;

    #[test]
    fn all_are_in_order() {
        let mut all = [(3, 'c'), (1, 'a'), (2, 'b'), (0, '-'), (9, 'z'), (5, 'e')];
        sort_by_key(&mut all, |one| one.0);
        assert_eq!(all.map(|one| one.1), ['-', 'a', 'b', 'c', 'e', 'z']);
        sort_by_key(&mut all, |one| core::cmp::Reverse(one.0));
        assert_eq!(all.map(|one| one.0), [9, 5, 3, 2, 1, 0]);
        sort_by_key(&mut all[..0], |one| one.0);
    }
}
