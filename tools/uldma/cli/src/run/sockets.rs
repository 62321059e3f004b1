// SPDX-License-Identifier: MIT OR Apache-2.0

//! The sockets of a program: connects for it, and listens for it.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::socket::{
    bind, connect, setsockopt, socket, sockopt, AddressFamily, SockFlag, SockType, SockaddrIn,
};
use nix::sys::time::TimeVal;
use uldma::StreamOptions;
use uldma::{ConnectOptions, Connection, Device, Error, Listener, Peer, Receiving, Sending};

use super::busy::{Busy, BusyMark};
use super::flow::Program;
use super::nodes::{self, Nodes};
use super::report::Totals;
use super::{flow, frame, served};

/// Connections of peers that wait until this program takes them, which it does at once.
const BACKLOG: u32 = 16;

/// What all sockets share.
pub(super) struct Sockets {
    pub(super) device: Device,
    pub(super) nodes: Nodes,
    pub(super) stream: StreamOptions,
    /// Limit of the time for a peer's answer.
    pub(super) timeout: Duration,
    /// Connections that there can be.
    pub(super) most: usize,
    pub(super) count: AtomicUsize,
    /// Of these, those that have data to carry.
    pub(super) busy: Arc<Busy>,
    pub(super) ports: Mutex<BTreeSet<u16>>,
    pub(super) totals: Totals,
}

/// One of the connections that there can be.
pub(super) struct Slot {
    sockets: Arc<Sockets>,
    /// None once all data is carried; the connection is still to be ended then.
    busy: Option<BusyMark>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.sockets.count.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection to the program at a peer, which has accepted it.
pub(super) struct Open {
    receiving: Receiving,
    sending: Sending,
    /// Where this program's user connects to.
    gate: TcpListener,
    slot: Slot,
}

impl Sockets {
    /// Takes one of the connections that there can be.
    pub(super) fn slot(self: &Arc<Self>) -> Option<Slot> {
        let taken = self.count.fetch_add(1, Ordering::AcqRel);
        let slot = Slot {
            sockets: Arc::clone(self),
            busy: Some(self.busy.mark()),
        };
        (taken < self.most).then_some(slot)
    }

    /// Connects to a port of a node, and makes the address that the program connects to.
    ///
    /// # Errors
    ///
    /// That of connect(2).
    pub(super) fn open(self: &Arc<Self>, node: u32, tcp: u16) -> Result<Open, Errno> {
        let slot = self.slot().ok_or(Errno::EAGAIN)?;
        let options = ConnectOptions {
            timeout: self.timeout,
            ..ConnectOptions::default()
        };
        let peer = Peer::node(node);
        let connected = self.device.connect(peer, nodes::port(tcp), options);
        let connection = connected.map_err(|error| errno_of(&error))?;
        let (mut receiving, mut sending) = self.halves(connection)?;
        frame::open(&mut sending, 0)
            .and_then(|()| frame::opened(&mut receiving))
            .map_err(|error| errno_of_io(&error))?;
        unlimited(&mut receiving, &mut sending);
        let address = Nodes::address(node).ok_or(Errno::EHOSTUNREACH)?;
        let gate = TcpListener::bind(SocketAddrV4::new(address, 0));
        let gate = gate.map_err(|error| errno_of_io(&error))?;
        Ok(Open {
            receiving,
            sending,
            gate,
            slot,
        })
    }

    /// Turns a connection into a stream of two halves with a limit of time.
    fn halves(&self, connection: Connection) -> Result<(Receiving, Sending), Errno> {
        let stream = connection.into_stream(self.stream);
        let mut stream = stream.map_err(|error| errno_of(&error))?;
        stream.set_timeout(self.timeout);
        if stream.connection().query().is_ok_and(|info| info.ring) {
            self.totals.by_ring();
        }
        Ok(stream.split())
    }

