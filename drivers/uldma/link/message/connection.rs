// SPDX-License-Identifier: GPL-2.0

//! Messages about connections.

use kernel::prelude::*;

use super::Body;
use crate::{
    hw::layout::word::*,
    kernel_ext::errno::eproto,
    user_abi::offer::{
        Offer,
        PrivateData, //
    }, //
};

const CONNECT: u8 = 8;
const CONNECTED: u8 = 9;
const DISCONNECT: u8 = 10;
const DISCONNECTED: u8 = 11;
const EXPORT: u8 = 12;
const DONE: u8 = 13;
/// Kinds 14 and 15 are about the network.
const STREAM: u8 = 16;

word! {
    /// Word 1 of [`Connection::Connect`].
    struct Target(u64);

    fields {
        /// The port.
        PORT: u32 = 63, 32;
        /// Flags of the connection.
        FLAGS: u32 = 31, 0;
    }
}

word! {
    /// Word 5 of [`Connection::Connect`] and [`Connection::Connected`]: an [`Offer`] but for its
    /// private data.
    struct Identity(u64);

    fields {
        /// User of the sender's side.
        USER: u32 = 63, 32;
        /// What the connection carries.
        KIND: u16 = 31, 16;
        /// Version of that.
        VERSION: u16 = 15, 0;
    }
}

impl Identity {
    fn of(offer: &Offer) -> u64 {
        Self::NONE
            .with(Self::USER, offer.user)
            .with(Self::KIND, offer.kind)
            .with(Self::VERSION, offer.version)
            .bits()
    }

    fn offer(self, private: Result<PrivateData>) -> Result<Offer> {
        Ok(Offer {
            kind: self.get(Self::KIND),
            version: self.get(Self::VERSION),
            user: self.get(Self::USER),
            private: private.map_err(|_| eproto())?,
        })
    }
}

/// Bytes of the unit of an [`Extent`], whatever the pages of either node are.
const UNIT: u64 = 4096;

word! {
    /// A range of the sender's section, unchecked; [`Extent::NONE`] for none.
    pub(crate) struct Extent(u64);

    fields {
        /// Its first unit.
        FIRST: u32 = 63, 32;
        /// Number of units.
        UNITS: u32 = 31, 0;
    }
}

impl Extent {
    /// Returns the range of `length` bytes at byte `offset`, which are whole units.
    ///
    /// # Errors
    ///
    /// `EINVAL` for one that the word cannot name.
    pub(crate) fn new(offset: usize, length: usize) -> Result<Self> {
        let units = |bytes| {
            let bytes = u64::try_from(bytes).map_err(|_| EINVAL)?;
            u32::try_from(bytes / UNIT).map_err(|_| EINVAL)
        };
        let extent = Self::NONE.with(Self::FIRST, units(offset)?);
        Ok(extent.with(Self::UNITS, units(length)?))
    }

    /// Returns offset and length in bytes.
    pub(crate) fn bytes(self) -> (u64, u64) {
        let bytes = |units: u32| u64::from(units) * UNIT;
        (bytes(self.get(Self::FIRST)), bytes(self.get(Self::UNITS)))
    }
}

word! {
    /// Word 1 of [`Connection::Connected`].
    struct Reply(u64);

    fields {
        /// An errno, or 0.
        ERROR: u32 = 63, 32;
        /// Number of the sender's connection.
        FROM: u32 = 31, 0;
    }
}

word! {
    /// Word 1 of [`Connection::Disconnect`].
    struct End(u64);

    fields {
        /// 1 if data was lost, otherwise 0.
        RESET: u32 = 63, 32;
        /// Number of the sender's connection.
        FROM: u32 = 31, 0;
    }
}

word! {
    /// Word 1 of [`Connection::Stream`].
    struct Named(u64);

    flags {
        /// The sender names an endpoint.
        ENDPOINT = 32;
    }

    fields {
        /// Index of the endpoint.
        INDEX: u32 = 31, 0;
    }
}

/// Index and generation of an endpoint.
pub(crate) type EndpointName = (u32, u64);

