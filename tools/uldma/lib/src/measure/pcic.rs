// SPDX-License-Identifier: MIT OR Apache-2.0

//! Connections under the names of the paper (§5.1).
//!
//! | paper | here | otherwise |
//! | --- | --- | --- |
//! | `pcic_listen(fd, dev, cid)` | [`pcic_listen`] | [`Device::listen_once`], [`Device::listen`] |
//! | `pcic_connect(fd, dev, cid)` | [`pcic_connect`] | [`Device::connect`] |
//! | `pcic_disconnect(fd)` | [`pcic_disconnect`] | [`Connection::disconnect`], or drop |
//! | `pcic_prepost_recv(fd, data, len)` | [`pcic_prepost_recv`] | [`Connection::prepost`] |
//! | `pcic_recv(fd, &data, len)` | [`pcic_recv`] | [`Connection::recv`] |
//! | `pcic_send(fd, data, len)` | [`pcic_send`] | [`Connection::send`] |
//! | `pcic_send_recycle(fd, &data, len)` | [`pcic_send_recycle`] | [`Connection::recycle`] |
//!
//! `fd` is an [`Fd`]. Memory is a [`Chunk`], which knows its length, so a function has a `len` only
//! for the number of bytes to reap. Parameters that the paper passes OUT are arguments here, too,
//! and the number of bytes is returned. `samples/uldma/pcic.c` does the same in C.

use std::time::Duration;

use nix::errno::Errno;

use crate::connection::{ConnectOptions, Connection, Offer, Rejected};
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::region::chunk::Chunk;

/// Limit of the time for the answer to a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The paper's file descriptor: a device, and at most one connection.
#[derive(Debug)]
pub struct Fd {
    device: Device,
    connection: Option<Connection>,
}

impl Fd {
    /// A device without a connection.
    pub fn new(device: Device) -> Self {
        Self {
            device,
            connection: None,
        }
    }

    /// The connection.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOTCONN when there is none.
    pub fn connection(&self) -> Result<&Connection> {
        let none = || Error::connection("use a connection", Errno::ENOTCONN);
        self.connection.as_ref().ok_or_else(none)
    }

    /// Returns the peer that `dev` names, if it names this device.
    fn peer(&self, dev: &str) -> Result<Peer> {
        if self.connection.is_some() {
            return Err(Error::connection(format!("open {dev}"), Errno::EISCONN));
        }
        let own = self
            .device
            .path()
            .file_name()
            .and_then(|name| name.to_str());
        parse(dev, own.unwrap_or_default())
            .ok_or_else(|| Error::connection(format!("find {dev:?}"), Errno::EINVAL))
    }
}

/// Parses `dev`: empty, `NODE`, `uldmaN` or `uldmaN:NODE`, where `uldmaN` is this device.
fn parse(dev: &str, own: &str) -> Option<Peer> {
    let node = match dev.split_once(':') {
        Some((device, node)) => (device == own).then_some(node)?,
        None if dev.is_empty() || dev == own => return Some(Peer::OTHER),
        None => dev,
    };
    let digits = !node.is_empty() && node.bytes().all(|digit| digit.is_ascii_digit());
    digits.then(|| node.parse().ok().map(Peer::node))?
}

/// Listens for one peer; [`Connection::wait_connected`] waits for it. A node in `dev` is ignored.
///
/// # Errors
///
/// [`Error::System`]: EISCONN when `fd` has a connection, EINVAL for a `dev` that is not this
/// device or an invalid `cid`, EADDRINUSE when a process listens there already;
/// [`Error::NoDevice`], [`Error::Permission`].
pub fn pcic_listen(fd: &mut Fd, dev: &str, cid: u32) -> Result<()> {
    fd.peer(dev)?;
    fd.connection = Some(fd.device.listen_once(cid, Offer::default())?);
    Ok(())
}

/// Connects to the process that listens at the peer.
///
/// # Errors
///
/// [`Error::System`]: EISCONN when `fd` has a connection, EINVAL for a `dev` that is not this
/// device, ECONNREFUSED when no process listens or the backlog is full, ENOTCONN when the link is
/// down, ETIMEDOUT when the peer does not answer, EOPNOTSUPP when receivers cannot move data here;
/// [`Error::OtherKind`] when the process expects no [`Offer::default`];
/// [`Error::NoPeer`], [`Error::NoDevice`], [`Error::Permission`].
pub fn pcic_connect(fd: &mut Fd, dev: &str, cid: u32) -> Result<()> {
    let peer = fd.peer(dev)?;
    let options = ConnectOptions {
        timeout: CONNECT_TIMEOUT,
        ..ConnectOptions::default()
    };
    fd.connection = Some(fd.device.connect(peer, cid, options)?);
    Ok(())
}