    /// Carries the connection that the program makes from that address.
    pub(super) fn join(&self, open: Open, from: SocketAddrV4) {
        let Some(program) = accept(&open.gate, from, self.timeout) else {
            self.totals.refused();
            return;
        };
        self.totals.connected();
        let Open {
            mut receiving,
            mut sending,
            gate,
            mut slot,
        } = open;
        drop(gate);
        flow::carry(program, &mut receiving, &mut sending, &self.totals);
        slot.busy = None;
    }

    /// Listens for peers at a port, until this process ends.
    ///
    /// # Errors
    ///
    /// That of listen(2).
    pub(super) fn listen(self: &Arc<Self>, tcp: u16) -> Result<(), Errno> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if ports.contains(&tcp) {
            return Ok(());
        }
        let listener = self.device.listen(nodes::port(tcp), BACKLOG);
        let listener = listener.map_err(|error| errno_of(&error))?;
        ports.insert(tcp);
        let sockets = Arc::clone(self);
        thread::spawn(move || sockets.serve(&listener, tcp));
        Ok(())
    }

    /// Takes the connections of peers.
    fn serve(self: &Arc<Self>, listener: &Listener, tcp: u16) {
        while let Ok((connection, node)) = listener.accept(Duration::MAX) {
            let Some(mut slot) = self.slot() else {
                self.totals.refused();
                // The peer is told by the end of its connection.
                continue;
            };
            let sockets = Arc::clone(self);
            thread::spawn(move || {
                if sockets.admit(connection, node, tcp, &mut slot).is_none() {
                    sockets.totals.refused();
                }
            });
        }
    }

    /// Connects a peer to the program.
    fn admit(&self, connection: Connection, node: u32, tcp: u16, slot: &mut Slot) -> Option<()> {
        let (mut receiving, mut sending) = self.halves(connection).ok()?;
        frame::opened(&mut receiving).ok()?;
        let connected = match served::by_this_user(tcp) {
            true => self.connect_program(node, tcp),
            false => Err(Errno::ECONNREFUSED),
        };
        let errno = connected.as_ref().err().map_or(0, |&errno| errno as i32);
        let told = frame::open(&mut sending, errno);
        let Ok(program) = connected else {
            // The reason arrives before the end.
            let _ = io::Write::flush(&mut sending);
            return None;
        };
        told.ok()?;
        unlimited(&mut receiving, &mut sending);
        self.totals.accepted();
        flow::carry(program, &mut receiving, &mut sending, &self.totals);
        slot.busy = None;
        Some(())
    }

    /// Connects to the program that listens, from the address of the peer.
    fn connect_program(&self, node: u32, tcp: u16) -> Result<Program, Errno> {
        let from = Nodes::address(node).ok_or(Errno::EHOSTUNREACH)?;
        let flags = SockFlag::SOCK_CLOEXEC;
        let fd = socket(AddressFamily::Inet, SockType::Stream, flags, None)?;
        let seconds = self.timeout.as_secs().max(1);
        let limit = TimeVal::new(i64::try_from(seconds).unwrap_or(i64::MAX), 0);
        setsockopt(&fd, sockopt::SendTimeout, &limit)?;
        bind(fd.as_raw_fd(), &native(from, 0))?;
        connect(fd.as_raw_fd(), &native(self.nodes.own(), tcp)).map_err(|errno| match errno {
            Errno::EINPROGRESS => Errno::ETIMEDOUT,
            other => other,
        })?;
        Program::new(TcpStream::from(fd)).map_err(|error| errno_of_io(&error))
    }
}

impl Open {
    /// Returns the address that the program connects to.
    pub(super) fn address(&self) -> Result<SocketAddrV4, Errno> {
        match self.gate.local_addr() {
            Ok(std::net::SocketAddr::V4(address)) => Ok(address),
            _ => Err(Errno::EADDRNOTAVAIL),
        }
    }
}

fn native(address: Ipv4Addr, port: u16) -> SockaddrIn {
    SockaddrIn::from(SocketAddrV4::new(address, port))
}

