// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program that moves memory to a process at the peer.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example connection`: on
//! one node with `7` (a port to listen at), on the other with `7 NODE`; with `ULDMA_DEVICE` set if the
//! device is not `/dev/uldma0`.

use std::time::Duration;
use uldma::{Chunk, ConnectOptions, Device, Offer, Peer};

const LENGTH: usize = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> uldma::Result<()> {
    let arguments: Vec<u32> = std::env::args()
        .skip(1)
        .flat_map(|arg| arg.parse())
        .collect();
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    let device = Device::open_path(path)?;
    match arguments[..] {
        [port] => receive(&device, port),
        [port, node] => send(&device, port, node),
        _ => panic!("usage: connection PORT [NODE]"),
    }
}

fn receive(device: &Device, port: u32) -> uldma::Result<()> {
    let listener = device.listen(port, 1, Offer::default())?;
    eprintln!("listening");
    let (connection, node) = listener.accept(TIMEOUT)?;
    connection.prepost(Chunk::new(LENGTH)?)?;
    let mut received = 0;
    while let Some(memory) = connection.recv(LENGTH, TIMEOUT)? {
        assert!(memory.iter().all(|&byte| byte == 42));
        received += memory.len();
    }
    println!("received {received} bytes from node {node}");
    Ok(())
}

fn send(device: &Device, port: u32, node: u32) -> uldma::Result<()> {
    let connection = device.connect(Peer::node(node), port, ConnectOptions::default())?;
    let mut memory = Chunk::new(LENGTH)?;
    memory.fill(42);
    connection.send(memory)?;
    let mut left = LENGTH;
    while left > 0 {
        // Recycled memory is in the peer's memory.
        match connection.recycle(left, TIMEOUT)? {
            Some(memory) => left -= memory.len(),
            None => panic!("the peer has disconnected"),
        }
    }
    connection.disconnect()?;
    Ok(())
}
