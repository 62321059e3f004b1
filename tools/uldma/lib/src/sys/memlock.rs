// SPDX-License-Identifier: MIT OR Apache-2.0

//! RLIMIT_MEMLOCK: the limit, the use, and advice for programs that exceed it.

use std::fmt::Write;

use nix::sys::resource::{getrlimit, Resource};

/// The limit and the use of pinned memory of this process.
#[derive(Clone, Copy, Debug)]
pub struct Memlock {
    /// Bytes that may be pinned; none when there is no limit (or it cannot be read).
    pub limit: Option<u64>,
    /// Bytes pinned by drivers, uldma and others (`VmPin`).
    pub pinned: u64,
    /// Bytes locked by mlock() (`VmLck`).
    pub locked: u64,
}

impl Memlock {
    /// Reads both from the kernel.
    pub fn read() -> Self {
        let limit = getrlimit(Resource::RLIMIT_MEMLOCK)
            .ok()
            .map(|(soft, _)| soft)
            .filter(|&soft| soft != nix::libc::RLIM_INFINITY);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            limit,
            pinned: field(&status, "VmPin:"),
            locked: field(&status, "VmLck:"),
        }
    }

    /// Returns advice for a registration that found no room for `length` more bytes. `here` is the
    /// amount that uldma itself has pinned, when known.
    pub(crate) fn advice(&self, length: u64, here: Option<u64>) -> String {
        let mut text = match self.limit {
            Some(limit) => format!("RLIMIT_MEMLOCK is {} KiB", limit / 1024),
            None => "RLIMIT_MEMLOCK is unlimited".to_owned(),
        };
        let _ = write!(text, ", {} KiB of it in use", self.pinned / 1024);
        if let Some(here) = here {
            let _ = write!(text, " ({} KiB by uldma)", here / 1024);
        }
        let _ = write!(text, ", and {} KiB more are needed", length.div_ceil(1024));
        text.push_str(match self.limit {
            Some(_) => {
                ": raise it (ulimit -l, or LimitMEMLOCK= of the service), or run with CAP_IPC_LOCK"
            }
            None => ": the machine is out of memory",
        });
        text
    }
}

fn field(status: &str, name: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| {
            rest.trim()
                .trim_end_matches("kB")
                .trim()
                .parse::<u64>()
                .ok()
        })
        .unwrap_or(0)
        .saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_proc_status_are_kilobytes() {
        let status = "Name:\tx\nVmLck:\t       4 kB\nVmPin:\t      16 kB\n";
        assert_eq!(field(status, "VmPin:"), 16384);
        assert_eq!(field(status, "VmLck:"), 4096);
        assert_eq!(field(status, "VmXyz:"), 0);
    }

    #[test]
    fn advice_says_limit_use_and_need() {
        let memlock = Memlock {
            limit: Some(8 << 20),
            pinned: 1 << 20,
            locked: 0,
        };
        let advice = memlock.advice(16 << 20, Some(1 << 20));
        assert!(advice.starts_with(
            "RLIMIT_MEMLOCK is 8192 KiB, 1024 KiB of it in use (1024 KiB by uldma), \
             and 16384 KiB more are needed"
        ));
    }
}
