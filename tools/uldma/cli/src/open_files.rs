// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists the processes that have a device open, with the driver's state of each open file.

use std::fs;
use std::path::Path;

use serde::Serialize;

use crate::counters::{self, Counters};

/// Prefix of the driver's lines in fdinfo.
const PREFIX: &str = "uldma-";

/// An open file of the device, in a process.
#[derive(Debug, Serialize)]
pub(crate) struct OpenFile {
    pub(crate) pid: u32,
    /// Name of the program, as the kernel has it.
    pub(crate) command: String,
    pub(crate) fd: u32,
    /// The driver's counters.
    #[serde(flatten)]
    pub(crate) counters: Counters,
}

/// All open files of a device.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OpenFiles {
    /// Of processes other than this one.
    pub(crate) open_files: Vec<OpenFile>,
    /// True if no process was left out because this user may not read its files.
    pub(crate) all_files: bool,
}

impl OpenFiles {
    /// Finds the open files of `device` in the processes of `proc`, except those of process `own`.
    pub(crate) fn find(proc: &Path, device: &Path, own: u32) -> Self {
        let mut found = Self {
            all_files: true,
            ..Self::default()
        };
        for pid in numbers(proc).unwrap_or_default() {
            if pid != own {
                found.add(&proc.join(pid.to_string()), device, pid);
            }
        }
        found
    }

    /// Adds the open files of one process, which may end at any time.
    fn add(&mut self, process: &Path, device: &Path, pid: u32) {
        let fds = match numbers(&process.join("fd")) {
            Ok(fds) => fds,
            Err(error) => {
                self.all_files &= error.kind() != std::io::ErrorKind::PermissionDenied;
                return;
            }
        };
        for fd in fds {
            let is_of_device = fs::read_link(process.join("fd").join(fd.to_string()))
                .is_ok_and(|target| target == device);
            if !is_of_device {
                continue;
            }
            let fdinfo = fs::read_to_string(process.join("fdinfo").join(fd.to_string()));
            let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
            self.open_files.push(OpenFile {
                pid,
                command: command.trim().to_owned(),
                fd,
                counters: fdinfo.map_or_else(|_| Counters::new(), |text| of_driver(&text)),
            });
        }
    }
}

/// Returns the names in a directory that are numbers, in ascending order.
fn numbers(directory: &Path) -> std::io::Result<Vec<u32>> {
    let mut numbers: Vec<u32> = fs::read_dir(directory)?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the driver's counters in a file's fdinfo, under their names in JSON.
fn of_driver(fdinfo: &str) -> Counters {
    counters::parse(fdinfo)
        .into_iter()
        .filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.replace('-', "_"), value)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    /// A directory like /proc, removed with the test.
    struct Proc(PathBuf);

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    impl Proc {
        fn new() -> Self {
            let name = format!("uldma-open-files-{}", std::process::id());
            Self(std::env::temp_dir().join(name))
        }

        fn add(&self, pid: u32, command: &str, targets: &[&str]) {
            let process = self.0.join(pid.to_string());
            for directory in ["fd", "fdinfo"] {
                fs::create_dir_all(process.join(directory)).unwrap();
            }
            fs::write(process.join("comm"), format!("{command}\n")).unwrap();
            for (fd, target) in targets.iter().enumerate() {
                symlink(target, process.join(format!("fd/{fd}"))).unwrap();
                let text = "pos:\t0\nflags:\t02\nuldma-regions:\t2\nuldma-region-bytes:\t8192\n\
                            uldma-context:\tnone\n";
                fs::write(process.join(format!("fdinfo/{fd}")), text).unwrap();
            }
        }
    }

    #[test]
    fn open_files_of_all_processes_are_found() {
        let proc = Proc::new();
        proc.add(30, "two", &["/dev/null", "/dev/uldma1", "/dev/uldma1"]);
        proc.add(7, "other", &["/dev/uldma0", "/dev/uldma10"]);
        proc.add(9, "itself", &["/dev/uldma1"]);
        fs::create_dir_all(proc.0.join("self/fd")).unwrap();
        // A process that has ended.
        fs::create_dir_all(proc.0.join("31")).unwrap();
        let found = OpenFiles::find(&proc.0, Path::new("/dev/uldma1"), 9);
        assert!(found.all_files);
        let expected = serde_json::json!([
            {"pid": 30, "command": "two", "fd": 1,
             "regions": 2, "region_bytes": 8192, "context": null},
            {"pid": 30, "command": "two", "fd": 2,
             "regions": 2, "region_bytes": 8192, "context": null},
        ]);
        assert_eq!(serde_json::to_value(&found.open_files).unwrap(), expected);
    }
}
