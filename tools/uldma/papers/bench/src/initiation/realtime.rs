// SPDX-License-Identifier: MIT OR Apache-2.0

//! Turns on one CPU: round robin with the paper's quantum, and nothing that takes the CPU away.

use std::path::Path;

use nix::libc;
use nix::sched::{sched_getaffinity, sched_setaffinity, CpuSet};
use nix::unistd::Pid;

use crate::failure::Failure;

/// Length of a turn.
const QUANTUM_MS: &str = "10";
const PRIORITY: i32 = 10;

/// A setting, and its former value.
struct Setting {
    path: &'static Path,
    before: String,
}

/// Settings of the system, restored on drop.
pub(crate) struct Settings(Vec<Setting>);

impl Settings {
    /// Sets turns of 10 ms, and lets real-time processes use all of a CPU.
    pub(crate) fn for_round_robin() -> std::io::Result<Self> {
        let mut settings = Self(Vec::new());
        for (path, value) in [
            ("/proc/sys/kernel/sched_rr_timeslice_ms", QUANTUM_MS),
            ("/proc/sys/kernel/sched_rt_runtime_us", "-1"),
        ] {
            settings.set(Path::new(path), value)?;
        }
        Ok(settings)
    }

    fn set(&mut self, path: &'static Path, value: &str) -> std::io::Result<()> {
        let before = std::fs::read_to_string(path)?;
        std::fs::write(path, value)?;
        self.0.push(Setting { path, before });
        Ok(())
    }
}

impl Drop for Settings {
    fn drop(&mut self) {
        for setting in &self.0 {
            if let Err(error) = std::fs::write(setting.path, &setting.before) {
                eprintln!("uldma-bench: {}: {error}", setting.path.display());
            }
        }
    }
}

/// This process takes turns with others of its kind, until this is dropped.
pub(crate) struct RoundRobin(());

impl RoundRobin {
    /// Enters the turns, on the CPU with the highest number, as the others have more load.
    pub(crate) fn enter() -> Result<Self, Failure> {
        cpus()?.last().copied().map_or(Ok(()), keep_to)?;
        schedule(libc::SCHED_RR, PRIORITY)
            .map(|()| Self(()))
            .map_err(|error| Failure::Io("SCHED_RR", error))
    }
}

impl Drop for RoundRobin {
    fn drop(&mut self) {
        // This needs no privilege; if it fails, the process ends anyway.
        let _ = schedule(libc::SCHED_OTHER, 0);
    }
}

/// Returns the CPUs that this process may use.
pub(crate) fn cpus() -> Result<Vec<usize>, Failure> {
    let mask = sched_getaffinity(Pid::from_raw(0))
        .map_err(|errno| Failure::Io("CPUs of this process", errno.into()))?;
    Ok((0..CpuSet::count())
        .filter(|&cpu| mask.is_set(cpu).unwrap_or(false))
        .collect())
}

/// Keeps this process to one CPU.
fn keep_to(cpu: usize) -> Result<(), Failure> {
    let mut mask = CpuSet::new();
    mask.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &mask))
        .map_err(|errno| Failure::Io("CPU of this process", errno.into()))
}

fn schedule(policy: i32, priority: i32) -> std::io::Result<()> {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: the call reads the parameters, which live until it returns.
    match unsafe { libc::sched_setscheduler(0, policy, &parameters) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_takes_no_turns_can_say_so() {
        schedule(libc::SCHED_OTHER, 0).unwrap();
    }
}
