// SPDX-License-Identifier: MIT OR Apache-2.0

//! The connected clients, and the messages that each of them needs.

use std::io::{self, IoSliceMut};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{eventfd, poll, EventfdFlags, PollFd, PollFlags, Timespec};
use rustix::fs::{fcntl_add_seals, ftruncate, memfd_create, MemfdFlags, SealFlags};
use rustix::io::{preadv2, ReadWriteFlags};

use crate::message::{self, send};

/// Most clients at a time.
pub const MAX_NODES: usize = 8;
/// Limit of interrupt vectors of each client. All messages to a client fit into the buffer of its
/// socket, so one that does not read does not block the server.
pub const MAX_VECTORS: usize = 16;

/// A place for a client.
#[derive(Debug, Default)]
struct Node {
    /// The connected client.
    client: Option<UnixStream>,
    /// Number of its interrupt vectors. It has no more eventfds of any client, since its device refuses
    /// them.
    most: usize,
    /// Eventfds that others write to interrupt it, once it has connected for the first time. Others
    /// receive them once: QEMU drops the eventfds of a peer that leaves, and still uses them when
    /// the peer comes back.
    vectors: Vec<OwnedFd>,
}

/// The server, and all of its clients.
#[derive(Debug)]
pub struct Server {
    memory: OwnedFd,
    listeners: Vec<UnixListener>,
    /// By the IDs of clients.
    nodes: Vec<Node>,
}

impl Server {
    /// Creates a server with zeroed memory, for as many clients as there are numbers of `vectors`. With a
    /// single listener, clients get the lowest free ID; with several, each listener serves the client of
    /// its own ID.
    pub fn new(listeners: Vec<UnixListener>, size: u64, vectors: &[usize]) -> io::Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = memfd_create("uldma-ivshmem", flags)?;
        ftruncate(&memory, size)?;
        // A client that cut it short would kill the others.
        fcntl_add_seals(
            &memory,
            SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
        )?;
        for listener in &listeners {
            listener.set_nonblocking(true)?;
        }
        let node = |most: &usize| Node {
            most: *most,
            ..Node::default()
        };
        Ok(Self {
            memory,
            listeners,
            nodes: vectors.iter().map(node).collect(),
        })
    }

    /// Serves until `stop` can be read.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        while self.serve_event(stop)? {}
        Ok(())
    }

    /// Waits for an event and handles it. Returns false to stop.
    fn serve_event(&mut self, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let listeners = self.listeners.iter().map(AsFd::as_fd);
        let streams = self.nodes.iter().filter_map(|node| node.client.as_ref());
        let files = [stop].into_iter().chain(listeners);
        let files: Vec<_> = files.chain(streams.map(AsFd::as_fd)).collect();
        let ready = wait(&files, None)?;
        let mut ready = ready.into_iter();
        if ready.next() == Some(true) {
            return Ok(false);
        }
        let came: Vec<_> = ready.take(self.listeners.len()).collect();
        // Clients that have left before this one connected must make room, even if that was not
        // noticed yet.
        self.sweep()?;
        for (listener, came) in came.into_iter().enumerate() {
            if came {
                self.accept(listener);
            }
        }
        Ok(true)
    }

    /// Removes clients that have left. Clients only receive, so one that sends is removed, too.
    fn sweep(&mut self) -> io::Result<()> {
        for (id, node) in self.nodes.iter_mut().enumerate() {
            let Some(stream) = &node.client else {
                continue;
            };
            if wait(&[stream.as_fd()], Some(&Timespec::default()))? == [true] {
                node.client = None;
                log::info!("node {id} left");
            }
        }
        Ok(())
    }

    /// Accepts a client.
    fn accept(&mut self, listener: usize) {
        let Some(accepted) = self.listeners.get(listener).map(UnixListener::accept) else {
            return;
        };
        let is_free = |id: &usize| self.nodes.get(*id).is_some_and(|it| it.client.is_none());
        let id = if self.listeners.len() > 1 {
            Some(listener).filter(is_free)
        } else {
            (0..self.nodes.len()).find(is_free)
        };
        let result = match (accepted, id) {
            (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => return,
            (Err(error), _) => Err(error),
            (Ok(_), None) => Err(io::Error::other("there is no room")),
            (Ok((stream, _)), Some(id)) => self.join(id, stream),
        };
        if let Err(error) = result {
            log::warn!("socket {listener}: client refused: {error}");
        }
    }

    /// Sends a new client its state, and the new client's vectors to the others.
    fn join(&mut self, id: usize, stream: UnixStream) -> io::Result<()> {
        let node = self.nodes.get_mut(id).ok_or(io::ErrorKind::NotFound)?;
        let is_new = node.vectors.is_empty();
        if is_new {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let vectors = (0..node.most).map(|_| eventfd(0, flags));
            node.vectors = vectors.collect::<Result<_, _>>()?;
        }
        let most = node.most;
        for vector in &node.vectors {
            // Rings for the old client are not for the new one.
            forget(vector)?;
        }
        if is_new {
            self.announce(id);
        }
        send(&stream, message::VERSION, None)?;
        send(&stream, id as i64, None)?;
        send(&stream, message::MEMORY, Some(self.memory.as_fd()))?;
        for (other, node) in self.nodes.iter().enumerate() {
            if other != id {
                introduce(&stream, other, &node.vectors, most)?;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            introduce(&stream, id, &node.vectors, most)?;
            node.client = Some(stream);
            log::info!("node {id} came");
        }
        Ok(())
    }

    /// Sends the vectors of a node to all others.
    fn announce(&mut self, id: usize) {
        let vectors = self
            .nodes
            .get_mut(id)
            .map(|node| mem::take(&mut node.vectors));
        let vectors = vectors.unwrap_or_default();
        for (other, node) in self.nodes.iter_mut().enumerate() {
            let Some(client) = &node.client else {
                continue;
            };
            if let Err(error) = introduce(client, id, &vectors, node.most) {
                log::warn!("node {other} cannot be notified: {error}");
                node.client = None;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.vectors = vectors;
        }
    }
}

/// Waits, with or without a limit, until a file is readable or closed. Returns which ones are.
fn wait(files: &[BorrowedFd<'_>], limit: Option<&Timespec>) -> io::Result<Vec<bool>> {
    let files = files.iter();
    let mut files: Vec<_> = files
        .map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN))
        .collect();
    match poll(&mut files, limit) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let ready = files.iter().map(|file| !file.revents().is_empty());
    Ok(ready.collect())
}

/// Forgets how often a vector was rung. Does not wait, though clients, which share its flags, can have
/// made it wait.
fn forget(vector: &OwnedFd) -> io::Result<()> {
    /// Offset for files that have no position.
    const HERE: u64 = u64::MAX;
    let mut count = [0; 8];
    let mut parts = [IoSliceMut::new(&mut count)];
    match preadv2(vector, &mut parts, HERE, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a client that has `most` vectors so many of another, or of itself, in order.
fn introduce(to: &UnixStream, id: usize, vectors: &[OwnedFd], most: usize) -> io::Result<()> {
    let mut vectors = vectors.iter().take(most);
    vectors.try_for_each(|vector| send(to, id as i64, Some(vector.as_fd())))
}
