// SPDX-License-Identifier: MIT OR Apache-2.0

//! The effect of a write buffer on repeated passing of arguments without barriers (the paper,
//! section 4.3 and footnote 7).
//!
//! The buffer keeps stores until it is full or a barrier is executed, merges a store with a
//! buffered one to the same address, and answers loads from it; a second load from an address may
//! return the result of the first one. The processors of the nodes do none of that to uncached
//! memory, and an emulator does not do it at all, so this simulation shows it.

use uldma_device::method::{Compare, Machine, Repeated, Reply};

use crate::world::{Access, Page, Process, Word};

/// The barriers between two accesses of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    /// Nothing, and the pages are mapped so that accesses may be combined.
    Nothing,
    /// A memory barrier.
    Barrier,
}

/// A processor with a write buffer, in front of the device.
struct Processor {
    machine: Repeated,
    stores: Vec<(Page, u64)>,
    /// Results of loads since the last barrier.
    loaded: Vec<(Page, Reply)>,
    reached: usize,
}

impl Processor {
    fn barrier(&mut self) {
        for (page, word) in self.stores.drain(..) {
            self.machine
                .store(Process::Victim.context(), page.named(), Some(word));
            self.reached += 1;
        }
        self.loaded.clear();
    }

    fn store(&mut self, page: Page, word: u64) {
        match self.stores.iter_mut().find(|(kept, _)| *kept == page) {
            Some((_, kept)) => *kept = word,
            None => self.stores.push((page, word)),
        }
    }

    /// Returns the value that the program reads; none if the device did not see the load.
    fn load(&mut self, page: Page) -> Option<Reply> {
        if self.stores.iter().any(|(kept, _)| *kept == page) {
            return None;
        }
        if let Some((_, kept)) = self.loaded.iter().find(|(kept, _)| *kept == page) {
            return Some(*kept);
        }
        let context = Process::Victim.context();
        let reply = self.machine.load(context, page.named(), true);
        self.reached += 1;
        self.loaded.push((page, reply));
        Some(reply)
    }
}

/// Makes the five accesses once. Returns how many of them reached the device, and whether the last
/// one started the transfer.
pub fn five_accesses(between: Between) -> (usize, bool) {
    let mut processor = Processor {
        machine: Repeated::five(Compare::Full),
        stores: Vec::new(),
        loaded: Vec::new(),
        reached: 0,
    };
    let mut last = None;
    for (access, _) in crate::methods::Method::Repeated5.program() {
        if between == Between::Barrier {
            processor.barrier();
        }
        match access {
            Access::Store(page, Word::Size) => processor.store(page, 8),
            Access::Load(page) => last = processor.load(page),
            _ => {}
        }
    }
    processor.barrier();
    let started = matches!(last, Some(Reply::Start(_)));
    (processor.reached, started)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D-082: each access arrives, and the transfer starts.
    #[test]
    fn barriers_keep_accesses_apart() {
        assert_eq!(five_accesses(Between::Barrier), (5, true));
    }

    /// Both stores are one, the second load is the first one's, and the last is answered by the buffer.
    #[test]
    fn a_write_buffer_merges_what_is_repeated() {
        assert_eq!(five_accesses(Between::Nothing), (2, false));
    }
}
