// SPDX-License-Identifier: MIT OR Apache-2.0

//! Standard input, output and error, whatever they are.
//!
//! They may not block, may be closed, and share their flags with other processes. So their flags stay
//! as they are, and a read or write that would block waits by poll().

use std::fmt::Display;
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::libc;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};

/// A file that is read and written without a buffer, and waited for where it does not block.
#[derive(Debug)]
pub(crate) struct Patient<F>(F);

/// Standard input.
pub(crate) type Input = Patient<io::Stdin>;

/// Returns standard input.
pub(crate) fn input() -> Input {
    Patient(io::stdin())
}

/// Returns standard output.
///
/// # Errors
///
/// EBADF if it was closed when the program started.
pub(crate) fn output() -> io::Result<Patient<io::Stdout>> {
    match OUTPUT_WAS_CLOSED.load(Ordering::Relaxed) {
        true => Err(Errno::EBADF.into()),
        false => Ok(Patient(io::stdout())),
    }
}

/// Writes a line to standard error.
///
/// # Errors
///
/// Those of write().
pub(crate) fn error_line(text: impl Display) -> io::Result<()> {
    Patient(io::stderr()).write_all(format!("{text}\n").as_bytes())
}

/// Returns true if both standard input and output are terminals.
pub(crate) fn are_terminals() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

impl<F: AsFd> Patient<F> {
    fn wait(&self, flags: PollFlags) -> io::Result<()> {
        wait(&mut [PollFd::new(self.0.as_fd(), flags)])
    }

    /// Reads as [`Read::read`] does, but returns none once there is nothing to read and `stop` is
    /// readable.
    pub(crate) fn read_unless(
        &mut self,
        stop: BorrowedFd<'_>,
        target: &mut [u8],
    ) -> io::Result<Option<usize>> {
        loop {
            let mut fds = [
                PollFd::new(self.0.as_fd(), PollFlags::POLLIN),
                PollFd::new(stop, PollFlags::POLLIN),
            ];
            wait(&mut fds)?;
            if fds[0].any() != Some(true) {
                return Ok(None);
            }
            match nix::unistd::read(&self.0, target) {
                // Another process has read it, or a signal came.
                Err(Errno::EINTR | Errno::EAGAIN) => {}
                other => return Ok(Some(other?)),
            }
        }
    }
}

/// Sleeps until one of the files is ready, or broken.
fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            other => return Ok(other.map(drop)?),
        }
    }
}

impl<F: AsFd> Read for Patient<F> {
    fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::read(&self.0, target) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLIN)?,
                other => return Ok(other?),
            }
        }
    }
}

impl<F: AsFd> Write for Patient<F> {
    fn write(&mut self, source: &[u8]) -> io::Result<usize> {
        loop {
            match nix::unistd::write(&self.0, source) {
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait(PollFlags::POLLOUT)?,
                other => return Ok(other?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Before main(), the standard library opens /dev/null in the place of what is closed.
static OUTPUT_WAS_CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look_for_output() {
    // SAFETY: F_GETFD has no effect, whatever the number stands for.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    OUTPUT_WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// The C library calls what is in this section before the standard library runs.
#[used]
#[link_section = ".init_array"]
static LOOK: extern "C" fn() = look_for_output;

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{fcntl, FcntlArg, OFlag};
    use std::os::fd::OwnedFd;

    /// A pipe of which neither end blocks.
    fn pipe() -> (OwnedFd, OwnedFd) {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        for end in [&reader, &writer] {
            fcntl(end, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        }
        (reader, writer)
    }

    #[test]
    fn files_that_do_not_block_are_waited_for() {
        let (reader, writer) = pipe();
        // Much more than a pipe holds.
        let sent: Vec<u8> = (0..1_000_000_u32).map(|byte| (byte / 7) as u8).collect();
        let mut received = Vec::new();
        std::thread::scope(|scope| {
            let sent = &sent;
            scope.spawn(move || Patient(writer).write_all(sent).unwrap());
            Patient(reader).read_to_end(&mut received).unwrap();
        });
        assert!(received == sent);
    }

    #[test]
    fn what_can_be_read_is_read_before_the_stop() {
        let (stop, stopper) = pipe();
        let (reader, writer) = pipe();
        nix::unistd::write(&writer, b"last").unwrap();
        nix::unistd::write(&stopper, b"x").unwrap();
        let (mut input, mut bytes) = (Patient(reader), [0; 8]);
        let mut read = |bytes: &mut [u8]| input.read_unless(stop.as_fd(), bytes).unwrap();
        assert_eq!(read(&mut bytes), Some(4));
        assert_eq!(read(&mut bytes), None);
        drop(writer);
        assert_eq!(read(&mut bytes), Some(0));
    }

    #[test]
    fn a_reader_that_has_ended_is_an_error() {
        let (reader, writer) = pipe();
        drop(reader);
        let error = Patient(writer).write_all(b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    }
}
