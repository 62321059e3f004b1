// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets between a TUN interface and a connection.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use serde::Serialize;
use tun_rs::{DeviceBuilder, SyncDevice};
use uldma::{ConnectOptions, Connection, Peer, Receiving, Sending};

use super::frame::{self, Batch, Packets};
use crate::args::{Common, Net};
use crate::connection::{self, failure};
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// A bridge that packets can cross.
#[derive(Debug, Serialize)]
struct Up {
    schema_version: u32,
    interface: String,
    node: u32,
    port: u32,
    mtu: u16,
}

/// The report of a bridge at its end.
#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    interface: String,
    packets_sent: u64,
    bytes_sent: u64,
    packets_received: u64,
    bytes_received: u64,
    /// Packets of the peer that this node's kernel did not take.
    dropped: u64,
}

/// Packets of one direction, and their bytes.
#[derive(Debug, Default)]
struct Counter {
    packets: AtomicU64,
    bytes: AtomicU64,
}

impl Counter {
    fn add(&self, length: usize) {
        self.packets.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(length as u64, Ordering::Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (read(&self.packets), read(&self.bytes))
    }
}

/// Bridges until the peer disconnects or a signal arrives.
pub(super) fn run(common: &Common, args: &Net, name: &str) -> Result<()> {
    let device = common.open()?;
    let signals = signals()?;
    // Before the connection: without the right to make interfaces the peer learns nothing.
    let interface = Arc::new(make(name)?);
    let name = interface.name().map_err(|error| of_interface(&error))?;

    let connection = connect(common, args, &device)?;
    let info = connection.query()?;
    let mtu = frame::agree(&info.offer, args.mtu)?;
    let (receiving, mut sending) = connection.into_stream(args.stream())?.split();
    sending.set_timeout(common.timeout);
    let packets = Packets::new(receiving, mtu, common.timeout);
    interface
        .set_mtu(mtu)
        .and_then(|()| interface.enabled(true))
        .map_err(|error| of_interface(&error))?;
    let up = Up {
        schema_version: SCHEMA_VERSION,
        interface: name.clone(),
        node: info.node,
        port: info.port,
        mtu,
    };
    output::print(common.json, &up, |up| {
        format!(
            "{} is up: packets of up to {} bytes to node {}",
            up.interface, up.mtu, up.node
        )
    })?;
    let report = bridge(&interface, packets, sending, signals, args, name)?;
    output::print(common.json, &report, |report| {
        format!(
            "{}: sent {} packets ({} bytes), received {} ({} bytes), dropped {}",
            report.interface,
            report.packets_sent,
            report.bytes_sent,
            report.packets_received,
            report.bytes_received,
            report.dropped
        )
    })
}

/// Makes signals end the bridge and not the process, in all threads that it starts.
fn signals() -> Result<SignalFd> {
    let failed = |errno: Errno| Failure::io("wait for a signal", &errno.into());
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    signals.thread_block().map_err(failed)?;
    SignalFd::with_flags(&signals, SfdFlags::SFD_CLOEXEC).map_err(failed)
}

/// Makes an interface that is not up, and ends with the process.
fn make(name: &str) -> Result<SyncDevice> {
    let made = DeviceBuilder::new().name(name).enable(false).build_sync();
    let interface = made.map_err(|error| Failure {
        hint: (error.kind() == ErrorKind::PermissionDenied)
            .then(|| "to make interfaces needs CAP_NET_ADMIN".to_owned()),
        kind: if error.kind() == ErrorKind::PermissionDenied {
            Kind::NoPermission
        } else {
            Kind::Failed
        },
        message: format!("make {name}: {error}"),
    })?;
    let nonblocking = interface.set_nonblocking(true);
    nonblocking.map_err(|error| of_interface(&error))?;
    Ok(interface)
}

fn of_interface(error: &io::Error) -> Failure {
    Failure::io("interface", error)
}

/// Connects to the other bridge, or waits for its connection.
fn connect(common: &Common, args: &Net, device: &uldma::Device) -> Result<Connection> {
    let offer = frame::offer(args.mtu)?;
    if let Some(port) = args.listen {
        let connection = device.listen_once(port, offer)?;
        connection.wait_connected(common.timeout)?;
        return Ok(connection);
    }
    let [node, port] = args.connect.as_slice() else {
        return Err(Failure::new(Kind::Usage, "--connect NODE PORT"));
    };
    let options = ConnectOptions {
        pull: false,
        retry: args.wait,
        timeout: common.timeout,
        offer,
    };
    Ok(device.connect(Peer::node(*node), *port, options)?)
}

/// The reason for which the interface's packets are sent no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A signal has arrived.
    Signal,
    /// The peer has disconnected, or the connection was reset.
    Peer,
}

