// SPDX-License-Identifier: MIT OR Apache-2.0

//! The ways between two nodes, in ten lines each: `bytes`, `messages` and `memory`. The sample `copy` has
//! the fourth, memory to memory.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example ways`: on one node with
//! `WAY PORT`, then on the other with `WAY PORT NODE`; with `ULDMA_DEVICE` set if the device is not
//! `/dev/uldma0`.

use std::error::Error;
use std::io::{Read, Write};
use std::time::Duration;
use uldma::{Channel, ChannelListener, ConnectOptions, Device, Name, Offer, Peer, StreamOptions};

type Done = Result<(), Box<dyn Error>>;

const TEXT: &[u8] = b"some bytes";
/// Bytes of each ring of a channel.
const CAPACITY: u64 = 64 * 1024;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [way, port, node @ ..] = arguments.as_slice() else {
        panic!("usage: ways bytes|messages|memory PORT [NODE]");
    };
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    let port = port.parse()?;
    let peer = node.first().map(|it| it.parse()).transpose()?;
    match (way.as_str(), peer.map(Peer::node)) {
        ("bytes", None) => receive_bytes(&device, port),
        ("bytes", Some(peer)) => send_bytes(&device, port, peer),
        ("messages", None) => receive_messages(&device, port),
        ("messages", Some(peer)) => send_messages(&device, port, peer),
        ("memory", None) => read_memory(&device, port),
        ("memory", Some(peer)) => write_memory(&device, port, peer),
        _ => Err(format!("{way}: bytes, messages or memory").into()),
    }
}

fn receive_bytes(device: &Device, port: u32) -> Done {
    let connection = device.listen_once(port, Offer::default())?;
    connection.wait_connected(TIMEOUT)?;
    let mut stream = connection.into_stream(StreamOptions::default())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    println!("{text}");
    Ok(())
}

fn send_bytes(device: &Device, port: u32, peer: Peer) -> Done {
    let connection = device.connect(peer, port, wait_for_listener())?;
    let mut stream = connection.into_stream(StreamOptions::default())?;
    stream.write_all(TEXT)?;
    stream.flush()?;
    stream.connection().disconnect()?;
    Ok(())
}

fn receive_messages(device: &Device, port: u32) -> Done {
    let listener = ChannelListener::new(device, port, 1, CAPACITY)?;
    let (mut channel, _node) = listener.accept(TIMEOUT)?;
    let mut message = [0; 64];
    let length = channel.receive(&mut message, TIMEOUT)?;
    println!("{}", String::from_utf8_lossy(&message[..length]));
    Ok(())
}

fn send_messages(device: &Device, port: u32, peer: Peer) -> Done {
    let mut channel = Channel::connect(device, peer, port, CAPACITY, wait_for_listener())?;
    channel.send(TEXT, TIMEOUT)?;
    channel.wait_closed(TIMEOUT)?;
    Ok(())
}

fn read_memory(device: &Device, port: u32) -> Done {
    let name: Name = format!("ways-{port}").parse()?;
    let segment = device.create_segment(name, 4096)?;
    let mut flag = [0];
    // Segments share doorbells, so the ring may have been another's.
    while flag == [0] && segment.wait_doorbell(TIMEOUT)? {
        segment.read(0, &mut flag)?;
    }
    println!("{flag:?}");
    Ok(())
}

fn write_memory(device: &Device, port: u32, peer: Peer) -> Done {
    let name: Name = format!("ways-{port}").parse()?;
    let segment = device.attach_segment_of(peer, name, TIMEOUT)?;
    segment.write(0, &[42])?;
    segment.ring_doorbell()?;
    Ok(())
}

/// The other side may start later.
fn wait_for_listener() -> ConnectOptions {
    ConnectOptions {
        retry: true,
        timeout: TIMEOUT,
        ..Default::default()
    }
}
