// SPDX-License-Identifier: GPL-2.0

//! Pins that several objects share: a page that two devices have at the same address of an address
//! space is pinned once.
//!
//! The table counts, for each page, the objects that use it and the pins that it has for them. An
//! object that enters a page that the table has gives up its own pin; the last pins end with the
//! last users. A page is found by its address *and* its frame, so an object that has pinned what is
//! mapped now never gets an earlier page.

use kernel::{
    new_mutex,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNodeReservation, //
    },
    sync::{
        Arc,
        Mutex, //
    }, //
};

/// A page: its number in the address space, and that of its frame.
pub(super) type Key = (usize, usize);

/// The use of a page.
pub(super) struct Use {
    /// Number of objects that have the page.
    users: usize,
    /// Number of pins for them, at least 1 and at most one for each.
    pins: usize,
}

/// The pins of one address space, of all objects that share them.
///
/// # Invariants
///
/// Each page in the table has as many pins as its [`Use`] counts, which end in
/// [`SharedPins::release`] only.
#[pin_data]
pub(crate) struct SharedPins {
    #[pin]
    pages: Mutex<RBTree<Key, Use>>,
}

impl SharedPins {
    /// Creates a table without pages.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let pins = pin_init!(Self {
            pages <- new_mutex!(RBTree::new(), "uldma::SharedPins::pages"),
        });
        Arc::pin_init(pins, GFP_KERNEL)
    }

    /// Adds a user of a page, which has a pin. Returns true if the table takes the pin over, and
    /// false if the user has to end it, since the table has the page already. `charge` gets the
    /// same value before.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `charge`; the pin is the user's then.
    pub(super) fn enter(&self, page: Key, charge: &mut impl FnMut(bool) -> Result) -> Result<bool> {
        // Reclaim of memory takes the lock, so nothing is allocated below it.
        let room = Self::reserve()?;
        let mut pages = self.pages.lock();
        if let Some(known) = pages.get_mut(&page) {
            charge(false)?;
            known.users += 1;
            return Ok(false);
        }
        charge(true)?;
        pages.insert(room.into_node(page, Use { users: 1, pins: 1 }));
        Ok(true)
    }

    /// Allocates memory for one page, which is charged to no caller, since callers hold locks.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn reserve() -> Result<RBTreeNodeReservation<Key, Use>> {
        RBTreeNodeReservation::new(GFP_KERNEL)
    }

    /// Adds a user of a page. The table takes its pin over even if it has the page already.
    pub(super) fn enter_with_pin(&self, page: Key, room: RBTreeNodeReservation<Key, Use>) {
        let mut pages = self.pages.lock();
        match pages.get_mut(&page) {
            Some(known) => {
                known.users += 1;
                known.pins += 1;
            }
            None => {
                pages.insert(room.into_node(page, Use { users: 1, pins: 1 }));
            }
        }
    }

    /// Removes a user of a page. Returns true if one pin of the page has to end, which is the
    /// caller's then.
    pub(super) fn release(&self, page: Key) -> bool {
        let mut pages = self.pages.lock();
        let Some(known) = pages.get_mut(&page) else {
            return false;
        };
        known.users -= 1;
        if known.users >= known.pins {
            return false;
        }
        known.pins -= 1;
        if known.pins == 0 {
            pages.remove(&page);
        }
        true
    }

    /// Returns the number of page numbers in `[start, end)` for which the table has a page.
    pub(crate) fn count(&self, start: usize, end: usize) -> usize {
        let pages = self.pages.lock();
        let mut count = 0;
        let mut next = start;
        while let Some(cursor) = pages.cursor_lower_bound(&(next, 0)) {
            let (page, _) = *cursor.current().0;
            if page >= end {
                break;
            }
            count += 1;
            next = page + 1;
        }
        count
    }
}

#[kunit_tests(uldma_shared_pins)]
mod tests {
    use super::*;

    fn enter(pins: &SharedPins, page: Key) -> Result<bool> {
        let mut told = None;
        let new = pins.enter(page, &mut |new| {
            told = Some(new);
            Ok(())
        })?;
        assert_eq!(told, Some(new));
        Ok(new)
    }

    #[test]
    fn a_page_that_is_not_charged_is_not_entered() -> Result {
        let pins = SharedPins::new()?;
        assert_eq!(pins.enter((5, 70), &mut |_| Err(EPERM)), Err(EPERM));
        assert_eq!(pins.count(5, 6), 0);
        assert!(enter(&pins, (5, 70))?);
        assert_eq!(pins.enter((5, 70), &mut |_| Err(EPERM)), Err(EPERM));
        assert!(pins.release((5, 70)));
        Ok(())
    }

    #[test]
    fn a_page_is_pinned_once_until_the_last_user_ends() -> Result {
        let pins = SharedPins::new()?;
        assert!(enter(&pins, (5, 70))?);
        assert!(!enter(&pins, (5, 70))?);
        assert!(!enter(&pins, (5, 70))?);
        assert_eq!(pins.count(5, 6), 1);
        assert!(!pins.release((5, 70)));
        assert!(!pins.release((5, 70)));
        assert!(pins.release((5, 70)));
        assert_eq!(pins.count(0, usize::MAX), 0);
        assert!(enter(&pins, (5, 70))?);
        assert!(pins.release((5, 70)));
        Ok(())
    }

    #[test]
    fn another_frame_or_address_is_another_page() -> Result {
        let pins = SharedPins::new()?;
        assert!(enter(&pins, (5, 70))?);
        assert!(enter(&pins, (5, 71))?);
        assert!(enter(&pins, (6, 70))?);
        assert_eq!(pins.count(0, 6), 1);
        assert_eq!(pins.count(5, 7), 2);
        assert!(pins.release((5, 70)));
        assert_eq!(pins.count(5, 7), 2);
        assert!(pins.release((5, 71)));
        assert!(pins.release((6, 70)));
        Ok(())
    }

    #[test]
    fn pins_from_before_the_sharing_end_one_by_one() -> Result {
        let pins = SharedPins::new()?;
        pins.enter_with_pin((5, 70), SharedPins::reserve()?);
        pins.enter_with_pin((5, 70), SharedPins::reserve()?);
        assert!(!enter(&pins, (5, 70))?);
        assert!(!pins.release((5, 70)));
        assert!(pins.release((5, 70)));
        assert!(pins.release((5, 70)));
        assert!(!pins.release((5, 70)));
        Ok(())
    }

    /// Any order of entries and ends leaves as many pins as users need, and in the end none.
    #[test]
    fn pins_and_users_end_together() -> Result {
        let pins = SharedPins::new()?;
        for with_pin in 0..4 {
            for without in 0..4 {
                let mut held = with_pin;
                for _ in 0..with_pin {
                    pins.enter_with_pin((1, 1), SharedPins::reserve()?);
                }
                for _ in 0..without {
                    held += usize::from(enter(&pins, (1, 1))?);
                }
                for left in (0..with_pin + without).rev() {
                    held -= usize::from(pins.release((1, 1)));
                    assert!(held <= left && (held > 0) == (left > 0));
                }
                assert_eq!(held, 0);
            }
        }
        Ok(())
    }
}
