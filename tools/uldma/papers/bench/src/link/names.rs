// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of figures: `link.ring.rtt.p50`, `link.ivshmem.conn.stream.256k`,
//! `link.conn.rtt.64k.p99.pull.loaded`.

use uldma::device::Backend;

use super::sizes::SHORTEST;

/// Quantiles of round trips and their names.
pub(crate) const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p999", 0.999)];

/// The parts of names that are the same for all figures of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// `link`, or `link.` and a backend.
    pub(crate) prefix: &'a str,
    /// `.` and a word, or nothing.
    pub(crate) suffix: &'a str,
}

/// Returns the beginning of the names of a backend.
pub(crate) fn prefix(backend: Backend) -> &'static str {
    match backend {
        Backend::Ivshmem => "link.ivshmem",
        Backend::Loopback => "link.loopback",
        _ => "link",
    }
}

impl Names<'_> {
    /// Names round trips; the shortest have no size in their name.
    pub(crate) fn rtt(self, transport: &str, size: &str, quantile: &str, mode: &str) -> String {
        let size = match size {
            SHORTEST => String::new(),
            _ => format!(".{size}"),
        };
        self.of(&format!("{transport}.rtt{size}.{quantile}{mode}"))
    }

    /// Names throughput.
    pub(crate) fn stream(self, transport: &str, size: &str, mode: &str) -> String {
        self.of(&format!("{transport}.stream.{size}{mode}"))
    }

    /// Names any figure.
    pub(crate) fn of(self, what: &str) -> String {
        format!("{}.{what}{}", self.prefix, self.suffix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_are_documented() {
        let names = Names {
            prefix: prefix(Backend::Adapter),
            suffix: "",
        };
        assert_eq!(names.rtt("ring", "8", "p50", ""), "link.ring.rtt.p50");
        let names = Names {
            prefix: prefix(Backend::Ivshmem),
            suffix: ".loaded",
        };
        assert_eq!(
            names.rtt("conn", "64k", "p99", ".pull"),
            "link.ivshmem.conn.rtt.64k.p99.pull.loaded"
        );
        assert_eq!(
            names.stream("conn", "256k", ""),
            "link.ivshmem.conn.stream.256k.loaded"
        );
    }
}
