// SPDX-License-Identifier: GPL-2.0

//! Handles: numbers of the objects of an open file in the user interface.
//!
//! A handle consists of a slot and the number of earlier uses of the slot, so that a stale handle
//! does not name the next object in the slot.

use kernel::prelude::*;

use crate::kernel_ext::nospec;

/// Number of bits of a handle for the slot, plus one.
const PLACE_BITS: u32 = 14;
/// Number of slots of one open file.
const PLACES: usize = (1 << PLACE_BITS) - 1;
/// Number of uses that handles distinguish.
const USES: u32 = 1 << (u32::BITS - PLACE_BITS);

/// The content of a slot.
enum Content<T> {
    Free,
    /// An object is being made.
    Reserved,
    Object(T),
}

struct Slot<T> {
    uses: u32,
    content: Content<T>,
}

impl<T> Slot<T> {
    /// Takes the content out. The handle is invalid from now on, until 2^18 uses later.
    fn end(&mut self) -> Content<T> {
        self.uses = (self.uses + 1) % USES;
        core::mem::replace(&mut self.content, Content::Free)
    }
}

/// A table of objects by handle.
pub(crate) struct Handles<T> {
    /// Megabytes if all slots are in use, which need not be physically contiguous.
    slots: KVVec<Slot<T>>,
    /// All slots before this one are in use.
    free: usize,
    /// No slot from this one on has an object.
    end: usize,
}

impl<T> Handles<T> {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self {
            slots: KVVec::new(),
            free: 0,
            end: 0,
        }
    }

    /// Reserves a slot. Returns its handle, before there is an object. The slot's memory is charged
    /// to no caller, since callers hold locks.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if all slots are in use, `ENOMEM`.
    pub(crate) fn reserve(&mut self) -> Result<u32> {
        let slots = self.slots.iter().enumerate().skip(self.free);
        let mut free = slots.filter(|(_, slot)| matches!(slot.content, Content::Free));
        let place = match free.next() {
            Some((place, _)) => place,
            None if self.slots.len() < PLACES => {
                let slot = Slot {
                    uses: 0,
                    content: Content::Free,
                };
                self.slots.push(slot, GFP_KERNEL)?;
                self.slots.len() - 1
            }
            None => return Err(ENOSPC),
        };
        let slot = self.slots.get_mut(place).ok_or(ENOSPC)?;
        slot.content = Content::Reserved;
        self.free = place + 1;
        Ok(slot.uses << PLACE_BITS | u32::try_from(place + 1)?)
    }

    fn slot(&self, handle: u32) -> Result<&Slot<T>> {
        let place = usize::try_from(handle)? & PLACES;
        let slot = nospec::get(&self.slots, place.checked_sub(1).ok_or(ENOENT)?);
        slot.filter(|slot| slot.uses == handle >> PLACE_BITS)
            .ok_or(ENOENT)
    }

    fn slot_mut(&mut self, handle: u32) -> Result<&mut Slot<T>> {
        let place = usize::try_from(handle)? & PLACES;
        let slot = nospec::get_mut(&mut self.slots, place.checked_sub(1).ok_or(ENOENT)?);
        slot.filter(|slot| slot.uses == handle >> PLACE_BITS)
            .ok_or(ENOENT)
    }

    /// Puts an object into a reserved slot.
    pub(crate) fn insert(&mut self, handle: u32, object: T) -> Result {
        self.slot_mut(handle)?.content = Content::Object(object);
        self.end = self.end.max(usize::try_from(handle)? & PLACES);
        Ok(())
    }

    /// Frees a reserved slot.
    pub(crate) fn cancel(&mut self, handle: u32) {
        if let Ok(slot) = self.slot_mut(handle) {
            slot.end();
            self.freed(handle);
        }
    }

    /// Notes that the slot of `handle` is free.
    fn freed(&mut self, handle: u32) {
        if let Ok(handle) = usize::try_from(handle) {
            self.free = self.free.min((handle & PLACES).saturating_sub(1));
        }
    }

    /// The object of `handle`.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the handle names none.
    pub(crate) fn get(&self, handle: u32) -> Result<&T> {
        match &self.slot(handle)?.content {
            Content::Object(object) => Ok(object),
            Content::Free | Content::Reserved => Err(ENOENT),
        }
    }

    /// The object of `handle`, to be changed.
    pub(crate) fn get_mut(&mut self, handle: u32) -> Result<&mut T> {
        match &mut self.slot_mut(handle)?.content {
            Content::Object(object) => Ok(object),
            Content::Free | Content::Reserved => Err(ENOENT),
        }
    }

    /// Takes the object out.
    pub(crate) fn remove(&mut self, handle: u32) -> Result<T> {
        self.get(handle)?;
        let content = self.slot_mut(handle)?.end();
        self.freed(handle);
        match content {
            Content::Object(object) => Ok(object),
            Content::Free | Content::Reserved => Err(ENOENT),
        }
    }

    /// Takes out the last object for which `condition` returns true, if there is one.
    pub(crate) fn pop_if(&mut self, condition: impl Fn(&T) -> bool) -> Option<T> {
        let slots = self.slots.get_mut(..self.end)?.iter_mut().enumerate().rev();
        let mut objects = slots.filter(|(_, slot)| matches!(slot.content, Content::Object(_)));
        // Slots after the last object need not be searched again.
        let (last, _) = objects.next()?;
        self.end = last + 1;
        let slots = self.slots.get_mut(..self.end)?.iter_mut().enumerate().rev();
        for (place, slot) in slots {
            let Content::Object(object) = &slot.content else {
                continue;
            };
            if condition(object) {
                self.free = self.free.min(place);
                return match slot.end() {
                    Content::Object(object) => Some(object),
                    Content::Free | Content::Reserved => None,
                };
            }
        }
        None
    }

    /// All objects.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| match &slot.content {
            Content::Object(object) => Some(object),
            Content::Free | Content::Reserved => None,
        })
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