/// Ends the limit of time that the opening has.
fn unlimited(receiving: &mut Receiving, sending: &mut Sending) {
    receiving.set_timeout(Duration::MAX);
    sending.set_timeout(Duration::MAX);
}

/// Accepts the connection from one address, in time. All others are not of the program that has
/// asked, and are closed.
fn accept(gate: &TcpListener, from: SocketAddrV4, timeout: Duration) -> Option<Program> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(gate.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, left) {
            Err(Errno::EINTR) => continue,
            Ok(1..) => {}
            _ => return None,
        }
        let (program, address) = gate.accept().ok()?;
        if address == from.into() {
            return Program::new(program).ok();
        }
    }
}

/// Returns the errno of connect(2) or listen(2) for an error of the library.
fn errno_of(error: &Error) -> Errno {
    match error {
        Error::Timeout { .. } => Errno::ETIMEDOUT,
        Error::NoPeer { .. } => Errno::EHOSTUNREACH,
        Error::LinkDown => Errno::ENETUNREACH,
        Error::Permission(_) => Errno::EACCES,
        Error::OtherKind { .. } => Errno::EPROTO,
        other => match other.errno() {
            // The link is down, or the device has gone.
            Some(Errno::ENOTCONN | Errno::ENODEV) => Errno::ENETUNREACH,
            Some(errno @ (Errno::ECONNREFUSED | Errno::ETIMEDOUT | Errno::EADDRINUSE)) => errno,
            // The peer has ended the connection before it has answered.
            Some(Errno::ECONNRESET | Errno::EPIPE) => Errno::ECONNREFUSED,
            _ => Errno::ENOBUFS,
        },
    }
}

/// Returns the errno of connect(2) for an error while a connection is opened.
fn errno_of_io(error: &io::Error) -> Errno {
    let inner = error.get_ref().and_then(|it| it.downcast_ref::<Error>());
    match (inner, error.raw_os_error()) {
        (Some(inner), _) => errno_of(inner),
        (None, Some(number)) => Errno::from_raw(number),
        // The end came first.
        (None, None) => Errno::ECONNREFUSED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_sockets() {
        let timeout = Error::Timeout {
            what: "answer".into(),
            after: Duration::ZERO,
        };
        assert_eq!(errno_of(&timeout), Errno::ETIMEDOUT);
        assert_eq!(errno_of(&Error::LinkDown), Errno::ENETUNREACH);
        let of = |errno| {
            errno_of(&Error::System {
                action: String::new(),
                errno,
                hint: None,
            })
        };
        assert_eq!(of(Errno::ECONNREFUSED), Errno::ECONNREFUSED);
        assert_eq!(of(Errno::ENOTCONN), Errno::ENETUNREACH);
        assert_eq!(of(Errno::ECONNRESET), Errno::ECONNREFUSED);
        assert_eq!(of(Errno::EDQUOT), Errno::ENOBUFS);
        assert_eq!(errno_of_io(&Error::LinkDown.into()), Errno::ENETUNREACH);
        let end = io::ErrorKind::UnexpectedEof.into();
        assert_eq!(errno_of_io(&end), Errno::ECONNREFUSED);
        assert_eq!(errno_of_io(&Errno::EPROTO.into()), Errno::EPROTO);
    }

    #[test]
    fn only_the_program_that_has_asked_gets_its_connection() {
        let gate = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = gate.local_addr().unwrap();
        let other = TcpStream::connect(to).unwrap();
        let own = TcpStream::connect(to).unwrap();
        let std::net::SocketAddr::V4(from) = own.local_addr().unwrap() else {
            panic!("not IPv4");
        };
        let found = accept(&gate, from, Duration::from_secs(20)).unwrap();
        assert_eq!(found.peer_address().unwrap(), from.into());
        let other_port = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        assert!(accept(&gate, other_port, Duration::ZERO).is_none());
        drop(other);
    }
}
