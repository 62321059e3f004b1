// SPDX-License-Identifier: MIT OR Apache-2.0

//! Carries the bytes of one socket of a program, between TCP on this node and a connection.
//!
//! The program's side is reset (SO_LINGER of zero seconds) unless its peer's program has ended its
//! direction: so data that was cut off is never taken for all, also if this process is killed.

use std::io::{self, Write};
#[cfg(test)]
use std::net::SocketAddr;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::libc;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{self, setsockopt, sockopt, MsgFlags};
use uldma::{Receiving, Sending};

use super::frame::{self, Frame, LONGEST};
use super::report::Totals;

/// How the two directions of a socket stand.
#[derive(Default)]
struct State {
    /// The program has ended its direction, and the peer has all.
    sent: bool,
    /// The program takes no more data.
    deaf: bool,
}

/// A socket of a program.
pub(super) struct Program {
    socket: TcpStream,
    /// It has to be reset.
    broken: Broken,
}

/// Whether a program's side has to be reset.
struct Broken {
    is_set: AtomicBool,
    /// Wakes the thread that waits until the program takes data.
    event: EventFd,
}

/// A socket of a program, and its connection.
struct Flow<'a> {
    program: &'a Program,
    state: Mutex<State>,
    totals: &'a Totals,
}

impl Program {
    /// Takes a socket, whose end is a reset from now on.
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        set_reset(&socket, true)?;
        socket.set_nodelay(true)?;
        Ok(Self {
            socket,
            broken: Broken {
                is_set: AtomicBool::new(false),
                event: EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?,
            },
        })
    }

    /// Returns the address of the program's end.
    #[cfg(test)]
    pub(super) fn peer_address(&self) -> io::Result<SocketAddr> {
        self.socket.peer_addr()
    }

    /// Writes bytes to the program, until the peer has failed: the program may do nothing but write,
    /// and wait for the other direction.
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        while !bytes.is_empty() {
            match socket::send(self.socket.as_raw_fd(), bytes, flags) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.wait()?,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Sleeps until the program takes data, or its side has to be reset, which is an error.
    fn wait(&self) -> io::Result<()> {
        let mut fds = [
            PollFd::new(self.socket.as_fd(), PollFlags::POLLOUT),
            PollFd::new(self.broken.event.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) if self.broken.is_set() => Err(Errno::ECONNRESET.into()),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl Broken {
    fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Acquire)
    }

    fn set(&self) {
        self.is_set.store(true, Ordering::Release);
        // Each direction sets it once or twice, which the counter has room for.
        let _ = self.event.write(1);
    }
}

/// Lets the end of a socket be a reset, or not.
fn set_reset(program: &TcpStream, reset: bool) -> io::Result<()> {
    let value = libc::linger {
        l_onoff: i32::from(reset),
        l_linger: 0,
    };
    Ok(setsockopt(program, sockopt::Linger, &value)?)
}

/// Carries bytes in both directions until both have ended, or one side fails. The socket is closed
/// before the connection is: that may take the peer's time.
pub(super) fn carry(
    program: Program,
    receiving: &mut Receiving,
    sending: &mut Sending,
    totals: &Totals,
) {
    let flow = Flow {
        program: &program,
        state: Mutex::default(),
        totals,
    };
    thread::scope(|scope| {
        scope.spawn(|| flow.send(sending));
        flow.receive(receiving);
    });
    let is_whole = !program.broken.is_set();
    totals.ended(is_whole);
    if is_whole {
        // What the program has not read yet is kept for it.
        let _ = set_reset(&program.socket, false);
    }
}

impl Flow<'_> {
    /// Sends what the program writes.
    fn send(&self, sending: &mut Sending) {
        let mut frame = Frame::new();
        loop {
            let Ok(filled) = frame.read(&self.program.socket) else {
                self.program.broken.set();
                // The peer finds an end that this side has not announced; so does receive().
                let _ = sending.connection().disconnect();
                return;
            };
            // The end of reading may be that of receive(), which has failed.
            if self.program.broken.is_set() {
                return;
            }
            if filled.send(sending).is_err() {
                // So does receive().
                self.program.broken.set();
                return;
            }
            match filled.length() {
                0 => break,
                length => self.totals.sent(length),
            }
        }
        // If the peer has received the end, it may have disconnected.
        let _ = sending.flush();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.sent = true;
        if state.deaf {
            let _ = sending.connection().disconnect();
        }
    }

    /// Writes what arrives to the program.
    fn receive(&self, receiving: &mut Receiving) {
        let mut data = vec![0; LONGEST];
        let mut is_deaf = false;
        loop {
            let written = match frame::receive(receiving, &mut data) {
                Ok([]) => {
                    let _ = self.program.socket.shutdown(Shutdown::Write);
                    return;
                }
                Ok(bytes) if !is_deaf => {
                    self.totals.received(bytes.len());
                    self.program.write(bytes)
                }
                Ok(_) => Ok(()),
                Err(error) => {
                    self.program.broken.set();
                    // Wakes the other direction, and says nothing to the program.
                    let _ = self.program.socket.shutdown(Shutdown::Read);
                    if error.raw_os_error().is_some() {
                        // The peer breaks the rules, and stays.
                        let _ = receiving.connection().disconnect();
                    }
                    return;
                }
            };
            if written.is_err() {
                // What the program has sent before still has to arrive.
                is_deaf = true;
                let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                state.deaf = true;
                if state.sent {
                    let _ = receiving.connection().disconnect();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, TcpListener};

    /// More than the kernel keeps for a program that does not read.
    const MUCH: usize = 256 << 20;

    #[test]
    fn a_writer_that_waits_for_the_program_is_woken() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let idle = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let program = Program::new(listener.accept().unwrap().0).unwrap();
        // Nothing else ends the wait.
        assert_eq!(program.socket.write_timeout().unwrap(), None);
        thread::scope(|scope| {
            let writer = scope.spawn(|| program.write(&vec![0; MUCH]));
            program.broken.set();
            let error = writer.join().unwrap().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(Errno::ECONNRESET as i32));
        });
        drop(idle);
    }
}
