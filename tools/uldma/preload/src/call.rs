// SPDX-License-Identifier: MIT OR Apache-2.0

//! What becomes of a call: the kernel's alone, another one instead, or a failure.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::RawFd;

use nix::errno::Errno;
use nix::sys::socket::{
    bind, getpeername, getsockname, SockaddrIn, SockaddrIn6, SockaddrLike, SockaddrStorage,
};

use crate::broker::Broker;
use crate::protocol::{Answer, Request};

/// The kernel finds a port for this one.
const ANY_PORT: u16 = 0;

/// Prepares to connect `socket`, which is a stream, to `address`. Returns the address to connect to
/// instead; none if the call is the kernel's alone.
///
/// # Errors
///
/// That of the call.
pub(crate) fn connect(socket: RawFd, address: SocketAddr) -> Result<Option<SocketAddr>, Errno> {
    let Some(wanted) = as_v4(address) else {
        return Ok(None);
    };
    // A program that does not wait for a connection may ask for its result by another call.
    if getpeername::<SockaddrStorage>(socket).is_ok() {
        return Ok(None);
    }
    let Some(mut broker) = Broker::find() else {
        return Ok(None);
    };
    let (own, to) = match broker.ask(Request::Open(wanted)) {
        Ok(Answer::Via { own, to }) => (own, to),
        Ok(Answer::Fail(errno)) => return Err(Errno::from_raw(errno)),
        // Without an answer, too: the process has become one of another user.
        Ok(Answer::Pass | Answer::Done) | Err(_) => return Ok(None),
    };
    let form = |v4: SocketAddrV4| as_family(v4, address);
    if name_of(socket)?.port() == ANY_PORT {
        bind_to(socket, form(SocketAddrV4::new(own, ANY_PORT)))?;
    }
    let mut from = as_v4(name_of(socket)?).ok_or(Errno::EADDRNOTAVAIL)?;
    if from.ip().is_unspecified() {
        // The kernel's choice for all addresses of the loopback interface.
        from.set_ip(Ipv4Addr::LOCALHOST);
    }
    match broker.ask(Request::From(from))? {
        Answer::Done => Ok(Some(form(to))),
        Answer::Fail(errno) => Err(Errno::from_raw(errno)),
        Answer::Pass | Answer::Via { .. } => Err(Errno::ENETUNREACH),
    }
}

/// Prepares to listen at `socket`, which is a stream. Ports that only some addresses reach are the
/// kernel's alone.
///
/// # Errors
///
/// That of the call.
pub(crate) fn listen(socket: RawFd) -> Result<(), Errno> {
    let Ok(address) = name_of(socket) else {
        return Ok(());
    };
    let Some(at) = as_v4(address) else {
        return Ok(());
    };
    if at.port() == ANY_PORT {
        bind_to(socket, address)?;
    }
    let Some(mut broker) = Broker::find() else {
        return Ok(());
    };
    let at = as_v4(name_of(socket)?).unwrap_or(at);
    match broker.ask(Request::Listen(at)) {
        Ok(Answer::Fail(errno)) => Err(Errno::from_raw(errno)),
        _ => Ok(()),
    }
}

/// Returns the IPv4 address that an address is, or stands for: also the wildcard of IPv6.
fn as_v4(address: SocketAddr) -> Option<SocketAddrV4> {
    match address {
        SocketAddr::V4(v4) => Some(v4),
        SocketAddr::V6(v6) if v6.ip().is_unspecified() => {
            Some(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, v6.port()))
        }
        SocketAddr::V6(v6) => {
            let ip = v6.ip().to_ipv4_mapped()?;
            Some(SocketAddrV4::new(ip, v6.port()))
        }
    }
}

/// Returns an address for a socket of the family of `like`.
fn as_family(address: SocketAddrV4, like: SocketAddr) -> SocketAddr {
    match like {
        SocketAddr::V4(_) => address.into(),
        SocketAddr::V6(_) => {
            let ip: Ipv6Addr = address.ip().to_ipv6_mapped();
            SocketAddrV6::new(ip, address.port(), 0, 0).into()
        }
    }
}

/// Returns the address that a socket is bound to.
fn name_of(socket: RawFd) -> Result<SocketAddr, Errno> {
    from_storage(&getsockname(socket)?).ok_or(Errno::EAFNOSUPPORT)
}

/// Reads an address; none if it is not one of IP.
pub(crate) fn from_storage(address: &SockaddrStorage) -> Option<SocketAddr> {
    if let Some(v4) = address.as_sockaddr_in() {
        return Some(SocketAddrV4::from(*v4).into());
    }
    let v6 = address.as_sockaddr_in6()?;
    Some(SocketAddrV6::from(*v6).into())
}

fn bind_to(socket: RawFd, address: SocketAddr) -> Result<(), Errno> {
    bind(socket, &*to_native(address))
}

/// Returns the kernel's form of an address.
pub(crate) fn to_native(address: SocketAddr) -> Box<dyn SockaddrLike> {
    match address {
        SocketAddr::V4(v4) => Box::new(SockaddrIn::from(v4)),
        SocketAddr::V6(v6) => Box::new(SockaddrIn6::from(v6)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn an_address_keeps_the_family_of_its_socket() {
        let to: SocketAddrV4 = "127.117.108.1:80".parse().unwrap();
        for (text, same) in [
            ("10.0.0.1:5", "127.117.108.1:80"),
            ("[::ffff:10.0.0.1]:5", "[::ffff:127.117.108.1]:80"),
        ] {
            let like = parse(text);
            assert_eq!(as_v4(like), Some("10.0.0.1:5".parse().unwrap()));
            assert_eq!(as_family(to, like), parse(same));
        }
        let wildcard = "0.0.0.0:7".parse().unwrap();
        assert_eq!(as_v4(parse("[::]:7")), Some(wildcard));
        assert_eq!(as_v4(parse("[fe80::1]:7")), None);
    }

    #[test]
    fn without_a_broker_calls_are_the_kernels() {
        assert_eq!(connect(-1, parse("127.117.108.1:80")), Ok(None));
        assert_eq!(listen(-1), Ok(()));
    }
}
