// SPDX-License-Identifier: GPL-2.0

//! Lists that usually have one element, which needs no allocation.

use kernel::prelude::*;

/// A list.
pub(crate) enum List<T> {
    Empty,
    One(T),
    Many(KVVec<T>),
}

impl<T> List<T> {
    /// Adds an element. Its memory is charged to no caller, since callers hold locks.
    pub(crate) fn push(&mut self, element: T) -> Result {
        match self {
            Self::Empty => *self = Self::One(element),
            Self::One(_) => {
                let mut many = KVVec::with_capacity(2, GFP_KERNEL)?;
                if let Self::One(first) = core::mem::replace(self, Self::Empty) {
                    many.push(first, GFP_KERNEL)?;
                }
                many.push(element, GFP_KERNEL)?;
                *self = Self::Many(many);
            }
            Self::Many(many) => many.push(element, GFP_KERNEL)?,
        }
        Ok(())
    }
}

impl<T: Copy> List<T> {
    /// Creates a list of `elements`.
    pub(crate) fn of(elements: &[T]) -> Result<Self> {
        match elements {
            [] => Ok(Self::Empty),
            [element] => Ok(Self::One(*element)),
            elements => {
                let mut many = KVVec::with_capacity(elements.len(), GFP_KERNEL_ACCOUNT)?;
                many.extend_from_slice(elements, GFP_KERNEL_ACCOUNT)?;
                Ok(Self::Many(many))
            }
        }
    }
}

impl<T> core::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Empty => &[],
            Self::One(element) => core::slice::from_ref(element),
            Self::Many(many) => many,
        }
    }
}

impl<T> core::ops::DerefMut for List<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::Empty => &mut [],
            Self::One(element) => core::slice::from_mut(element),
            Self::Many(many) => many,
        }
    }
}

#[kunit_tests(uldma_list)]
mod tests {
    use super::*;

    #[test]
    fn elements_stay_in_order() -> Result {
        let mut list = List::Empty;
        for count in 0..5 {
            assert_eq!(list.len(), count);
            list.push(count)?;
            assert!(list.iter().copied().eq(0..=count));
        }
        for element in list.iter_mut() {
            *element += 1;
        }
        assert!(List::of(&list)?.iter().copied().eq(1..6));
        assert!(List::of(&[7])?.iter().copied().eq([7]));
        assert!(List::<u8>::of(&[])?.is_empty());
        Ok(())
    }
}
