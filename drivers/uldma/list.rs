// SPDX-License-Identifier: GPL-2.0

//! Lists that most often have one element, which then costs no allocation.

use kernel::prelude::*;

/// A list of at least one element.
pub(crate) enum List<T> {
    One(T),
    Many(KVec<T>),
}

impl<T: Copy> List<T> {
    /// A list of what `elements`, not empty, has.
    pub(crate) fn of(elements: &[T]) -> Result<Self> {
        match elements {
            [] => Err(EINVAL),
            [element] => Ok(Self::One(*element)),
            elements => {
                let mut many = KVec::with_capacity(elements.len(), GFP_KERNEL_ACCOUNT)?;
                many.extend_from_slice(elements, GFP_KERNEL_ACCOUNT)?;
                Ok(Self::Many(many))
            }
        }
    }

    /// Adds an element to what may have been none.
    pub(crate) fn push(this: Option<Self>, element: T) -> Result<Self> {
        match this {
            None => Ok(Self::One(element)),
            Some(Self::One(first)) => Self::of(&[first, element]),
            Some(Self::Many(mut many)) => {
                many.push(element, GFP_KERNEL_ACCOUNT)?;
                Ok(Self::Many(many))
            }
        }
    }
}

impl<T> core::ops::Deref for List<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::One(element) => core::slice::from_ref(element),
            Self::Many(many) => many,
        }
    }
}
