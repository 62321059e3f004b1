// SPDX-License-Identifier: GPL-2.0

//! Messages about connections.

use kernel::prelude::*;

use super::{
    Body,
    Raw, //
};
use crate::{
    kernel_ext::errno::eproto,
    link::handshake::{
        pair,
        unpair, //
    }, //
};

const CONNECT: u64 = 8;
const CONNECTED: u64 = 9;
const DISCONNECT: u64 = 10;
const DISCONNECTED: u64 = 11;
const EXPORT: u64 = 12;
const DONE: u64 = 13;

/// A range of the sender's section, unchecked: offset and length in bytes, zero and zero for none.
pub(crate) type RawWindowRange = (u64, u64);

/// A message about a connection. `to` is the number of the receiver, `from` that of the sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// Requests a connection.
    Connect {
        from: u32,
        port: u32,
        flags: u32,
        name: u64,
        window: RawWindowRange,
    },
    /// Answers [`Connection::Connect`]; `error` is an errno, or 0.
    Connected {
        to: u32,
        error: u32,
        from: u32,
        name: u64,
        window: RawWindowRange,
    },
    /// Requests the end: the sender has nothing in flight. With `reset`, data was lost.
    Disconnect { to: u32, from: u32, reset: bool },
    /// Answers [`Connection::Disconnect`]: nothing is in flight here either.
    Disconnected { to: u32 },
    /// Offers a buffer; see `Documentation/uldma/link.rst` for the token.
    Export {
        to: u32,
        bytes: u64,
        token: u64,
        generation: u64,
    },
    /// So many offered bytes of the receiver were moved.
    Done { to: u32, bytes: u64 },
}

impl Connection {
    /// Returns kind, number and words of the message.
    pub(super) fn encode(&self) -> (u64, u32, Body) {
        match *self {
            Self::Connect {
                from,
                port,
                flags,
                name,
                window,
            } => (CONNECT, from, [pair(port, flags), name, window.0, window.1]),
            Self::Connected {
                to,
                error,
                from,
                name,
                window,
            } => (CONNECTED, to, [pair(error, from), name, window.0, window.1]),
            Self::Disconnect { to, from, reset } => {
                (DISCONNECT, to, [pair(reset.into(), from), 0, 0, 0])
            }
            Self::Disconnected { to } => (DISCONNECTED, to, [0; 4]),
            Self::Export {
                to,
                bytes,
                token,
                generation,
            } => (EXPORT, to, [bytes, token, generation, 0]),
            Self::Done { to, bytes } => (DONE, to, [bytes, 0, 0, 0]),
        }
    }

    /// Decodes a message of a peer.
    ///
    /// # Errors
    ///
    /// `EPROTO` for an unknown kind.
    pub(super) fn decode(kind: u64, number: u32, raw: &Raw) -> Result<Self> {
        let [_, a, b, c, d, ..] = *raw;
        let (high, low) = unpair(a);
        Ok(match kind {
            CONNECT => Self::Connect {
                from: number,
                port: high,
                flags: low,
                name: b,
                window: (c, d),
            },
            CONNECTED => Self::Connected {
                to: number,
                error: high,
                from: low,
                name: b,
                window: (c, d),
            },
            DISCONNECT => Self::Disconnect {
                to: number,
                from: low,
                reset: high != 0,
            },
            DISCONNECTED => Self::Disconnected { to: number },
            EXPORT => Self::Export {
                to: number,
                bytes: a,
                token: b,
                generation: c,
            },
            DONE => Self::Done {
                to: number,
                bytes: a,
            },
            _ => return Err(eproto()),
        })
    }
}
