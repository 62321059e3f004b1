// SPDX-License-Identifier: MIT OR Apache-2.0

//! The side that connects.

use std::os::fd::AsFd;
use std::time::Duration;

use nix::errno::Errno;

use super::{Connection, Offer};
use crate::device::Device;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::nanoseconds;
use crate::wait::retry::Backoff;

/// Options of [`Device::connect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// True if the receiver moves the data, in both directions, instead of the sender.
    pub pull: bool,
    /// Retry until the timeout if no process listens (yet), or the link is down.
    pub retry: bool,
    /// Limit of the time for the peer's answer.
    pub timeout: Duration,
    /// What the side that listens is told, and has to fit to.
    pub offer: Offer,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            pull: false,
            retry: false,
            timeout: Duration::from_secs(10),
            offer: Offer::default(),
        }
    }
}

impl Device {
    /// Connects to the process that listens at a port of a peer, through an open file of its own.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ECONNREFUSED when no process listens or the backlog is full, ENOTCONN
    /// when the link is down, ETIMEDOUT when the peer does not answer, EOPNOTSUPP when receivers
    /// cannot move data here, ENOSPC when as many earlier connects wait for their answers, EDQUOT
    /// when this user has as many connections as it may.
    /// [`Error::Timeout`] instead of the first two, with [`ConnectOptions::retry`].
    /// [`Error::OtherKind`] when the process that listens expects another kind or version.
    /// [`Error::NoPeer`], [`Error::NoDevice`], [`Error::Permission`].
    pub fn connect(&self, peer: Peer, port: u32, options: ConnectOptions) -> Result<Connection> {
        let connection = Connection::new(self.reopen()?, options.offer);
        let backoff = Backoff::within(options.timeout);
        let mut refused = None;
        loop {
            let left = backoff.left();
            let argument = uapi::uldma_conn_connect {
                flags: if options.pull {
                    uapi::ULDMA_CONNECT_PULL
                } else {
                    0
                },
                peer: peer.field(),
                port,
                timeout_ns: nanoseconds(left),
                offer: options.offer.into(),
                ..Default::default()
            };
            let errno = match sys::conn_connect(connection.as_fd(), argument) {
                Ok(_) => return Ok(connection),
                Err(errno) => errno,
            };
            let again = match errno {
                Errno::EINTR => !left.is_zero(),
                Errno::ECONNREFUSED | Errno::ENOTCONN => options.retry && backoff.pause(),
                _ => false,
            };
            if !again {
                // The last attempt may have had no time for an answer.
                let errno = refused
                    .filter(|_| errno == Errno::ETIMEDOUT)
                    .unwrap_or(errno);
                let error = not_connected(peer, port, options, errno);
                return Err(self.about_peer(peer, error));
            }
            refused = Some(errno).filter(|_| errno != Errno::EINTR).or(refused);
        }
    }
}

/// Builds the error of a failed connect(). After retries it is a timeout.
fn not_connected(peer: Peer, port: u32, options: ConnectOptions, errno: Errno) -> Error {
    let what = match errno {
        Errno::ECONNREFUSED if options.retry => {
            format!("listener with room at port {port} of {peer}")
        }
        Errno::ENOTCONN if options.retry => format!("link to {peer}"),
        Errno::EPROTOTYPE | Errno::EPROTONOSUPPORT => {
            let what = match errno {
                Errno::EPROTOTYPE => "kind",
                _ => "version of this kind",
            };
            return Error::OtherKind { peer, port, what };
        }
        _ => return Error::connection(format!("connect to port {port} of {peer}"), errno),
    };
    Error::Timeout {
        what,
        after: options.timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_again_in_vain_is_a_timeout() {
        let error = |retry, errno| {
            let options = ConnectOptions {
                retry,
                ..Default::default()
            };
            not_connected(Peer::node(1), 7, options, errno).to_string()
        };
        let refused = "no listener with room at port 7 of node 1 within 10s";
        assert_eq!(error(true, Errno::ECONNREFUSED), refused);
        assert_eq!(error(true, Errno::ENOTCONN), "no link to node 1 within 10s");
        assert!(error(false, Errno::ECONNREFUSED).starts_with("connect to port 7 of node 1: "));
        let other = "the process that listens at port 7 of node 1 expects another";
        for (errno, what) in [
            (Errno::EPROTOTYPE, "kind"),
            (Errno::EPROTONOSUPPORT, "version of this kind"),
        ] {
            assert_eq!(error(true, errno), format!("{other} {what} of connection"));
        }
        assert!(error(true, Errno::ENODEV).starts_with("connect to port 7 of node 1: "));
    }
}
