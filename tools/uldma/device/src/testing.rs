// SPDX-License-Identifier: MIT OR Apache-2.0

//! Helpers of the unit tests.

use std::fs::File;
use std::io::Read;

use rustix::event::EventfdFlags;
use rustix::fs::{MemfdFlags, SealFlags};

/// Zeroed memory behind a file that cannot be cut short.
pub(crate) fn memfd(size: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
    file.set_len(size).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

/// An eventfd that does not block.
pub(crate) fn eventfd() -> File {
    File::from(rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap())
}

/// Reads and resets the count of an eventfd; 0 if it was not signalled.
pub(crate) fn eventfd_count(mut event: &File) -> u64 {
    let mut count = [0; 8];
    match event.read(&mut count) {
        Ok(8) => u64::from_ne_bytes(count),
        _ => 0,
    }
}

/// Returns all interleavings of `first` steps of one process and `second` steps of another; true is
/// a step of the second.
pub(crate) fn interleavings(first: usize, second: usize) -> Vec<Vec<bool>> {
    if first == 0 || second == 0 {
        return vec![vec![first == 0; first + second]];
    }
    let mut orders = Vec::new();
    for (step, rest) in [
        (false, interleavings(first - 1, second)),
        (true, interleavings(first, second - 1)),
    ] {
        orders.extend(rest.into_iter().map(|mut order| {
            order.insert(0, step);
            order
        }));
    }
    orders
}
