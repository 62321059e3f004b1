// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server program with clients that do what QEMU does.

// To panic is how a test fails.
#![allow(clippy::expect_used, clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::net::{recvmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::{kill_process, Pid, Signal};
use tempfile::TempDir;

const SIZE: u64 = 1 << 16;

struct Server {
    directory: TempDir,
    process: Child,
}

impl Server {
    fn command(directory: &TempDir, sockets: usize) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_uldma-ivshmem-server"));
        command.args(["--size", &SIZE.to_string()]);
        for id in 0..sockets {
            command
                .arg("--socket")
                .arg(directory.path().join(id.to_string()));
        }
        command
    }

    fn start(sockets: usize, options: &[&str]) -> Self {
        let directory = TempDir::new().unwrap();
        let mut command = Self::command(&directory, sockets);
        let mut process = command
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { directory, process }
    }

    fn path(&self, socket: usize) -> PathBuf {
        self.directory.path().join(socket.to_string())
    }

    fn connect(&self, socket: usize) -> UnixStream {
        let stream = UnixStream::connect(self.path(socket)).unwrap();
        let limit = Duration::from_secs(20);
        stream.set_read_timeout(Some(limit)).unwrap();
        stream
    }

    /// Connects with retries: for a moment, a process started by another test can hold a copy of
    /// the former client's connection.
    fn join(&self, socket: usize, vectors: usize) -> Client {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(client) = Client::try_new(self.connect(socket), vectors) {
                return client;
            }
            assert!(Instant::now() < limit, "there is no room");
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

/// The next number and its file; `None` once the server has closed the connection.
fn receive(stream: &UnixStream) -> io::Result<Option<(i64, Option<File>)>> {
    let mut bytes = [0; 8];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let files: Vec<_> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(files) => Some(files),
            _ => None,
        })
        .flatten()
        .collect();
    assert!(files.len() <= 1);
    if received.bytes == 0 {
        return Ok(None);
    }
    assert_eq!(received.bytes, bytes.len());
    let file = files.into_iter().next().map(File::from);
    Ok(Some((i64::from_le_bytes(bytes), file)))
}

fn next(stream: &UnixStream) -> (i64, Option<File>) {
    receive(stream)
        .unwrap()
        .expect("the server closed the connection")
}

/// Receives a number with a file.
fn next_file(stream: &UnixStream, number: i64) -> File {
    let (found, file) = next(stream);
    assert_eq!(found, number);
    file.expect("there is no file")
}

fn is_closed(stream: &UnixStream) -> bool {
    match receive(stream) {
        Ok(message) => message.is_none(),
        Err(error) => error.kind() == io::ErrorKind::ConnectionReset,
    }
}

fn ring(vector: &mut File) {
    vector.write_all(&1u64.to_ne_bytes()).unwrap();
}

/// Returns how often a vector was rung since the last call.
fn rung(vector: &mut File) -> u64 {
    let mut count = [0; 8];
    match vector.read_exact(&mut count) {
        Ok(()) => u64::from_ne_bytes(count),
        Err(error) => {
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
            0
        }
    }
}

/// The state of a client after its setup.
struct Client {
    stream: UnixStream,
    id: i64,
    memory: File,
    /// Vectors of those that were there before, with their IDs.
    others: Vec<(i64, File)>,
    own: Vec<File>,
}

impl Client {
    fn new(stream: UnixStream, vectors: usize) -> Self {
        Self::try_new(stream, vectors).expect("there is no room")
    }

    fn try_new(stream: UnixStream, vectors: usize) -> Option<Self> {
        let version = receive(&stream).ok().flatten()?;
        assert!(matches!(version, (0, None)), "version");
        let (id, None) = next(&stream) else {
            panic!("an ID brings no file");
        };
        let memory = next_file(&stream, -1);
        let (mut others, mut own) = (Vec::new(), Vec::new());
        while own.len() < vectors {
            let (number, file) = next(&stream);
            let file = file.expect("there is no vector");
            if number == id {
                own.push(file);
            } else {
                assert!(own.is_empty(), "others come first");
                others.push((number, file));
            }
        }
        Some(Self {
            stream,
            id,
            memory,
            others,
            own,
        })
    }

    fn other_ids(&self) -> Vec<i64> {
        self.others.iter().map(|(id, _)| *id).collect()
    }
}

#[test]
fn clients_interrupt_each_other_and_share_memory() {
    let server = Server::start(1, &["--vectors", "2"]);
    let mut first = Client::new(server.connect(0), 2);
    assert_eq!((first.id, first.other_ids()), (0, vec![]));
    assert_eq!(first.memory.metadata().unwrap().len(), SIZE);
    let mut second = Client::new(server.connect(0), 2);
    assert_eq!((second.id, second.other_ids()), (1, vec![0, 0]));
    let mut to_second: Vec<_> = (0..2).map(|_| next_file(&first.stream, 1)).collect();

    ring(&mut to_second[1]);
    assert_eq!([0, 1].map(|vector| rung(&mut second.own[vector])), [0, 1]);
    ring(&mut second.others[0].1);
    assert_eq!([0, 1].map(|vector| rung(&mut first.own[vector])), [1, 0]);

    first.memory.write_all_at(b"bytes", 100).unwrap();
    let mut data = [0; 5];
    second.memory.read_exact_at(&mut data, 100).unwrap();
    assert_eq!(&data, b"bytes");
    assert!(second.memory.set_len(0).is_err(), "memory can be cut short");
}

