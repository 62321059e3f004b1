// SPDX-License-Identifier: GPL-2.0

//! Elements of arrays by indices that a user chooses.
//!
//! A processor that predicts the check of an index wrongly loads what is behind the array, and leaves
//! traces of it in its caches (Spectre v1).
//!
//! C header: `include/linux/nospec.h`.

use kernel::prelude::*;

unsafe extern "C" {
    fn uldma_array_index_nospec(index: usize, length: usize) -> usize;
}

/// Returns `index` if it is below `length`; where the processor only predicts that, its value is 0.
fn checked(index: usize, length: usize) -> Option<usize> {
    if index >= length {
        return None;
    }
    // SAFETY: This computes.
    Some(unsafe { uldma_array_index_nospec(index, length) })
}

/// Returns the element at `index`, if there is one.
pub(crate) fn get<T>(array: &[T], index: usize) -> Option<&T> {
    array.get(checked(index, array.len())?)
}

/// Returns the element at `index`, to be changed, if there is one.
pub(crate) fn get_mut<T>(array: &mut [T], index: usize) -> Option<&mut T> {
    array.get_mut(checked(index, array.len())?)
}

#[kunit_tests(uldma_nospec)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_those_of_the_array() {
        let mut array = [7, 8, 9];
        for (index, value) in array.into_iter().enumerate() {
            assert_eq!(get(&array, index), Some(&value));
        }
        for index in [3, 4, usize::MAX >> 1, usize::MAX] {
            assert_eq!(get(&array, index), None);
            assert_eq!(get_mut(&mut array, index), None);
        }
        *get_mut(&mut array, 2).unwrap() = 1;
        assert_eq!(array, [7, 8, 1]);
        assert_eq!(get::<u8>(&[], 0), None);
    }

    /// What the processor computes with where it predicts that the check succeeds.
    #[test]
    fn an_index_beyond_the_array_becomes_the_first() {
        for (index, length) in [(3, 3), (usize::MAX >> 1, 3), (0, 0), (1 << 40, 1 << 20)] {
            // SAFETY: This computes.
            assert_eq!(unsafe { uldma_array_index_nospec(index, length) }, 0);
        }
    }
}
