// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the paper of the locked memory manager measured, in microseconds, for the sizes of
//! [`super::series::SIZES`]: Pentium III at 450 MHz, Linux 2.4.0, shared memory.

use super::series::pages;

/// One of its tables.
pub(crate) struct Table {
    pub(crate) register: [f64; 13],
    pub(crate) deregister: [f64; 13],
}

/// Table 1: another process has registered the memory.
pub(crate) const SECOND: Table = Table {
    register: [
        6.9, 8.4, 10.8, 15.8, 25.5, 47.2, 87.8, 177.0, 340.0, 697.0, 1371.0, 2739.0, 5414.0,
    ],
    deregister: [
        4.4, 4.7, 5.3, 6.7, 9.3, 14.8, 25.9, 49.5, 98.8, 205.0, 409.0, 814.0, 1646.0,
    ],
};

/// Table 2: nobody has.
pub(crate) const FIRST: Table = Table {
    register: [
        7.4, 8.8, 11.4, 16.4, 26.1, 49.5, 86.8, 167.0, 334.0, 668.0, 1373.0, 2841.0, 5507.0,
    ],
    deregister: [
        4.5, 4.9, 7.5, 7.2, 9.8, 15.6, 26.5, 49.2, 101.0, 206.0, 409.0, 815.0, 1650.0,
    ],
};

/// Pages and cost of each size.
pub(crate) fn points(table: &[f64; 13]) -> Vec<(f64, f64)> {
    table
        .iter()
        .enumerate()
        .map(|(index, &cost)| (pages(index) as f64, cost))
        .collect()
}