#[test]
fn a_client_has_no_more_vectors_of_others_than_of_its_own() {
    let server = Server::start(2, &["--vectors", "2", "--vectors", "1"]);
    let mut first = Client::new(server.connect(0), 2);
    let mut second = Client::new(server.connect(1), 1);
    assert_eq!(second.other_ids(), vec![0]);
    ring(&mut next_file(&first.stream, 1));
    assert_eq!(rung(&mut second.own[0]), 1);
    ring(&mut second.others[0].1);
    assert_eq!([0, 1].map(|vector| rung(&mut first.own[vector])), [1, 0]);
    for client in [&first, &second] {
        client.stream.set_nonblocking(true).unwrap();
        let error = receive(&client.stream).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "one vector more");
    }
    // The client that comes later is introduced to the other by the same rule.
    drop(first);
    assert_eq!(server.join(0, 2).other_ids(), vec![1]);
}

#[test]
fn clients_come_and_go() {
    let server = Server::start(1, &["--nodes", "3"]);
    let mut clients: Vec<_> = (0..3).map(|_| Client::new(server.connect(0), 1)).collect();
    assert!(is_closed(&server.connect(0)), "there is no room");
    clients[1].memory.write_all_at(b"kept", 0).unwrap();
    let mut to_second = next_file(&clients[0].stream, 1);
    next_file(&clients[0].stream, 2);
    ring(&mut to_second);
    drop(clients.remove(1));
    let mut again = server.join(0, 1);
    assert_eq!((again.id, again.other_ids()), (1, vec![0, 2]));
    assert_eq!(rung(&mut again.own[0]), 0, "that was for another one");
    // The others have received no message, and need none.
    ring(&mut to_second);
    ring(&mut clients[1].others[1].1);
    assert_eq!(rung(&mut again.own[0]), 2);
    ring(&mut again.others[0].1);
    assert_eq!(rung(&mut clients[0].own[0]), 1);
    for client in &clients {
        client.stream.set_nonblocking(true).unwrap();
        let error = receive(&client.stream).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
    let mut data = [0; 4];
    again.memory.read_exact_at(&mut data, 0).unwrap();
    assert_eq!(&data, b"kept");
}

#[test]
fn the_socket_gives_the_id() {
    let server = Server::start(3, &[]);
    let third = Client::new(server.connect(2), 1);
    let first = Client::new(server.connect(0), 1);
    assert_eq!((third.id, first.id, first.other_ids()), (2, 0, vec![2]));
    assert!(is_closed(&server.connect(2)), "it is there already");
    next_file(&third.stream, 0);
    drop(third);
    let third = server.join(2, 1);
    assert_eq!((third.id, third.other_ids()), (2, vec![0]));
}

#[test]
fn a_client_that_talks_is_thrown_out() {
    let server = Server::start(1, &[]);
    let talks = Client::new(server.connect(0), 1);
    (&talks.stream).write_all(b"bytes").unwrap();
    assert!(is_closed(&talks.stream));
    assert_eq!(server.join(0, 1).id, 0);
}

#[test]
fn a_client_that_does_not_read_harms_nobody() {
    let server = Server::start(1, &["--vectors", "16"]);
    let deaf = server.connect(0);
    for _ in 0..100 {
        let clients: Vec<_> = (1..8).map(|_| server.join(0, 16)).collect();
        let ids: BTreeSet<_> = clients.iter().map(|client| client.id).collect();
        assert_eq!(ids, (1..8).collect());
    }
    let late = Client::new(deaf, 16);
    for id in (1..8).flat_map(|id| [id; 16]) {
        next_file(&late.stream, id);
    }
}

#[test]
fn a_vector_that_blocks_harms_nobody() {
    let server = Server::start(2, &[]);
    let client = Client::new(server.connect(0), 1);
    // The flags are the server's, too: a read of a vector that was not rung would wait now.
    let flags = rustix::fs::fcntl_getfl(&client.own[0]).unwrap();
    rustix::fs::fcntl_setfl(&client.own[0], flags - OFlags::NONBLOCK).unwrap();
    drop(client);
    assert_eq!(server.join(0, 1).id, 0);
    assert_eq!(server.join(1, 1).id, 1);
}

#[test]
fn the_end() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(2, &[]);
        let client = Client::new(server.connect(1), 1);
        kill_process(Pid::from_child(&server.process), signal).unwrap();
        assert!(server.process.wait().unwrap().success());
        assert!(is_closed(&client.stream));
        assert!(!server.path(0).exists() && !server.path(1).exists());
    }
}

#[test]
fn options_that_make_no_sense() {
    let directory = TempDir::new().unwrap();
    for (sockets, options) in [
        (0, &[][..]),
        (9, &[]),
        (2, &["--nodes", "2"]),
        (1, &["--nodes", "9"]),
        (1, &["--vectors", "0"]),
        (3, &["--vectors", "2", "--vectors", "1"]),
        (1, &["--size", "12345"]),
    ] {
        let mut command = Server::command(&directory, sockets);
        let output = command.args(options).output().unwrap();
        assert!(!output.status.success(), "{sockets} {options:?}");
        assert!(output.stdout.is_empty());
    }
}
