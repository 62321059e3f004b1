// SPDX-License-Identifier: MIT OR Apache-2.0

//! The shortest Rust program whose data reaches two processes of the other node by one transfer.
//!
//! Run it with `cargo run --manifest-path tools/uldma/Cargo.toml -p uldma --example broadcast`: on one node
//! with `receive`, which starts the second receiver itself, on the other with `send`; with `ULDMA_DEVICE` set
//! if the device is not `/dev/uldma0`.

use std::process::Command;
use std::time::Duration;
use uldma::memory::Kind;
use uldma::{
    Access, Buffer, Channel, ChannelListener, ConnectOptions, Device, Memory, Peer, SharedLock,
    Spin,
};

const BYTES: u64 = 1 << 20;
const TIMEOUT: Duration = Duration::from_secs(30);
/// The name of the data.
const DATA: &str = "data";
/// The port and the size of the channel that announces the data.
const PORT: u32 = 7;
const CAPACITY: u64 = 4096;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let path = std::env::var_os("ULDMA_DEVICE").unwrap_or("/dev/uldma0".into());
    match words[..] {
        ["send"] => send(&Device::open_path(path)?),
        ["receive"] => receive(&Device::open_path(path)?),
        ["share", data, lock] => share(data.parse()?, lock.parse()?),
        _ => Err("usage: broadcast send|receive".into()),
    }
}

/// Copies the data into the memory that the receivers share, and announces it.
fn send(device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = Buffer::new(BYTES as usize)?;
    buffer.fill(7);
    let source = device.register(buffer, Access::Read)?;
    let target = device.import(DATA.parse()?, Access::Write, TIMEOUT)?;
    let ticket = device.dma((&source, 0), (&target, 0), BYTES)?;
    device.dma_wait(ticket, TIMEOUT)?;
    let options = ConnectOptions::default();
    let mut channel = Channel::connect(device, Peer::OTHER, PORT, CAPACITY, options)?;
    channel.send(b"new", TIMEOUT)?;
    println!("sent {BYTES} bytes once");
    Ok(channel.wait_closed(TIMEOUT)?)
}

/// Receives the data with the device, for all receivers of this node.
fn receive(device: &Device) -> Result<(), Box<dyn std::error::Error>> {
    let (data, page) = (
        Memory::new(Kind::SysV, BYTES)?,
        Memory::new(Kind::SysV, 4096)?,
    );
    let (segment, lock_segment) = (data.segment_id(), page.segment_id());
    let lock = SharedLock::create(page)?;
    // The second receiver takes the lock when the data is there.
    let guard = lock.lock()?;
    let mut second = Command::new("/proc/self/exe")
        .arg("share")
        .args([segment, lock_segment].iter().flatten().map(i32::to_string))
        .spawn()?;
    // A sender that finds the data finds the listener, too.
    let listener = ChannelListener::new(device, PORT, 1, CAPACITY)?;
    let region = device.register_memory(&data, 0..BYTES, Access::Write)?;
    let _export = region.export(DATA.parse()?, Access::Write)?;
    eprintln!("listening");
    let (mut channel, _) = listener.accept(TIMEOUT)?;
    channel.set_spin(Spin::Adaptive);
    channel.receive(&mut [0; 8], TIMEOUT)?;
    drop(guard);
    show("first", &data)?;
    if !second.wait()?.success() {
        return Err("the second receiver failed".into());
    }
    Ok(())
}

/// The second receiver, which needs no device.
fn share(segment: i32, lock_segment: i32) -> Result<(), Box<dyn std::error::Error>> {
    let data = Memory::attach(segment, false)?;
    let lock = SharedLock::open(Memory::attach(lock_segment, true)?)?;
    let _guard = lock.lock()?;
    show("second", &data)
}

fn show(who: &str, data: &Memory) -> Result<(), Box<dyn std::error::Error>> {
    let mut bytes = vec![0; BYTES as usize];
    data.read(0, &mut bytes)?;
    let right = bytes.iter().filter(|&&byte| byte == 7).count();
    println!("{who} receiver: {right} of {BYTES} bytes");
    Ok(())
}
