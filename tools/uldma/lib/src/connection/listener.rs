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
    /// [`Error::Timeout`]; [`Error::NoDevice`], [`Error::Permission`] when the device cannot be
    /// opened again; [`Error::System`]: ENOTCONN when the listener ends meanwhile, ENOENT when
    /// no process listens at the port, EPERM when another process listens, ENODEV when the device
    /// has been removed.
    pub fn accept(&self, timeout: Duration) -> Result<(Connection, u32)> {
        let deadline = Deadline::after(timeout);
        let connection = Connection::new(self.device.reopen()?, self.offer);
        let argument = uapi::uldma_conn_accept {
            port: self.port,
            ..Default::default()
        };
        loop {
            match sys::conn_accept(connection.as_fd(), argument) {
                Ok(answer) => return Ok((connection, answer.out_node)),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(errno) => {
                    let action = format!("accept at port {}", self.port);
                    return Err(Error::connection(action, errno));
                }
            }
            if poll_until(self.as_fd(), PollFlags::POLLIN, deadline)?.is_empty() {
                return Err(deadline.missed(format!("connection to port {}", self.port)));
            }
        }
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
