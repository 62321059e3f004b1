// SPDX-License-Identifier: MIT OR Apache-2.0

//! State and counters of a connection, as the kernel reports them.

use std::os::fd::AsFd;

use super::Offer;
use crate::device::Device;
use crate::error::name::Name;
use crate::error::{Error, Result};
use crate::sys;
use crate::sys::uapi;

/// State of a connection, see `enum uldma_conn_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConnectionState {
    /// There is none.
    None,
    /// It listens for peers that connect.
    Listening,
    /// A connect request was sent to a peer.
    Connecting,
    /// Data can be exchanged.
    Connected,
    /// One of the sides has disconnected, or the link went down; data that was received before can
    /// still be reaped.
    Closing,
}

impl ConnectionState {
    fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            uapi::ULDMA_CONN_NONE => Self::None,
            uapi::ULDMA_CONN_LISTENING => Self::Listening,
            uapi::ULDMA_CONN_CONNECTING => Self::Connecting,
            uapi::ULDMA_CONN_CONNECTED => Self::Connected,
            uapi::ULDMA_CONN_CLOSING => Self::Closing,
            _ => return None,
        })
    }
}

/// An open file's connection or listener, see `struct uldma_conn_query`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectionInfo {
    /// State of the connection.
    pub state: ConnectionState,
    /// Receivers move the data.
    pub pull: bool,
    /// True if an engine moves the data.
    pub engine: bool,
    /// True if the data goes through the window, by two copies.
    pub window: bool,
    /// True if the data goes from endpoint to endpoint ([`Connection::match_streams`](crate::Connection::match_streams)).
    pub matched: bool,
    /// True if the two programs copy the data through rings
    /// ([`StreamOptions::ring`](crate::StreamOptions::ring)).
    pub ring: bool,
    /// True if the connection was reset.
    pub reset: bool,
    /// The peer's number.
    pub node: u32,
    /// The port.
    pub port: u32,
    /// Of a listener: number of connections that wait for accept().
    pub waiting: u32,
    /// Of a listener: number of connections refused because the backlog was full.
    pub refused: u32,
    /// A name that only the two sides know, for segments and exports that belong to the connection.
    /// None without a connection.
    pub name: Option<Name>,
    /// Bytes sent, which are in the peer's memory.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes of posted receive memory that are not filled yet.
    pub posted: u64,
    /// Bytes of posted send memory that are not sent yet.
    pub unsent: u64,
    /// Bytes that the processor of this node has copied. Divided by the bytes sent, the sum of both
    /// sides is the number of copies.
    pub copied: u64,
    /// Control messages that this side has sent for it.
    pub messages: u64,
    /// Times that memory was pinned for the connection.
    pub locks: u64,
    /// What the peer's side has said; the default before there is a connection.
    pub offer: Offer,
    /// The user id of the peer's side, as the peer's kernel says it: a number of that system.
    pub uid: u32,
}

impl ConnectionInfo {
    /// Queries the kernel.
    pub(super) fn query(device: &Device) -> Result<Self> {
        let failed = |errno| Error::system("query the connection", errno);
        let raw = sys::conn_query(device.as_fd(), Default::default()).map_err(failed)?;
        Self::from_raw(&raw).ok_or_else(|| failed(nix::errno::Errno::EIO))
    }

    fn from_raw(raw: &uapi::uldma_conn_query) -> Option<Self> {
        let has = |flag| raw.out_flags & flag != 0;
        Some(Self {
            state: ConnectionState::from_raw(raw.out_state)?,
            pull: has(uapi::ULDMA_CONN_PULL),
            engine: has(uapi::ULDMA_CONN_ENGINE),
            window: has(uapi::ULDMA_CONN_WINDOW),
            matched: has(uapi::ULDMA_CONN_MATCHED),
            ring: false,
            reset: has(uapi::ULDMA_CONN_RESET),
            node: raw.out_node,
            port: raw.out_port,
            waiting: raw.out_waiting,
            refused: raw.out_refused,
            name: Name::new(raw.out_name),
            sent: raw.out_sent,
            received: raw.out_received,
            posted: raw.out_posted,
            unsent: raw.out_unsent,
            copied: raw.out_copied,
            messages: raw.out_messages,
            locks: raw.out_pin_calls,
            offer: Offer::from_raw(&raw.out_offer)?,
            uid: raw.out_uid,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_told_apart() {
        let raw = uapi::uldma_conn_query {
            out_state: uapi::ULDMA_CONN_CLOSING,
            out_flags: uapi::ULDMA_CONN_WINDOW | uapi::ULDMA_CONN_RESET,
            out_name: 7,
            ..Default::default()
        };
        let info = ConnectionInfo::from_raw(&raw).unwrap();
        assert_eq!(info.state, ConnectionState::Closing);
        assert!(info.window && info.reset && !info.pull && !info.engine);
        assert_eq!(info.name, Name::new(7));
    }

    #[test]
    fn answers_that_cannot_be_are_refused() {
        let raw = uapi::uldma_conn_query {
            out_state: 99,
            ..Default::default()
        };
        assert_eq!(ConnectionInfo::from_raw(&raw), None);
        let mut raw = uapi::uldma_conn_query::default();
        raw.out_offer.private_length = 129;
        assert_eq!(ConnectionInfo::from_raw(&raw), None);
    }
}
