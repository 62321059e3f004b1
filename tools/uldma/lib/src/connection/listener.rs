// SPDX-License-Identifier: MIT OR Apache-2.0

//! Listeners: ports at which peers connect.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::{poll_until, Connection, ConnectionInfo, Offer};
use crate::device::Device;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::Deadline;

/// A port at which peers connect. Its file is readable while a connection waits.
///
/// Dropping it closes its open file, which ends the connections that were not accepted.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// use uldma::{Device, Listener, Offer, StreamOptions};
///
/// let listener: Listener = Device::open(0)?.listen(7, 16, Offer::default())?;
/// let (connection, node) = listener.accept(Duration::from_secs(60))?;
/// println!("a process on node {node}");
/// let mut stream = connection.into_stream(StreamOptions::default())?;
/// let mut request = [0; 64];
/// let read = stream.read(&mut request).unwrap_or(0);
/// let _ = stream.write_all(&request[..read]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    device: Device,
    port: u32,
    offer: Offer,
}

impl Device {
    /// Listens at a port (not zero), through an open file of its own. `backlog` connections can
    /// wait for accept(), 1 to 64. Each side that connects is told the offer, and has to fit to it.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EADDRINUSE when a process listens at the port already, EINVAL for an
    /// invalid port or backlog, EDQUOT when this user has as many listeners as it may;
    /// [`Error::NoDevice`], [`Error::Permission`].
    pub fn listen(&self, port: u32, backlog: u32, offer: Offer) -> Result<Listener> {
        let device = self.reopen()?;
        let argument = uapi::uldma_conn_listen {
            port,
            backlog,
            offer: offer.into(),
            ..Default::default()
        };
        sys::conn_listen(device.as_fd(), argument)
            .map_err(|errno| Error::connection(format!("listen at port {port}"), errno))?;
        Ok(Listener {
            device,
            port,
            offer,
        })
    }
}

impl Listener {
    /// The port.
    pub fn port(&self) -> u32 {
        self.port
    }

    /// Accepts the oldest pending connection, through an open file of its own. Waits for one,
    /// without limit for [`Duration::MAX`]. Returns the connection and the number of the node that
    /// connected.
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`]; [`Error::NoDevice`], [`Error::Permission`] when a connection is pending, and the
    /// device cannot be opened again; [`Error::System`]: EMFILE, ENFILE or ENOMEM for the same reason,
    /// and then the connection stays pending. Of a listener that is no more this tells only then, too: ENOTCONN
    /// when it ends meanwhile, ENOENT when no process listens at the port, EPERM when another process listens;
    /// ENODEV when the device has been removed.
    pub fn accept(&self, timeout: Duration) -> Result<(Connection, u32)> {
        self.accept_by(Deadline::after(timeout))
    }

    fn accept_by(&self, deadline: Deadline) -> Result<(Connection, u32)> {
        let argument = uapi::uldma_conn_accept {
            port: self.port,
            ..Default::default()
        };
        loop {
            // Before the device is opened: without a connection there is nothing to lack a file for.
            if poll_until(self.as_fd(), PollFlags::POLLIN, deadline)?.is_empty() {
                return Err(self.missed(deadline));
            }
            let connection = Connection::new(self.device.reopen()?, self.offer);
            match sys::conn_accept(connection.as_fd(), argument) {
                Ok(answer) => return Ok((connection, answer.out_node)),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => {
                    let action = format!("accept at port {}", self.port);
                    return Err(Error::connection(action, errno));
                }
            }
        }
    }

    /// Accepts connections until one of them can be made what its caller wants. One of which `make` makes
    /// nothing, or whose peer breaks the rules, or has left, is ended, and the next one is accepted.
    ///
    /// # Errors
    ///
    /// Those of [`Listener::accept`], and all others of `make`.
    pub(crate) fn accept_as<T>(
        &self,
        timeout: Duration,
        mut make: impl FnMut(Connection, u32) -> Result<Option<T>>,
    ) -> Result<(T, u32)> {
        let deadline = Deadline::after(timeout);
        loop {
            let (connection, node) = self.accept_by(deadline)?;
            match make(connection, node) {
                Ok(Some(made)) => return Ok((made, node)),
                Ok(None) => {}
                Err(error) if error.is_of_peer() => {}
                Err(error) => return Err(error),
            }
            // One that is pending is accepted at any time, and a peer may send one after the other.
            if deadline.is_over() {
                return Err(self.missed(deadline));
            }
        }
    }

    fn missed(&self, deadline: Deadline) -> Error {
        deadline.missed(format!("connection to port {}", self.port))
    }

    /// Queries how many connections are pending, and how many were refused.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn query(&self) -> Result<ConnectionInfo> {
        ConnectionInfo::query(&self.device)
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}
