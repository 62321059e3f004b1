// SPDX-License-Identifier: MIT OR Apache-2.0

//! Ends of streams that the devices match: one side pours without an end (`matched_end pour PORT
//! NODE`), the other drains (`drain PORT`), or takes a part and then posts nothing more (`hold PORT`).
//! Both print "begun", and how the stream has ended. `serve PORT` asks for matched streams, one after
//! the other, of peers that break them.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use nix::errno::Errno;
use uldma::{Chunk, ConnectOptions, Connection, Device, Error, Peer, Result, Wait};

/// Longer than any end may take.
const PATIENCE: Duration = Duration::from_secs(120);
const FOREVER: Duration = Duration::MAX;
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
    let ends = [Errno::EPIPE, Errno::ECONNRESET, Errno::ENOTCONN, Errno::ENODEV];
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

/// Exchanges a few bytes with a peer, whose connection ends within bounds, whatever it does.
fn meet(device: &Device, connection: &Connection) -> Result<()> {
    connection.match_streams()?;
    connection.prepost(chunk(device))?;
    connection.send(chunk(device))?;
    loop {
        let ready = connection.wait(Wait::Either, PATIENCE)?;
        assert!(ready.receive || ready.recycle || ready.closed, "no end of a broken stream");
        if ready.closed {
            break;
        }
        // Memory that was moved, or an error.
        if ready.receive {
            connection.recv(PART, PATIENCE)?;
        }
        if ready.recycle {
            connection.recycle(PART, PATIENCE)?;
        }
    }
    loop {
        if connection.recv(PART, PATIENCE)?.is_none() {
            return Ok(());
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
            let listener = device.listen(port.parse().unwrap(), 1).unwrap();
            let (connection, _) = listener.accept(PATIENCE).unwrap();
            assert!(connection.match_streams().unwrap());
            tell(drain(&device, &connection, *how == "hold"));
        }
        ["serve", port] => {
            let listener = device.listen(port.parse().unwrap(), 4).unwrap();
            println!("ready");
            loop {
                let (connection, _) = listener.accept(FOREVER).unwrap();
                match meet(&device, &connection) {
                    Ok(()) => println!("end"),
                    Err(error) if is_end(&error) => println!("{}", error.errno().unwrap()),
                    Err(error) => panic!("{error}"),
                }
            }
        }
        _ => panic!("usage: matched_end drain PORT | hold PORT | serve PORT | pour PORT NODE"),
    }
}
