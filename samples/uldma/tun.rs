// SPDX-License-Identifier: MIT OR Apache-2.0

//! IP through a connection: each of two nodes makes a TUN interface, and the packets of one arrive at the
//! other. It needs CAP_NET_ADMIN, and no more of the driver than connections.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example tun`: on one node with
//! `NAME MTU PORT` (a port to listen at), on the other with `NAME MTU PORT NODE`; with `ULDMA_DEVICE` set if
//! the device is not `/dev/uldma0`.

use std::error::Error;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use tun_rs::{DeviceBuilder, SyncDevice};
use uldma::{
    ConnectOptions, Connection, ConnectionKind, Device, Offer, Peer, PrivateData, Receiving,
    Sending, StreamOptions,
};

const VERSION: u16 = 2;
/// Bytes of a packet's length before it.
const HEADER: usize = 2;
/// The smallest MTU of IPv4 (RFC 791).
const LEAST_MTU: u16 = 68;
/// Packets that are ready at the same time are sent together, up to about so many bytes.
const BATCH: usize = 128 << 10;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, mtu, port, node @ ..] = arguments.as_slice() else {
        panic!("usage: tun NAME MTU PORT [NODE]");
    };
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    // Before the connection: without the right to make interfaces the peer learns nothing.
    let interface = DeviceBuilder::new().name(name).enable(false).build_sync()?;
    interface.set_nonblocking(true)?;

    let mtu: u16 = mtu.parse()?;
    let connection = connect(&device, mtu, port.parse()?, node.first())?;
    // The smaller MTU of both sides counts for both.
    let theirs = connection.query()?.offer.private;
    let theirs = theirs.as_slice().try_into().map_or(0, u16::from_be_bytes);
    let mtu = mtu.min(theirs);
    if mtu < LEAST_MTU {
        return Err(format!("the peer takes packets of up to {theirs} bytes only").into());
    }
    let stream = connection.into_stream(StreamOptions::default())?;
    let (receiving, sending) = stream.split();
    interface.set_mtu(mtu)?;
    interface.enabled(true)?;
    println!("{} is up: packets of up to {mtu} bytes", interface.name()?);

    let interface = Arc::new(interface);
    let source = Arc::clone(&interface);
    // The interface ends with the process, and with it this thread.
    thread::spawn(move || match send(&source, sending, mtu.into()) {
        // The other thread ends the process, and says why.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        Err(error) => {
            eprintln!("send: {error}");
            std::process::exit(1);
        }
        Ok(never) => match never {},
    });
    receive(&interface, receiving, mtu.into())
}

/// Waits for the connection of the other program, or connects to it. The offer of each side has its MTU.
fn connect(
    device: &Device,
    mtu: u16,
    port: u32,
    node: Option<&String>,
) -> Result<Connection, Box<dyn Error>> {
    let offer = Offer {
        kind: ConnectionKind::PACKETS,
        version: VERSION,
        private: PrivateData::new(&mtu.to_be_bytes())?,
        ..Default::default()
    };
    let Some(node) = node else {
        let connection = device.listen_once(port, offer)?;
        connection.wait_connected(Duration::MAX)?;
        return Ok(connection);
    };
    let options = ConnectOptions {
        retry: true,
        offer,
        ..Default::default()
    };
    Ok(device.connect(Peer::node(node.parse()?), port, options)?)
}

/// Sends the interface's packets, each behind its length (RFC 4571).
fn send(
    interface: &SyncDevice,
    mut sending: Sending,
    mtu: usize,
) -> io::Result<std::convert::Infallible> {
    let mut frames = vec![0; BATCH + HEADER + mtu];
    loop {
        let mut ready = [PollFd::new(interface.as_fd(), PollFlags::POLLIN)];
        poll(&mut ready, PollTimeout::NONE)?;
        let mut used = 0;
        while used < BATCH {
            let (header, packet) = frames[used..].split_at_mut(HEADER);
            let length = match interface.recv(&mut packet[..mtu]) {
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            };
            let length = u16::try_from(length).map_err(|_| ErrorKind::InvalidData)?;
            header.copy_from_slice(&length.to_be_bytes());
            used += HEADER + usize::from(length);
        }
        sending.write_all(&frames[..used])?;
    }
}

/// Hands the peer's packets, which may be anything, to this node's kernel until the peer disconnects.
fn receive(interface: &SyncDevice, receiving: Receiving, mtu: usize) -> Result<(), Box<dyn Error>> {
    let mut input = BufReader::with_capacity(BATCH, receiving);
    let mut packet = vec![0; mtu];
    while !input.fill_buf()?.is_empty() {
        let mut header = [0; HEADER];
        input.read_exact(&mut header)?;
        let length = u16::from_be_bytes(header);
        let packet = packet.get_mut(..length.into());
        let Some(packet) = packet.filter(|it| !it.is_empty()) else {
            return Err(format!("the peer sent a packet of {length} bytes").into());
        };
        input.read_exact(packet)?;
        if let Err(error) = interface.send(packet) {
            // The kernel did not take this packet, which is none of IP, for one, but may take others.
            let errno = error.raw_os_error().map(Errno::from_raw);
            if !matches!(errno, Some(Errno::EINVAL | Errno::EIO | Errno::ENOBUFS)) {
                return Err(error.into());
            }
        }
    }
    Ok(())
}
