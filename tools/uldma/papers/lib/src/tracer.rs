// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts system calls from outside, so that "none" is an observation and not a claim.
//!
//! A second process (the same program, started again) attaches to the calling thread with ptrace()
//! and sees every system call that the thread makes. Two calls without effect mark the begin and
//! the end of the counted section.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace;
use nix::sys::signal::Signal;
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{gettid, Pid};

use uldma::Result;

use crate::failure::system;

/// First argument of the program when it is to act as the tracer.
const ROLE: &str = "--uldma-count-syscalls-of";

/// prctl() commands that no kernel has ("uldm").
const BEGIN: i32 = 0x756c_646d;
const END: i32 = BEGIN + 1;

/// The system calls of a section.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyscallCount {
    /// Total number of calls.
    pub total: u64,
    /// Number of calls, by system call number.
    pub by_number: BTreeMap<u64, u64>,
}

/// A tracer that is attached to this thread.
#[derive(Debug)]
pub struct Tracer {
    child: Child,
    answers: BufReader<ChildStdout>,
}

/// Runs the tracer and exits, if this process was started as one. Programs that use [`Tracer`] must
/// call this first in `main`.
pub fn tracer_main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ROLE) {
        return;
    }
    let thread = arguments.next().and_then(|argument| argument.parse().ok());
    let result = thread.map_or(Err(Errno::EINVAL), |thread| trace(Pid::from_raw(thread)));
    match result {
        Ok(()) => std::process::exit(0),
        Err(errno) => {
            println!("error {}", errno as i32);
            std::process::exit(1)
        }
    }
}

impl Tracer {
    /// Starts a tracer and attaches it to the calling thread.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`]: EPERM when this process must not be traced (another tracer is attached,
    /// or the policy forbids it).
    pub fn attach() -> Result<Self> {
        let failed = |errno| system("attach a tracer that counts system calls", errno);
        let from_io = |error: io::Error| {
            failed(
                error
                    .raw_os_error()
                    .map_or(Errno::UnknownErrno, Errno::from_raw),
            )
        };
        let mut child = Command::new("/proc/self/exe")
            .args([ROLE, &gettid().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(from_io)?;
        allow_tracer(child.id());
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(Errno::EBADF));
        };
        // The tracer may attach only now: the permission above is granted.
        stdin.write_all(b"go\n").map_err(from_io)?;
        drop(stdin);
        let mut tracer = Self {
            child,
            answers: BufReader::new(stdout),
        };
        match tracer.answer().map_err(from_io)?.split_once(' ') {
            Some(("ready", _)) => Ok(tracer),
            Some(("error", errno)) => Err(failed(
                errno.parse().map_or(Errno::UnknownErrno, Errno::from_raw),
            )),
            _ => Err(failed(Errno::ECHILD)),
        }
    }

    /// Runs `section` on this thread and counts the system calls that it makes.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`] when the tracer has ended.
    pub fn count<R>(self, section: impl FnOnce() -> R) -> (R, Result<SyscallCount>) {
        let (result, watched) = self.watch(section);
        (result, watched.count())
    }

    /// Counts as [`Tracer::count`] does, but leaves the result with the tracer: code after the
    /// section can be timed, too.
    pub fn watch<R>(self, section: impl FnOnce() -> R) -> (R, Watched) {
        mark(BEGIN);
        let result = section();
        mark(END);
        (result, Watched(self))
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }
}

/// A section that has ended and whose count is still with the tracer.
#[derive(Debug)]
pub struct Watched(Tracer);

impl Watched {
    /// Fetches the count from the tracer.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`] when the tracer has ended.
    pub fn count(mut self) -> Result<SyscallCount> {
        let line = self.0.answer().unwrap_or_default();
        parse(&line).ok_or_else(|| system("count system calls", Errno::ECHILD))
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // The tracer has exited after a count; otherwise it is not needed any more. Its end
        // detaches it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Parses "count 16=3 257=1": system call numbers and counts.
fn parse(line: &str) -> Option<SyscallCount> {
    let mut count = SyscallCount::default();
    for pair in line.trim_end().strip_prefix("count")?.split_whitespace() {
        let (number, times) = pair.split_once('=')?;
        let times: u64 = times.parse().ok()?;
        count.by_number.insert(number.parse().ok()?, times);
        count.total += times;
    }
    Some(count)
}

/// Runs the tracer: attaches to the thread, counts between the marks, detaches.
fn trace(thread: Pid) -> nix::Result<()> {
    let mut go = String::new();
    let _ = io::stdin().read_line(&mut go);
    ptrace::seize(thread, ptrace::Options::PTRACE_O_TRACESYSGOOD)?;
    ptrace::interrupt(thread)?;
    let mut counting = false;
    let mut ready = false;
    let mut count = BTreeMap::<u64, u64>::new();
    loop {
        let mut signal = None;
        match waitpid(thread, Some(WaitPidFlag::__WALL))? {
            WaitStatus::PtraceSyscall(_) => {
                if let Some((number, command)) = entered(thread)? {
                    let is_mark = number == libc::SYS_prctl as u64;
                    if is_mark && command == BEGIN as u64 {
                        counting = true;
                    } else if is_mark && command == END as u64 {
                        break;
                    } else if counting {
                        *count.entry(number).or_default() += 1;
                    }
                }
            }
            WaitStatus::Stopped(_, stopped) => signal = deliverable(stopped),
            WaitStatus::Exited(..) | WaitStatus::Signaled(..) => return Ok(()),
            _ => {}
        }
        // The thread waits for this line before it begins, so it must not be sent earlier.
        ptrace::syscall(thread, signal)?;
        if !ready {
            ready = true;
            send_line("ready ");
        }
    }
    ptrace::detach(thread, None)?;
    let pairs: Vec<_> = count
        .iter()
        .map(|(number, times)| format!(" {number}={times}"))
        .collect();
    send_line(&format!("count{}", pairs.concat()));
    Ok(())
}

/// Allows the process `tracer` to trace this one, which Yama would forbid.
fn allow_tracer(tracer: u32) {
    // SAFETY: this command takes a number and touches no memory. Where it fails (no Yama),
    // there is nothing to allow.
    let _ = unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::c_ulong::from(tracer), 0, 0, 0) };
}

/// Makes a system call that does nothing and that a tracer recognises by its argument.
fn mark(command: i32) {
    // SAFETY: prctl() refuses an unknown command with EINVAL before it uses its arguments.
    let _ = unsafe { libc::prctl(command, 0, 0, 0, 0) };
}

fn send_line(line: &str) {
    let mut out = io::stdout();
    // Errors are ignored: without a reader there is no receiver.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Returns the system call that the thread is entering, and its first argument; none when it leaves
/// one.
fn entered(thread: Pid) -> nix::Result<Option<(u64, u64)>> {
    let info = ptrace::syscall_info(thread)?;
    if info.op != libc::PTRACE_SYSCALL_INFO_ENTRY {
        return Ok(None);
    }
    // SAFETY: `op` names this member of the union.
    let entry = unsafe { info.u.entry };
    Ok(Some((entry.nr, entry.args[0])))
}

/// Returns a signal that the thread should receive; none for stops that belong to tracing.
fn deliverable(signal: Signal) -> Option<Signal> {
    (signal != Signal::SIGTRAP).then_some(signal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_parsed() {
        assert_eq!(parse("count\n"), Some(SyscallCount::default()));
        let count = parse("count 16=3 257=1\n").unwrap();
        assert_eq!((count.total, count.by_number[&16]), (4, 3));
        assert_eq!(parse("ready \n"), None);
        assert_eq!(parse("count x\n"), None);
    }
}
