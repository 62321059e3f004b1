// SPDX-License-Identifier: MIT OR Apache-2.0

//! Carries the bytes of one socket of a program, between TCP on this node and a connection.
//!
//! The program's side is reset (SO_LINGER of zero seconds) unless its peer's program has ended its
//! direction: so data that was cut off is never taken for all, also if this process is killed.

use std::io::{self, ErrorKind, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
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

/// A socket of a program, and its connection.
struct Flow<'a> {
    program: &'a TcpStream,
    state: Mutex<State>,
    /// The program's side has to be reset.
    broken: AtomicBool,
    totals: &'a Totals,
}

/// How late writing to a program that takes nothing sees that the peer has failed.
const LONGEST_WAIT: Duration = Duration::from_millis(100);

/// Prepares a socket, whose end is a reset from now on.
pub(super) fn prepare(program: &TcpStream) -> io::Result<()> {
    set_reset(program, true)?;
    program.set_nodelay(true)?;
    program.set_write_timeout(Some(LONGEST_WAIT))
}

/// Lets the end of a socket be a reset, or not.
fn set_reset(program: &TcpStream, reset: bool) -> io::Result<()> {
    let value = libc::linger {
        l_onoff: i32::from(reset),
        l_linger: 0,
    };
    Ok(setsockopt(program, sockopt::Linger, &value)?)
}

/// Carries bytes in both directions until both have ended, or one side fails. Expects a socket from
/// [`prepare`], which is closed before the connection is: that may take the peer's time.
pub(super) fn carry(
    program: TcpStream,
    receiving: &mut Receiving,
    sending: &mut Sending,
    totals: &Totals,
) {
    let flow = Flow {
        program: &program,
        state: Mutex::default(),
        broken: AtomicBool::new(false),
        totals,
    };
    thread::scope(|scope| {
        scope.spawn(|| flow.send(sending));
        flow.receive(receiving);
    });
    let is_whole = !flow.is_broken();
    totals.ended(is_whole);
    if is_whole {
        // What the program has not read yet is kept for it.
        let _ = set_reset(&program, false);
    }
}

impl Flow<'_> {
    fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Acquire)
    }

    fn set_broken(&self) {
        self.broken.store(true, Ordering::Release);
    }

    /// Sends what the program writes.
    fn send(&self, sending: &mut Sending) {
        let mut frame = Frame::new();
        loop {
            let Ok(filled) = frame.read(self.program) else {
                self.set_broken();
                // The peer finds an end that this side has not announced; so does receive().
                let _ = sending.connection().disconnect();
                return;
            };
            // The end of reading may be that of receive(), which has failed.
            if self.is_broken() {
                return;
            }
            if filled.send(sending).is_err() {
                // So does receive().
                self.set_broken();
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
                    let _ = self.program.shutdown(Shutdown::Write);
                    return;
                }
                Ok(bytes) if !is_deaf => {
                    self.totals.received(bytes.len());
                    self.write(bytes)
                }
                Ok(_) => Ok(()),
                Err(error) => {
                    self.set_broken();
                    // Wakes the other direction, and says nothing to the program.
                    let _ = self.program.shutdown(Shutdown::Read);
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

    /// Writes bytes to the program, until the other direction finds that the peer has failed: the
    /// program may do nothing but write, and wait for this one.
    fn write(&self, mut bytes: &[u8]) -> io::Result<()> {
        let mut program = self.program;
        while !bytes.is_empty() {
            match program.write(bytes) {
                Ok(length) => bytes = bytes.get(length..).unwrap_or_default(),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if self.is_broken() {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
