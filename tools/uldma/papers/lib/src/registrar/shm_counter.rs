// SPDX-License-Identifier: MIT OR Apache-2.0

//! The counter of the shm_ctl mode: areas in each System V segment, for all of its attachments.

use std::collections::HashMap;

use super::segment::Segment;

/// Counts the areas of this process in each segment.
///
/// In the paper (§4.1.2) the kernel counts over all processes. A library can count only its own
/// areas, and query how many other processes have attached the segment.
#[derive(Debug, Default)]
pub(super) struct ShmCounter {
    areas: HashMap<i32, u64>,
}

impl ShmCounter {
    /// Returns the number of this process's areas in the segment; zero for memory that is no System
    /// V segment.
    pub(super) fn areas(&self, segment: &Segment) -> u64 {
        let areas = segment.shm_id().and_then(|id| self.areas.get(&id));
        areas.copied().unwrap_or(0)
    }

    /// Adds one area.
    pub(super) fn add(&mut self, segment: &Segment) {
        if let Some(id) = segment.shm_id() {
            *self.areas.entry(id).or_default() += 1;
        }
    }

    /// Removes one area. Returns true if it was the last one.
    pub(super) fn remove(&mut self, segment: &Segment) -> bool {
        let Some(id) = segment.shm_id() else {
            return false;
        };
        match self.areas.get_mut(&id) {
            Some(areas) if *areas > 1 => {
                *areas -= 1;
                false
            }
            Some(_) => self.areas.remove(&id).is_some(),
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::segment::tests::{private, shared};
    use super::*;

    /// Two attachments of one segment are one counter.
    #[test]
    fn all_attachments_of_a_segment_count_together() {
        let mut counter = ShmCounter::default();
        let (here, there) = (shared(0x4000, 1), shared(0x9000, 1));
        counter.add(&here);
        counter.add(&there);
        assert_eq!(counter.areas(&here), 2);
        assert!(!counter.remove(&here));
        assert!(counter.remove(&there));
        assert!(!counter.remove(&there));
    }

    #[test]
    fn other_memory_is_not_counted() {
        let mut counter = ShmCounter::default();
        counter.add(&private(0x4000));
        assert_eq!(counter.areas(&private(0x4000)), 0);
        assert!(!counter.remove(&private(0x4000)));
    }
}
