// SPDX-License-Identifier: GPL-2.0

//! Numbers that stand for an opener's objects in the user interface.
//!
//! A handle is a place and how often the place was used before, so that a handle whose object is
//! gone does not name the next object in its place.

use kernel::prelude::*;

/// Bits of a handle that are the place, plus one.
const PLACE_BITS: u32 = 14;
/// Places of one opener.
const PLACES: usize = (1 << PLACE_BITS) - 1;
/// Uses that are told apart.
const USES: u32 = 1 << (u32::BITS - PLACE_BITS);

struct Slot<T> {
    uses: u32,
    object: Option<T>,
}

/// A table of objects by handle.
pub(crate) struct Handles<T> {
    slots: KVec<Slot<T>>,
}

impl<T> Handles<T> {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self { slots: KVec::new() }
    }

    /// Finds a place, of which the handle is known before there is an object.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when all places are taken, `ENOMEM`.
    pub(crate) fn reserve(&mut self) -> Result<u32> {
        let free = self.slots.iter().position(|slot| slot.object.is_none());
        let place = match free {
            Some(place) => place,
            None if self.slots.len() < PLACES => {
                let slot = Slot {
                    uses: 0,
                    object: None,
                };
                self.slots.push(slot, GFP_KERNEL_ACCOUNT)?;
                self.slots.len() - 1
            }
            None => return Err(ENOSPC),
        };
        let uses = self.slots.get(place).ok_or(ENOSPC)?.uses;
        Ok(uses << PLACE_BITS | u32::try_from(place + 1)?)
    }

    fn slot(&self, handle: u32) -> Result<usize> {
        let place = usize::try_from(handle)? & PLACES;
        let place = place.checked_sub(1).ok_or(ENOENT)?;
        let slot = self.slots.get(place).ok_or(ENOENT)?;
        if slot.uses != handle >> PLACE_BITS {
            return Err(ENOENT);
        }
        Ok(place)
    }

    /// Puts an object at a reserved place.
    pub(crate) fn insert(&mut self, handle: u32, object: T) -> Result {
        let place = self.slot(handle)?;
        self.slots.get_mut(place).ok_or(ENOENT)?.object = Some(object);
        Ok(())
    }

    /// The object of `handle`.
    ///
    /// # Errors
    ///
    /// `ENOENT`, here and in the other methods, when the handle names none.
    pub(crate) fn get(&self, handle: u32) -> Result<&T> {
        let place = self.slot(handle)?;
        let slot = self.slots.get(place).ok_or(ENOENT)?;
        slot.object.as_ref().ok_or(ENOENT)
    }

    /// The object of `handle`, to be changed.
    pub(crate) fn get_mut(&mut self, handle: u32) -> Result<&mut T> {
        let place = self.slot(handle)?;
        let slot = self.slots.get_mut(place).ok_or(ENOENT)?;
        slot.object.as_mut().ok_or(ENOENT)
    }

    /// Takes the object out; the handle never names anything again, until 2^18 uses later.
    pub(crate) fn remove(&mut self, handle: u32) -> Result<T> {
        let place = self.slot(handle)?;
        let slot = self.slots.get_mut(place).ok_or(ENOENT)?;
        let object = slot.object.take().ok_or(ENOENT)?;
        slot.uses = (slot.uses + 1) % USES;
        Ok(object)
    }

    /// Takes any object out, until none is left.
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.slots.iter_mut().find_map(|slot| slot.object.take())
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.object.as_ref())
    }
}

#[kunit_tests(uldma_handles)]
mod tests {
    use super::*;

    #[test]
    fn stale_handles_name_nothing() -> Result {
        let mut handles = Handles::new();
        let first = handles.reserve()?;
        assert!(first != 0);
        assert!(handles.get(first).is_err());
        handles.insert(first, 'a')?;
        assert_eq!(handles.get(first), Ok(&'a'));
        assert_eq!(handles.remove(first), Ok('a'));
        assert_eq!(handles.get(first), Err(ENOENT));
        assert_eq!(handles.remove(first), Err(ENOENT));

        let second = handles.reserve()?;
        handles.insert(second, 'b')?;
        assert!(second != first);
        assert_eq!(handles.get(first), Err(ENOENT));
        assert_eq!(handles.get(0), Err(ENOENT));
        assert_eq!(handles.get(u32::MAX), Err(ENOENT));
        Ok(())
    }
}