/// Ends the connection; waits until nothing is in flight. Memory that it still owned is freed.
///
/// # Errors
///
/// [`Error::System`]: ENOTCONN without a connection, and when the kernel could not end it; its
/// memory is then never used again.
pub fn pcic_disconnect(fd: &mut Fd) -> Result<()> {
    fd.connection()?.disconnect()?;
    fd.connection = None;
    Ok(())
}

/// Posts memory to receive into. Returns its number of bytes.
///
/// # Errors
///
/// [`Rejected`], with the memory: [`Error::System`] ENOTCONN without a connection, ENOSPC when it
/// has as many buffers as it can, ENOMEM when memory may not be pinned, EPIPE, ECONNRESET.
pub fn pcic_prepost_recv(fd: &Fd, data: Chunk) -> std::result::Result<usize, Rejected> {
    post(fd, data, Connection::prepost)
}

/// Reaps received memory, at most `len` bytes, and waits for it. Returns zero and no memory at the
/// end of the stream.
///
/// # Errors
///
/// [`Error::System`]: ENOTCONN without a connection, ECONNRESET after all that was received before
/// the reset.
pub fn pcic_recv(fd: &Fd, data: &mut Option<Chunk>, len: usize) -> Result<usize> {
    *data = fd.connection()?.recv(len, Duration::MAX)?;
    Ok(data.as_ref().map_or(0, |data| data.len()))
}

/// Posts memory to send. Returns its number of bytes.
///
/// # Errors
///
/// [`Rejected`], with the memory: [`Error::System`] ENOTCONN without a connection, ENOSPC when it
/// has as many buffers as it can, ENOMEM when memory may not be pinned, EPIPE, ECONNRESET.
pub fn pcic_send(fd: &Fd, data: Chunk) -> std::result::Result<usize, Rejected> {
    post(fd, data, Connection::send)
}

/// Reaps sent memory, at most `len` bytes, and waits for it. Returns zero and no memory when the
/// connection has ended.
///
/// # Errors
///
/// [`Error::System`]: ENOTCONN without a connection, ECONNRESET after all that was sent before the
/// reset.
pub fn pcic_send_recycle(fd: &Fd, data: &mut Option<Chunk>, len: usize) -> Result<usize> {
    *data = fd.connection()?.recycle(len, Duration::MAX)?;
    Ok(data.as_ref().map_or(0, |data| data.len()))
}

fn post(
    fd: &Fd,
    data: Chunk,
    call: impl FnOnce(&Connection, Chunk) -> std::result::Result<(), Rejected>,
) -> std::result::Result<usize, Rejected> {
    let length = data.len();
    match fd.connection() {
        Ok(connection) => call(connection, data).map(|()| length),
        Err(error) => Err(Rejected {
            error,
            memory: data,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_and_a_node_are_found_in_a_name() {
        let parse = |dev| parse(dev, "uldma3");
        assert_eq!(parse(""), Some(Peer::OTHER));
        assert_eq!(parse("uldma3"), Some(Peer::OTHER));
        assert_eq!(parse("2"), Some(Peer::node(2)));
        assert_eq!(parse("uldma3:0"), Some(Peer::node(0)));
        for dev in [
            "uldma4",
            "uldma4:0",
            "uldma3:",
            "uldma3:x",
            ":1",
            "+1",
            "-1",
            "99999999999",
        ] {
            assert_eq!(parse(dev), None, "{dev}");
        }
    }

    #[test]
    fn without_a_connection_memory_comes_back() {
        let fd = Fd::new(Device::mute());
        let rejected = pcic_send(&fd, Chunk::new(100).unwrap()).unwrap_err();
        assert_eq!(rejected.error.errno(), Some(Errno::ENOTCONN));
        assert_eq!(rejected.memory.len(), 100);
        let error = pcic_recv(&fd, &mut None, 1).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::ENOTCONN));
    }
}
