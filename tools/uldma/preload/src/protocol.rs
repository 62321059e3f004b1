// SPDX-License-Identifier: MIT OR Apache-2.0

//! What a program that was started by `uldma run` says to it, and the answers.
//!
//! The program connects to a local stream socket with an abstract name. Each packet has [`SIZE`]
//! bytes. The library that is preloaded and `uldma run` compile this file both.

use std::net::{Ipv4Addr, SocketAddrV4};

/// Names the socket, in the environment of the program: the abstract name without its first byte.
pub(crate) const VARIABLE: &str = "ULDMA_RUN";
/// Bytes of a request, and of an answer.
pub(crate) const SIZE: usize = 20;
/// The first byte of each packet: the version.
const VERSION: u8 = 1;

/// A request of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Connects to this address.
    Open(SocketAddrV4),
    /// After [`Answer::Via`]: the connection will come from this address.
    From(SocketAddrV4),
    /// Listens at this address.
    Listen(SocketAddrV4),
}

/// An answer to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// The call is the kernel's alone.
    Pass,
    /// The call fails with this errno.
    Fail(i32),
    /// The program connects to `to` instead, from an address of `own`.
    Via { own: Ipv4Addr, to: SocketAddrV4 },
    /// The request is done.
    Done,
}

impl Request {
    /// Returns the packet.
    pub(crate) fn encode(self) -> [u8; SIZE] {
        match self {
            Self::Open(address) => packet(1, 0, address, Ipv4Addr::UNSPECIFIED),
            Self::From(address) => packet(2, 0, address, Ipv4Addr::UNSPECIFIED),
            Self::Listen(address) => packet(3, 0, address, Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Reads a packet; none if it is no request.
    pub(crate) fn decode(packet: &[u8]) -> Option<Self> {
        let (kind, _, address, _) = parts(packet)?;
        match kind {
            1 => Some(Self::Open(address)),
            2 => Some(Self::From(address)),
            3 => Some(Self::Listen(address)),
            _ => None,
        }
    }
}

impl Answer {
    /// Returns the packet.
    pub(crate) fn encode(self) -> [u8; SIZE] {
        let nowhere = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0);
        match self {
            Self::Pass => packet(1, 0, nowhere, Ipv4Addr::UNSPECIFIED),
            Self::Fail(errno) => packet(2, errno, nowhere, Ipv4Addr::UNSPECIFIED),
            Self::Via { own, to } => packet(3, 0, to, own),
            Self::Done => packet(4, 0, nowhere, Ipv4Addr::UNSPECIFIED),
        }
    }

    /// Reads a packet; none if it is no answer.
    pub(crate) fn decode(packet: &[u8]) -> Option<Self> {
        let (kind, errno, to, own) = parts(packet)?;
        match kind {
            1 => Some(Self::Pass),
            2 => Some(Self::Fail(errno)),
            3 => Some(Self::Via { own, to }),
            4 => Some(Self::Done),
            _ => None,
        }
    }
}

/// Lays out a packet: version, kind, port, address, errno, another address, and four zero bytes.
fn packet(kind: u8, errno: i32, address: SocketAddrV4, other: Ipv4Addr) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    let fields = [VERSION, kind]
        .into_iter()
        .chain(address.port().to_be_bytes())
        .chain(address.ip().octets())
        .chain(errno.to_be_bytes())
        .chain(other.octets());
    for (byte, field) in bytes.iter_mut().zip(fields) {
        *byte = field;
    }
    bytes
}

fn parts(packet: &[u8]) -> Option<(u8, i32, SocketAddrV4, Ipv4Addr)> {
    let bytes: &[u8; SIZE] = packet.try_into().ok()?;
    let [VERSION, kind, p0, p1, a0, a1, a2, a3, e0, e1, e2, e3, o0, o1, o2, o3, ..] = *bytes else {
        return None;
    };
    let address = Ipv4Addr::new(a0, a1, a2, a3);
    let address = SocketAddrV4::new(address, u16::from_be_bytes([p0, p1]));
    let errno = i32::from_be_bytes([e0, e1, e2, e3]);
    Some((kind, errno, address, Ipv4Addr::new(o0, o1, o2, o3)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_read_as_they_were_written() {
        let address = SocketAddrV4::new(Ipv4Addr::new(10, 1, 2, 3), 8080);
        for request in [
            Request::Open(address),
            Request::From(address),
            Request::Listen(address),
        ] {
            assert_eq!(Request::decode(&request.encode()), Some(request));
        }
        let via = Answer::Via {
            own: Ipv4Addr::new(127, 1, 2, 3),
            to: address,
        };
        for answer in [Answer::Pass, Answer::Fail(111), via, Answer::Done] {
            assert_eq!(Answer::decode(&answer.encode()), Some(answer));
        }
    }

    #[test]
    fn other_packets_are_refused() {
        let mut packet = Answer::Done.encode();
        assert_eq!(Answer::decode(&packet[1..]), None);
        assert_eq!(Request::decode(&[]), None);
        packet[1] = 9;
        assert_eq!(Answer::decode(&packet), None);
        assert_eq!(Request::decode(&packet), None);
        packet[..2].copy_from_slice(&[VERSION + 1, 1]);
        assert_eq!(Request::decode(&packet), None);
    }
}
