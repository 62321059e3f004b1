// SPDX-License-Identifier: MIT OR Apache-2.0

//! The address space: what an address maps, and the invalidations before that changes.

/// A frame, and what may be done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Page {
    /// 0 or 1.
    pub frame: u8,
    /// It may be written, too.
    pub write: bool,
}

impl Page {
    /// Returns the word of a page entry that names the page.
    pub fn word(self) -> u8 {
        1 + 2 * self.frame + u8::from(self.write)
    }

    /// Returns the page that a word names, none if it is not VALID.
    pub fn named_by(word: u8) -> Option<Self> {
        let bits = word.checked_sub(1)?;
        Some(Self {
            frame: bits / 2,
            write: bits % 2 == 1,
        })
    }
}

/// Why the mm calls a notifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The address maps nothing afterwards, and the frame is used for other data.
    Unmap,
    /// The page may not be written afterwards.
    Protect,
}

/// The address space: what the address maps, and the invalidations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mm {
    /// What the address maps.
    pub page: Option<Page>,
    /// The frame that was mapped last.
    frame: u8,
    /// Odd while an invalidation is under way.
    pub sequence: u8,
    /// Invalidations that are under way.
    active: u8,
    /// Notifiers that have returned true, and whose change of the mapping was not made yet.
    returned: u8,
}

impl Mm {
    /// Returns an address space that maps `page`.
    pub fn new(page: Page) -> Self {
        Self {
            page: Some(page),
            frame: page.frame,
            sequence: 0,
            active: 0,
            returned: 0,
        }
    }

    /// Begins an invalidation. Returns the sequence that the notifier gets.
    pub fn begin(&mut self) -> u8 {
        self.sequence += u8::from(self.active == 0);
        self.active += 1;
        self.sequence
    }

    /// Ends an invalidation.
    pub fn end(&mut self) {
        self.active -= 1;
        self.sequence += u8::from(self.active == 0);
    }

    /// Tells that a notifier has returned true: no access is permitted until the mapping changes.
    pub fn notified(&mut self) {
        self.returned += 1;
    }

    /// Changes the mapping to what `event` leaves of it, and ends the invalidation.
    ///
    /// A fill that looks the mapping up between the two has an older sequence, as it would wait else,
    /// and publishes nothing. So they are one step.
    pub fn change(&mut self, event: Event) {
        self.page = self.page.filter(|_| event == Event::Protect);
        if let Some(page) = &mut self.page {
            page.write = false;
        }
        self.returned -= 1;
        self.end();
    }

    /// Returns the page that the address maps. If there is none, the mm gets another frame for it; if it
    /// has to be written and may not be, that changes. Neither has a notifier.
    pub fn fault(&mut self, write: bool) -> Page {
        let other = 1 - self.frame;
        let page = self.page.get_or_insert(Page {
            frame: other,
            write: true,
        });
        page.write |= write;
        self.frame = page.frame;
        *page
    }

    /// Returns true if the device may access a page.
    pub fn permits(&self, page: Page) -> bool {
        let same = self.page.filter(|own| own.frame == page.frame);
        self.returned == 0 && same.is_some_and(|own| own.write || !page.write)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_may_be_accessed_from_the_notifier_to_the_next_mapping() {
        let page = Page {
            frame: 0,
            write: true,
        };
        let mut mm = Mm::new(page);
        assert_eq!(mm.begin() % 2, 1);
        assert!(mm.permits(page));
        mm.notified();
        assert!(!mm.permits(page));
        mm.change(Event::Protect);
        assert_eq!(mm.sequence % 2, 0);
        assert!(!mm.permits(page));
        let read = Page {
            write: false,
            ..page
        };
        assert!(mm.permits(read));
        for _ in 0..2 {
            mm.begin();
            mm.notified();
        }
        mm.change(Event::Unmap);
        assert!(mm.page.is_none() && mm.sequence % 2 == 1);
        let other = mm.fault(false);
        assert_ne!(other.frame, page.frame);
        assert!(!mm.permits(other));
    }
}
