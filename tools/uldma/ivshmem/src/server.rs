// SPDX-License-Identifier: MIT OR Apache-2.0

//! Who is there, and what everybody has to know of whom.

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
/// Most interrupt vectors of each client. All that a client is ever sent fits into the buffer of its
/// socket, so one that does not read harms nobody.
pub const MAX_VECTORS: usize = 16;

/// A place for a client.
#[derive(Debug, Default)]
struct Node {
    /// Who is there.
    client: Option<UnixStream>,
    /// What others write to interrupt it, once anybody was there. They are told of it once: QEMU
    /// frees what it knows of a peer that leaves, and goes on using that when the peer comes back.
    vectors: Vec<OwnedFd>,
}

/// The server, and all of its clients.
#[derive(Debug)]
pub struct Server {
    memory: OwnedFd,
    vectors: usize,
    listeners: Vec<UnixListener>,
    /// By the IDs of clients.
    nodes: Vec<Node>,
}

impl Server {
    /// A server with zeroed memory. At a single listener, clients get the lowest ID that is free of
    /// `nodes`; of several, each has the client of its own ID.
    pub fn new(
        listeners: Vec<UnixListener>,
        nodes: usize,
        size: u64,
        vectors: usize,
    ) -> io::Result<Self> {
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
        let nodes = match listeners.len() {
            1 => nodes,
            sockets => sockets,
        };
        Ok(Self {
            memory,
            vectors,
            listeners,
            nodes: (0..nodes).map(|_| Node::default()).collect(),
        })
    }

    /// Serves until `stop` can be read.
    pub fn run(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        while self.turn(stop)? {}
        Ok(())
    }

    /// Waits until something happens, and takes care of it; says whether to go on.
    fn turn(&mut self, stop: BorrowedFd<'_>) -> io::Result<bool> {
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
        // Who left before somebody came has to make room, and may not have been seen to leave yet.
        self.sweep()?;
        for (listener, came) in came.into_iter().enumerate() {
            if came {
                self.accept(listener);
            }
        }
        Ok(true)
    }

    /// Forgets clients that have left. They only listen, so one that says something is no client.
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

    /// Somebody connects.
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

    /// Tells a new client all that it has to know, and the others of it.
    fn join(&mut self, id: usize, stream: UnixStream) -> io::Result<()> {
        let node = self.nodes.get_mut(id).ok_or(io::ErrorKind::NotFound)?;
        let is_new = node.vectors.is_empty();
        if is_new {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            let vectors = (0..self.vectors).map(|_| eventfd(0, flags));
            node.vectors = vectors.collect::<Result<_, _>>()?;
        }
        for vector in &node.vectors {
            // Nobody means the new client by what was rung for the old one.
            forget(vector)?;
        }
        if is_new {
            self.tell_others(id);
        }
        send(&stream, message::VERSION, None)?;
        send(&stream, id as i64, None)?;
        send(&stream, message::MEMORY, Some(self.memory.as_fd()))?;
        for (other, node) in self.nodes.iter().enumerate() {
            if other != id {
                introduce(&stream, other, &node.vectors)?;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            introduce(&stream, id, &node.vectors)?;
            node.client = Some(stream);
            log::info!("node {id} came");
        }
        Ok(())
    }

    /// Tells all others of the vectors of a node.
    fn tell_others(&mut self, id: usize) {
        let vectors = self
            .nodes
            .get_mut(id)
            .map(|node| mem::take(&mut node.vectors));
        let vectors = vectors.unwrap_or_default();
        for (other, node) in self.nodes.iter_mut().enumerate() {
            let Some(client) = &node.client else {
                continue;
            };
            if let Err(error) = introduce(client, id, &vectors) {
                log::warn!("node {other} cannot be told: {error}");
                node.client = None;
            }
        }
        if let Some(node) = self.nodes.get_mut(id) {
            node.vectors = vectors;
        }
    }
}

/// Waits for a while, or without an end, until something can be read or is over; says of which.
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
    /// Where the file is, which is what one that has no places is read by.
    const HERE: u64 = u64::MAX;
    let mut count = [0; 8];
    let mut parts = [IoSliceMut::new(&mut count)];
    match preadv2(vector, &mut parts, HERE, ReadWriteFlags::NOWAIT) {
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Sends a client the vectors of one, in order.
fn introduce(to: &UnixStream, id: usize, vectors: &[OwnedFd]) -> io::Result<()> {
    let mut vectors = vectors.iter();
    vectors.try_for_each(|vector| send(to, id as i64, Some(vector.as_fd())))
}