/// Takes the error of sending to a peer that has disconnected for none: the packets are lost, as
/// they may be on any network.
fn unless_disconnected(error: io::Error) -> io::Result<()> {
    let inner = error
        .get_ref()
        .and_then(|it| it.downcast_ref::<uldma::Error>());
    match inner.and_then(uldma::Error::errno) {
        Some(Errno::EPIPE) => Ok(()),
        _ => Err(error),
    }
}

/// Carries packets in both directions until the connection ends.
fn bridge(
    interface: &Arc<SyncDevice>,
    mut packets: Packets<Receiving>,
    mut sending: Sending,
    signals: SignalFd,
    args: &Net,
    name: String,
) -> Result<Report> {
    let sent = Arc::new(Counter::default());
    let (sender, ended) = mpsc::channel();
    let batch = Batch::new(args.buffer, packets.mtu());
    let (source, counter) = (Arc::clone(interface), Arc::clone(&sent));
    // This thread may still wait for packets at the end, and ends with the process.
    thread::spawn(move || {
        let result = send(&source, &mut sending, batch, &signals, &counter);
        let by_peer = matches!(result, Ok(End::Peer));
        // Reported before disconnecting, so that the reason is known when the connection ends.
        let _ = sender.send(result);
        if !by_peer {
            let _ = sending.connection().disconnect();
        }
    });
    let (received, mut dropped) = (Counter::default(), 0);
    let end = receive(interface, &mut packets, &received, &mut dropped);
    match ended.try_recv() {
        // A signal has ended the bridge, so the result of receiving does not matter.
        Ok(Ok(End::Signal)) => {}
        Ok(Err(failure)) => return Err(connection::cause(failure, end.err())),
        Ok(Ok(End::Peer)) | Err(_) => {
            end?;
            if packets.input().connection().query()?.reset {
                return Err(connection::reset());
            }
        }
    }
    packets.input().connection().disconnect()?;
    let ((packets_sent, bytes_sent), (packets_received, bytes_received)) =
        (sent.get(), received.get());
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        interface: name,
        packets_sent,
        bytes_sent,
        packets_received,
        bytes_received,
        dropped,
    })
}

/// Sends the interface's packets, as many at a time as there are.
fn send(
    interface: &SyncDevice,
    sending: &mut Sending,
    mut batch: Batch,
    signals: &SignalFd,
    counter: &Counter,
) -> Result<End> {
    loop {
        let mut fds = [
            PollFd::new(interface.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) if fds[1].any() == Some(true) => return Ok(End::Signal),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(Failure::io("wait for packets", &errno.into())),
        }
        loop {
            match batch.add(|room| interface.recv(room)) {
                Ok(Some(length)) => counter.add(length),
                Ok(None) => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(of_interface(&error)),
            }
        }
        if let Err(error) = batch.send(sending) {
            unless_disconnected(error).map_err(|error| failure("send", error))?;
            return Ok(End::Peer);
        }
    }
}

/// Hands the peer's packets to this node's kernel until the peer disconnects.
fn receive(
    interface: &SyncDevice,
    packets: &mut Packets<Receiving>,
    counter: &Counter,
    dropped: &mut u64,
) -> Result<()> {
    while let Some(packet) = packets.next()? {
        match interface.send(packet) {
            Ok(_) => counter.add(packet.len()),
            Err(error) if is_refusal(&error) => *dropped += 1,
            Err(error) => return Err(of_interface(&error)),
        }
    }
    Ok(())
}

/// Whether the kernel did not take this packet but may take others: it is none of IP, the interface
/// is down, or there is no memory.
fn is_refusal(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(
        errno,
        Some(Errno::EINVAL | Errno::EIO | Errno::ENOMEM | Errno::ENOBUFS | Errno::EAGAIN)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_packet_ends_no_bridge() {
        for errno in [Errno::EINVAL, Errno::EIO, Errno::ENOBUFS] {
            assert!(is_refusal(&errno.into()), "{errno}");
        }
        assert!(!is_refusal(&Errno::EBADFD.into()));
        assert!(!is_refusal(&ErrorKind::Other.into()));
    }
}