/// A message about a connection. `to` is the number of the receiver, `from` that of the sender.
/// `window` carries data to the sender, if data goes through the window; the programs map `ring`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    /// Requests a connection.
    Connect {
        from: u32,
        port: u32,
        flags: u32,
        name: u64,
        window: Extent,
        ring: Extent,
        offer: Offer,
    },
    /// Answers [`Connection::Connect`]; `error` is an errno, or 0. A refusal carries
    /// [`Offer::NONE`].
    Connected {
        to: u32,
        error: u32,
        from: u32,
        name: u64,
        window: Extent,
        ring: Extent,
        offer: Offer,
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
    /// Names the endpoint that sends and receives the data of the connection, or refuses to.
    Stream {
        to: u32,
        endpoint: Option<EndpointName>,
    },
}

impl Connection {
    /// Returns the private data of the message.
    pub(super) fn private(&self) -> &PrivateData {
        match self {
            Self::Connect { offer, .. } | Self::Connected { offer, .. } => &offer.private,
            _ => &PrivateData::NONE,
        }
    }

    /// Returns kind, number and words of the message.
    pub(super) fn encode(&self) -> (u8, u32, Body) {
        match *self {
            Self::Connect {
                from,
                port,
                flags,
                name,
                window,
                ring,
                offer,
            } => {
                let target = Target::NONE.with(Target::PORT, port);
                let target = target.with(Target::FLAGS, flags).bits();
                let body = [
                    target,
                    name,
                    window.bits(),
                    ring.bits(),
                    Identity::of(&offer),
                ];
                (CONNECT, from, body)
            }
            Self::Connected {
                to,
                error,
                from,
                name,
                window,
                ring,
                offer,
            } => {
                let reply = Reply::NONE.with(Reply::ERROR, error);
                let reply = reply.with(Reply::FROM, from).bits();
                let body = [
                    reply,
                    name,
                    window.bits(),
                    ring.bits(),
                    Identity::of(&offer),
                ];
                (CONNECTED, to, body)
            }
            Self::Disconnect { to, from, reset } => {
                let end = End::NONE.with(End::RESET, reset.into());
                let end = end.with(End::FROM, from).bits();
                (DISCONNECT, to, [end, 0, 0, 0, 0])
            }
            Self::Disconnected { to } => (DISCONNECTED, to, [0; 5]),
            Self::Export {
                to,
                bytes,
                token,
                generation,
            } => (EXPORT, to, [bytes, token, generation, 0, 0]),
            Self::Done { to, bytes } => (DONE, to, [bytes, 0, 0, 0, 0]),
            Self::Stream { to, endpoint } => {
                let (named, generation) = match endpoint {
                    Some((index, generation)) => {
                        (Named::ENDPOINT.with(Named::INDEX, index), generation)
                    }
                    None => (Named::NONE, 0),
                };
                (STREAM, to, [named.bits(), generation, 0, 0, 0])
            }
        }
    }

    /// Decodes a message of a peer; `private` is called where a message can have private data.
    ///
    /// # Errors
    ///
    /// `EPROTO` for an unknown kind, and private data that cannot be.
    pub(super) fn decode(
        kind: u8,
        number: u32,
        [a, b, c, d, e]: Body,
        private: impl FnOnce() -> Result<PrivateData>,
    ) -> Result<Self> {
        let target = Target::from_bits(a);
        let reply = Reply::from_bits(a);
        let end = End::from_bits(a);
        Ok(match kind {
            CONNECT => Self::Connect {
                from: number,
                port: target.get(Target::PORT),
                flags: target.get(Target::FLAGS),
                name: b,
                window: Extent::from_bits(c),
                ring: Extent::from_bits(d),
                offer: Identity::from_bits(e).offer(private())?,
            },
            CONNECTED => Self::Connected {
                to: number,
                error: reply.get(Reply::ERROR),
                from: reply.get(Reply::FROM),
                name: b,
                window: Extent::from_bits(c),
                ring: Extent::from_bits(d),
                offer: Identity::from_bits(e).offer(private())?,
            },
            DISCONNECT => Self::Disconnect {
                to: number,
                from: end.get(End::FROM),
                reset: end.get(End::RESET) != 0,
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
            STREAM => {
                let named = Named::from_bits(a);
                let name = (named.get(Named::INDEX), b);
                Self::Stream {
                    to: number,
                    endpoint: named.contains(Named::ENDPOINT).then_some(name),
                }
            }
            _ => return Err(eproto()),
        })
    }
}
