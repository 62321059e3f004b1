// SPDX-License-Identifier: MIT OR Apache-2.0

//! A character device with read() and write() between the same two nodes: a port of virtio-serial.
//!
//! write() copies to memory of the kernel, from which the host takes the bytes; the host puts them
//! into memory of the other node's kernel, and read() copies them from there. The driver is the
//! kernel's own, `virtio_console`.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::O_NONBLOCK;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use uldma::device::Backend;
use uldma::measure::Clock;

use super::counters::Counted;
use super::transport::{Far, Near, Setup};
use crate::failure::Failure;

/// The port that the nodes of `make bench` have, next to that of the runner.
const PATH: &str = "/dev/vport0p2";

fn failed(error: std::io::Error) -> Failure {
    Failure::Io(PATH, error)
}

/// One end. A port has one reader and one writer at a time, so each size opens it anew.
pub(crate) struct Port {
    file: File,
    message: Vec<u8>,
    timeout: Duration,
    /// Bytes that system calls copied.
    copied: u64,
}

impl Port {
    pub(crate) fn new(setup: Setup<'_>) -> Result<Self, Failure> {
        if setup.device.query()?.backend == Backend::Loopback {
            return Err(Failure::Refused("both ends are on one node"));
        }
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).custom_flags(O_NONBLOCK);
        Ok(Self {
            file: options.open(PATH).map_err(failed)?,
            message: vec![0x5a; setup.size],
            timeout: setup.timeout,
            copied: 0,
        })
    }

    fn wait(&self, flags: PollFlags, deadline: Instant) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(self.file.as_fd(), flags)];
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, timeout) {
            Ok(0) => Err(failed(Errno::ETIMEDOUT.into())),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(failed(errno.into())),
        }
    }

    /// Calls `step` until it has moved the whole message, and waits whenever it would block.
    fn whole(
        &mut self,
        flags: PollFlags,
        step: impl Fn(&mut File, &mut [u8]) -> std::io::Result<usize>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.timeout;
        let mut done = 0;
        while done < self.message.len() {
            let rest = self.message.get_mut(done..).unwrap_or_default();
            match step(&mut self.file, rest) {
                Ok(0) => return Err(failed(ErrorKind::UnexpectedEof.into())),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.wait(flags, deadline)?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        self.copied += done as u64;
        Ok(())
    }

    fn send(&mut self) -> Result<(), Failure> {
        self.whole(PollFlags::POLLOUT, |file, bytes| file.write(bytes))
    }

    fn receive(&mut self) -> Result<(), Failure> {
        self.whole(PollFlags::POLLIN, |file, bytes| file.read(bytes))
    }

    fn copies(&self) -> Counted {
        Counted {
            copied: self.copied,
            locks: 0,
        }
    }
}

impl Near for Port {
    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            self.send()?;
            self.receive()?;
            samples.push(clock.ticks() - before);
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        for _ in 0..count {
            self.send()?;
        }
        Ok(began)
    }

    fn counted(&self) -> Result<Counted, Failure> {
        Ok(self.copies())
    }
}

impl Far for Port {
    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.receive()?;
            self.send()?;
        }
        Ok(())
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        for _ in 0..count {
            self.receive()?;
        }
        Ok(())
    }

    fn counted(&self) -> Result<Counted, Failure> {
        Ok(self.copies())
    }
}
