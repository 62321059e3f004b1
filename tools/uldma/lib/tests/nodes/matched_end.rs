// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends of streams that the devices match: one side pours without an end (`matched_end pour PORT
//! NODE`), the other drains (`drain PORT`), or takes a part and then posts nothing more (`hold PORT`).
//! Both print "begun", and how the stream has ended. `late PORT matched` and `late PORT calls` accept
//! late and print what was sent before. `serve PORT` asks for matched streams, one after
//! the other, of peers that break them, which must not keep it for long.

#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::time::Duration;

use nix::errno::Errno;
use uldma::{Chunk, ConnectOptions, Connection, Device, Error, Offer, Peer, Result, StreamOptions};

/// Longer than any end may take.
const PATIENCE: Duration = Duration::from_secs(120);
const PART: usize = 64 << 10;
const PARTS: usize = 16;
/// Bytes after which a stream has begun.
const BEGUN: usize = 1 << 20;

fn chunk(device: &Device) -> Chunk {
    Chunk::pinned(device, PART).unwrap()
}

/// Counts what was moved, and says once that much was.
fn count(moved: &mut usize, memory: &Chunk) {
    let before = *moved < BEGUN;
    *moved += memory.len();
    if before && *moved >= BEGUN {
        println!("begun");
    }
}

/// Sends until the connection ends.
fn pour(device: &Device, connection: &Connection) -> Result<()> {
    for _ in 0..PARTS {
        connection.send(chunk(device))?;
    }
    let mut moved = 0;
    while let Some(memory) = connection.recycle(PART, PATIENCE)? {
        count(&mut moved, &memory);
        match connection.send(memory) {
            Ok(()) => {}
            // The end comes in the order of what was sent.
            Err(rejected) if is_end(&rejected.error) => {}
            Err(rejected) => return Err(rejected.error),
        }
    }
    Ok(())
}

/// Receives until the connection ends; with `holds` posts nothing more after a part.
fn drain(device: &Device, connection: &Connection, holds: bool) -> Result<()> {
    for _ in 0..PARTS {
        connection.prepost(chunk(device))?;
    }
    let mut moved = 0;
    while let Some(memory) = connection.recv(PART, PATIENCE)? {
        count(&mut moved, &memory);
        if holds && moved >= BEGUN {
            continue;
        }
        match connection.prepost(memory) {
            Ok(()) => {}
            Err(rejected) if is_end(&rejected.error) => {}
            Err(rejected) => return Err(rejected.error),
        }
    }
    Ok(())
}

fn is_end(error: &Error) -> bool {
    let ends = [
        Errno::EPIPE,
        Errno::ECONNRESET,
        Errno::ENOTCONN,
        Errno::ENODEV,
    ];
    error.errno().is_some_and(|errno| ends.contains(&errno))
}

/// Says how a stream has ended.
fn tell(ended: Result<()>) {
    match ended {
        Ok(()) => println!("end"),
        Err(error) => match error.errno() {
            Some(errno) => println!("{errno:?}"),
            None => panic!("{error}"),
        },
    }
}

/// Waits for received or for sent memory of a connection to a peer that breaks it.
fn meet(device: &Device, connection: &Connection, receives: bool) -> Result<()> {
    connection.match_streams()?;
    connection.prepost(chunk(device))?;
    connection.send(chunk(device))?;
    loop {
        let memory = match receives {
            true => connection.recv(PART, PATIENCE)?,
            false => connection.recycle(PART, PATIENCE)?,
        };
        let Some(memory) = memory else {
            return Ok(());
        };
        if receives {
            connection.prepost(memory)?;
        } else {
            connection.send(memory)?;
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let device = Device::open(0).unwrap();
    match arguments.as_slice() {
        ["pour", port, node] => {
            let wait = ConnectOptions {
                retry: true,
                timeout: PATIENCE,
                ..Default::default()
            };
            let peer = Peer::node(node.parse().unwrap());
            let connection = device.connect(peer, port.parse().unwrap(), wait).unwrap();
            assert!(connection.match_streams().unwrap());
            tell(pour(&device, &connection));
        }
        [how @ ("drain" | "hold"), port] => {
            let listener = device.listen(port.parse().unwrap(), 1, Offer::default()).unwrap();
            let (connection, _) = listener.accept(PATIENCE).unwrap();
            assert!(connection.match_streams().unwrap());
            tell(drain(&device, &connection, *how == "hold"));
        }
        ["serve", port] => {
            let listener = device.listen(port.parse().unwrap(), 64, Offer::default()).unwrap();
            println!("ready");
            for number in 0u64.. {
                let (connection, _) = listener.accept(Duration::MAX).unwrap();
                match meet(&device, &connection, number % 2 == 0) {
                    Err(error) if !is_end(&error) => panic!("connection {number}: {error}"),
                    _ => {}
                }
            }
        }
        ["late", port, how] => {
            let listener = device.listen(port.parse().unwrap(), 1, Offer::default()).unwrap();
            // Until the other side waits for the answer.
            while listener.query().unwrap().waiting == 0 {
                std::thread::yield_now();
            }
            let (connection, _) = listener.accept(PATIENCE).unwrap();
            let options = StreamOptions {
                matched: *how == "matched",
                ..Default::default()
            };
            let mut stream = connection.into_stream(options).unwrap();
            stream.set_timeout(PATIENCE);
            let mut bytes = [0; 64];
            let length = stream.read(&mut bytes).unwrap();
            println!("{}", String::from_utf8_lossy(&bytes[..length]));
        }
        _ => panic!(
            "usage: matched_end drain PORT | hold PORT | pour PORT NODE | late PORT matched|calls | serve PORT"
        ),
    }
}
