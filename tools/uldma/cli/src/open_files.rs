// SPDX-License-Identifier: MIT OR Apache-2.0

//! Lists the processes that have a device open, with the driver's state of each open file.

use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use nix::errno::Errno;
use nix::sys::stat::{major, minor};

use serde::Serialize;

use crate::counters::{self, Counters};

/// Prefix of the driver's lines in fdinfo.
const PREFIX: &str = "uldma-";
/// The process namespace that all others are in, PROC_PID_INIT_INO of the kernel.
const ALL_PROCESSES: &str = "pid:[4026531836]";

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
    /// True if no file was left out because this user, or this namespace, may not see it.
    pub(crate) all_files: bool,
}

impl OpenFiles {
    /// Finds the open files of the device with this number in the processes of `proc`, except those of
    /// process `own`.
    pub(crate) fn find(proc: &Path, device: (u64, u64), own: u32) -> Self {
        let pids = numbers(proc).unwrap_or_default();
        // A namespace shows its own processes only, and the mount option `hidepid` those of the user,
        // of which the first one is none.
        let is_whole = fs::read_link(proc.join("self/ns/pid"))
            .is_ok_and(|namespace| namespace == Path::new(ALL_PROCESSES));
        let mut found = Self {
            open_files: Vec::new(),
            all_files: is_whole && pids.first() == Some(&1),
        };
        for pid in pids {
            if pid != own {
                found.add(&proc.join(pid.to_string()), device, pid);
            }
        }
        found
    }

    /// Adds the open files of one process, which may end at any time.
    fn add(&mut self, process: &Path, device: (u64, u64), pid: u32) {
        let files = |task: &Path| numbers(&task.join("fd"));
        let fds = self.known(files(process)).unwrap_or_default();
        if fds.is_empty() {
            // The first thread may have ended before the others, which have the files.
            let tids = numbers(&process.join("task")).unwrap_or_default();
            for tid in tids.into_iter().filter(|&tid| tid != pid) {
                let task = process.join("task").join(tid.to_string());
                let fds = self.known(files(&task)).unwrap_or_default();
                if !fds.is_empty() {
                    return self.add_files(&task, &fds, device, pid);
                }
            }
        }
        self.add_files(process, &fds, device, pid);
    }

    fn add_files(&mut self, process: &Path, fds: &[u32], device: (u64, u64), pid: u32) {
        for &fd in fds {
            let counters = match self.known(of_device(process, device, fd)) {
                Some(Some(counters)) => counters,
                _ => continue,
            };
            let command = fs::read_to_string(process.join("comm")).unwrap_or_default();
            self.open_files.push(OpenFile {
                pid,
                command: command.trim().to_owned(),
                fd,
                counters,
            });
        }
    }

    /// Returns what was read, and notes if something that is there could not be.
    fn known<T>(&mut self, read: std::io::Result<T>) -> Option<T> {
        read.inspect_err(|error| self.all_files &= has_ended(error))
            .ok()
    }
}

/// Returns true if the process or the file has ended before it could be read.
fn has_ended(error: &Error) -> bool {
    error.kind() == ErrorKind::NotFound || error.raw_os_error() == Some(Errno::ESRCH as i32)
}

/// Returns the driver's counters of a file if it is one of the device.
fn of_device(process: &Path, device: (u64, u64), fd: u32) -> std::io::Result<Option<Counters>> {
    let fdinfo = fs::read_to_string(process.join("fdinfo").join(fd.to_string()))?;
    let counters = of_driver(&fdinfo);
    // A file of another file system is not touched: that may not answer.
    if counters.is_empty() {
        return Ok(None);
    }
    let target = fs::metadata(process.join("fd").join(fd.to_string()))?;
    let number = (major(target.rdev()), minor(target.rdev()));
    let is_meant = target.file_type().is_char_device() && number == device;
    Ok(is_meant.then_some(counters))
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
        fn new(name: &str) -> Self {
            let name = format!("uldma-open-files-{}-{name}", std::process::id());
            let proc = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(proc.0.join("self/ns")).unwrap();
            symlink(ALL_PROCESSES, proc.0.join("self/ns/pid")).unwrap();
            proc
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

    /// The numbers of devices that every machine has.
    const ZERO: (u64, u64) = (1, 5);

    #[test]
    fn open_files_of_all_processes_are_found() {
        let proc = Proc::new("all");
        // Whatever its name is.
        let other = proc.0.join("other");
        symlink("/dev/zero", &other).unwrap();
        let other = other.to_str().unwrap();
        proc.add(1, "init", &["/dev/null"]);
        proc.add(30, "two", &["/dev/null", "/dev/zero", other]);
        proc.add(9, "itself", &["/dev/zero"]);
        // A process that has ended.
        fs::create_dir_all(proc.0.join("31")).unwrap();
        let found = OpenFiles::find(&proc.0, ZERO, 9);
        assert!(found.all_files);
        let expected = serde_json::json!([
            {"pid": 30, "command": "two", "fd": 1,
             "regions": 2, "region_bytes": 8192, "context": null},
            {"pid": 30, "command": "two", "fd": 2,
             "regions": 2, "region_bytes": 8192, "context": null},
        ]);
        assert_eq!(serde_json::to_value(&found.open_files).unwrap(), expected);
    }

    #[test]
    fn files_that_may_exist_unseen_are_told() {
        let all = |proc: &Proc| OpenFiles::find(&proc.0, ZERO, 9).all_files;
        let proc = Proc::new("unseen");
        assert!(!all(&proc), "the first process is hidden");
        proc.add(1, "init", &["/dev/null"]);
        assert!(all(&proc));
        // No file, and no end of the process either, as for a user that may not read it.
        fs::remove_file(proc.0.join("1/fdinfo/0")).unwrap();
        fs::create_dir(proc.0.join("1/fdinfo/0")).unwrap();
        assert!(!all(&proc), "a file cannot be read");
        fs::remove_dir_all(proc.0.join("1/fd")).unwrap();
        fs::write(proc.0.join("1/fd"), "").unwrap();
        assert!(!all(&proc), "a process cannot be read");
        let proc = Proc::new("inside");
        proc.add(1, "init", &[]);
        fs::remove_file(proc.0.join("self/ns/pid")).unwrap();
        symlink("pid:[4026532000]", proc.0.join("self/ns/pid")).unwrap();
        assert!(!all(&proc), "other namespaces have processes");
    }
}
