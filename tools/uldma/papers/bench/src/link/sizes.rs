// SPDX-License-Identifier: MIT OR Apache-2.0

//! Sizes of messages, and how many of them are in flight.

/// 8 bytes to 16 MiB, under the names that figures have.
pub(crate) const SIZES: [(&str, usize); 10] = [
    ("8", 8),
    ("64", 64),
    ("512", 512),
    ("4k", 4 << 10),
    ("16k", 16 << 10),
    ("64k", 64 << 10),
    ("256k", 256 << 10),
    ("1m", 1 << 20),
    ("4m", 4 << 20),
    ("16m", 16 << 20),
];
/// The size of round trips whose figures name no size.
pub(crate) const SHORTEST: &str = SIZES[0].0;
/// The largest size that a peer may ask for.
pub(crate) const LARGEST: usize = SIZES[SIZES.len() - 1].1;

/// Messages in flight, between these two bounds.
const DEPTH: std::ops::RangeInclusive<usize> = 2..=32;
/// Bytes in flight, if the bounds allow.
const IN_FLIGHT: usize = 8 << 20;

/// Returns the number of messages of `size` bytes in flight at a time, by all transports.
pub(crate) fn depth(size: usize) -> usize {
    (IN_FLIGHT / size.max(1)).clamp(*DEPTH.start(), *DEPTH.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_large_ones_are_in_flight() {
        let depths = [8, 256 << 10, 1 << 20, LARGEST].map(depth);
        assert_eq!(depths, [32, 32, 8, 2]);
    }
}
