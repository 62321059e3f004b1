// SPDX-License-Identifier: MIT OR Apache-2.0

//! Buffers of a stream: memory that is posted to a connection, reaped, and posted again.
//!
//! Each direction of a [`super::Stream`] has one area. Memory is reaped in the order of posting, so
//! the free part is one run of bytes, or two where it wraps around the end of the area.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use nix::errno::Errno;

use super::{Connection, Rejected};
use crate::error::{Error, Result};
use crate::region::chunk::{Chunk, Chunks};

/// The operations of a connection that buffers need; tests implement them by a queue.
pub(super) trait ChunkTransport {
    fn prepost(&self, memory: Chunk) -> std::result::Result<(), Rejected>;
    fn send(&self, memory: Chunk) -> std::result::Result<(), Rejected>;
    fn recv(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>>;
    fn try_recycle(&self, most: usize) -> Result<Poll<Option<Chunk>>>;
    fn recycle(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>>;
}

impl ChunkTransport for Connection {
    fn prepost(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
        self.prepost(memory)
    }

    fn send(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
        self.send(memory)
    }

    fn recv(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
        self.recv(most, timeout)
    }

    fn try_recycle(&self, most: usize) -> Result<Poll<Option<Chunk>>> {
        self.try_recycle(most)
    }

    fn recycle(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
        self.recycle(most, timeout)
    }
}

/// Memory to receive into.
#[derive(Debug)]
pub(super) struct ReceiveBuffers<C> {
    transport: Arc<C>,
    free: Chunks,
    /// Received memory that has not been read.
    current: Option<Chunk>,
    /// Bytes of one buffer.
    bytes: usize,
    /// Number of posted bytes.
    posted_bytes: usize,
    ended: bool,
}

impl<C: ChunkTransport> ReceiveBuffers<C> {
    /// Posts all of `memory`, in buffers of `bytes` bytes.
    pub(super) fn new(transport: Arc<C>, memory: Chunk, bytes: usize) -> Result<Self> {
        let mut inbox = Self {
            transport,
            free: Chunks::default(),
            current: None,
            bytes,
            posted_bytes: 0,
            ended: false,
        };
        inbox.free.push(memory);
        inbox.post()?;
        Ok(inbox)
    }

    /// Copies received bytes to `target`; waits for at least one. Returns zero at the end of the
    /// stream.
    pub(super) fn read(&mut self, target: &mut [u8], timeout: Duration) -> Result<usize> {
        if target.is_empty() || self.ended {
            return Ok(0);
        }
        let mut current = match self.current.take() {
            Some(current) => current,
            None => {
                self.post()?;
                let Some(memory) = self.transport.recv(self.bytes, timeout)? else {
                    self.ended = true;
                    return Ok(0);
                };
                self.posted_bytes -= memory.len();
                memory
            }
        };
        let read = current.split_to(target.len());
        let length = read.len();
        target[..length].copy_from_slice(&read);
        self.free.push(read);
        self.current = Some(current).filter(|rest| !rest.is_empty());
        Ok(length)
    }

    /// Posts whole buffers and the rest at the end of the area; if nothing is posted, posts any
    /// free bytes.
    fn post(&mut self) -> Result<()> {
        loop {
            let run = self.free.run();
            let worth = run >= self.bytes || self.free.runs() > 1 || self.posted_bytes == 0;
            if run == 0 || !worth {
                return Ok(());
            }
            let Some(memory) = self.free.pop(self.bytes) else {
                return Ok(());
            };
            let length = memory.len();
            let Err(rejected) = self.transport.prepost(memory) else {
                self.posted_bytes += length;
                continue;
            };
            self.free.push_front(rejected.memory);
            return match rejected.error.errno() {
                // Posted buffers will come back.
                Some(Errno::ENOSPC) if self.posted_bytes > 0 => Ok(()),
                // Data that has arrived can still be reaped; the end is reported afterwards.
                Some(Errno::EPIPE | Errno::ENOTCONN | Errno::ECONNRESET) => Ok(()),
                _ => Err(rejected.error),
            };
        }
    }
}

/// Memory to send.
#[derive(Debug)]
pub(super) struct SendBuffers<C> {
    transport: Arc<C>,
    free: Chunks,
    /// Bytes of one buffer.
    bytes: usize,
    /// Number of posted bytes.
    posted_bytes: usize,
}

impl<C: ChunkTransport> SendBuffers<C> {
    /// Sends by `memory`, at most `bytes` bytes at a time.
    pub(super) fn new(transport: Arc<C>, memory: Chunk, bytes: usize) -> Self {
        let mut free = Chunks::default();
        free.push(memory);
        Self {
            transport,
            free,
            bytes,
            posted_bytes: 0,
        }
    }

    /// Copies at most one buffer of `source`, and posts it; waits for a free buffer. Returns the
    /// number of bytes.
    pub(super) fn write(&mut self, source: &[u8], timeout: Duration) -> Result<usize> {
        let wanted = source.len().min(self.bytes);
        if wanted == 0 {
            return Ok(0);
        }
        if self.free.run() < wanted {
            while self.posted_bytes > 0 {
                let Poll::Ready(memory) = self.transport.try_recycle(self.posted_bytes)? else {
                    break;
                };
                self.reclaim(memory)?;
            }
        }
        loop {
            let Some(mut memory) = self.free.pop(wanted) else {
                self.wait(timeout)?;
                continue;
            };
            let length = memory.len();
            memory.copy_from_slice(&source[..length]);
            let Err(rejected) = self.transport.send(memory) else {
                self.posted_bytes += length;
                return Ok(length);
            };
            self.free.push_front(rejected.memory);
            if self.posted_bytes == 0 || rejected.error.errno() != Some(Errno::ENOSPC) {
                return Err(rejected.error);
            }
            self.wait(timeout)?;
        }
    }

    /// Waits until all posted memory has come back, so that its bytes are in the peer's memory.
    pub(super) fn flush(&mut self, timeout: Duration) -> Result<()> {
        while self.posted_bytes > 0 {
            self.wait(timeout)?;
        }
        Ok(())
    }

    fn wait(&mut self, timeout: Duration) -> Result<()> {
        let memory = self.transport.recycle(self.posted_bytes.max(1), timeout)?;
        self.reclaim(memory)
    }

    fn reclaim(&mut self, memory: Option<Chunk>) -> Result<()> {
        let ended = || Error::connection("send", Errno::EPIPE);
        let memory = memory.ok_or_else(ended)?;
        self.posted_bytes -= memory.len();
        self.free.push(memory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Mutex;

    /// A connection to itself that moves a given number of bytes at a time.
    #[derive(Debug, Default)]
    struct Echo {
        state: Mutex<EchoState>,
    }

    #[derive(Debug, Default)]
    struct EchoState {
        posted: Chunks,
        received: Chunks,
        unsent: Chunks,
        sent: Chunks,
        /// Buffers that are given, of both kinds.
        buffers: [usize; 2],
        steps: Vec<usize>,
        closed: bool,
    }

    impl EchoState {
        fn step(&mut self) {
            let most = self.steps.pop().unwrap_or(usize::MAX);
            let most = most.min(self.posted.run()).min(self.unsent.run());
            if most == 0 {
                return;
            }
            let (Some(mut to), Some(from)) = (self.posted.pop(most), self.unsent.pop(most)) else {
                unreachable!()
            };
            to.copy_from_slice(&from);
            self.received.push(to);
            self.sent.push(from);
            self.buffers = [0; 2];
        }
    }

    fn reject(memory: Chunk, errno: Errno) -> std::result::Result<(), Rejected> {
        Err(Rejected {
            error: Error::connection("test", errno),
            memory,
        })
    }

    impl ChunkTransport for Echo {
        fn prepost(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
            let mut state = self.state.lock().unwrap();
            if state.closed {
                return reject(memory, Errno::EPIPE);
            }
            if state.buffers[0] == 3 {
                return reject(memory, Errno::ENOSPC);
            }
            state.buffers[0] += 1;
            state.posted.push(memory);
            Ok(())
        }

        fn send(&self, memory: Chunk) -> std::result::Result<(), Rejected> {
            let mut state = self.state.lock().unwrap();
            if state.closed {
                return reject(memory, Errno::EPIPE);
            }
            if state.buffers[1] == 3 {
                return reject(memory, Errno::ENOSPC);
            }
            state.buffers[1] += 1;
            state.unsent.push(memory);
            Ok(())
        }

        fn recv(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
            let mut state = self.state.lock().unwrap();
            state.step();
            match state.received.pop(most) {
                None if !state.closed => Err(Error::Timeout {
                    what: "data".into(),
                    after: timeout,
                }),
                other => Ok(other),
            }
        }

        fn try_recycle(&self, most: usize) -> Result<Poll<Option<Chunk>>> {
            let mut state = self.state.lock().unwrap();
            Ok(match state.sent.pop(most) {
                None if !state.closed => Poll::Pending,
                other => Poll::Ready(other),
            })
        }

        fn recycle(&self, most: usize, timeout: Duration) -> Result<Option<Chunk>> {
            self.state.lock().unwrap().step();
            match self.try_recycle(most)? {
                Poll::Ready(memory) => Ok(memory),
                Poll::Pending => Err(Error::Timeout {
                    what: "memory".into(),
                    after: timeout,
                }),
            }
        }
    }

    fn boxes(
        inbound: usize,
        outbound: usize,
        bytes: usize,
    ) -> (ReceiveBuffers<Echo>, SendBuffers<Echo>) {
        let echo = Arc::new(Echo::default());
        let memory = |length| Chunk::new(length).unwrap();
        (
            ReceiveBuffers::new(Arc::clone(&echo), memory(inbound), bytes).unwrap(),
            SendBuffers::new(echo, memory(outbound), bytes),
        )
    }

    proptest! {
        /// Whatever sizes meet, all bytes arrive in order, and memory goes around for ever.
        #[test]
        fn all_bytes_arrive(
            writes in prop::collection::vec(1usize..400, 1..120),
            steps in prop::collection::vec(1usize..300, 0..200),
            bytes in 1usize..200,
            buffers in 1usize..6,
            most in 1usize..500,
        ) {
            let (mut inbox, mut outbox) = boxes(bytes * buffers, bytes * 2, bytes);
            inbox.transport.state.lock().unwrap().steps = steps;
            let (mut sent, mut received) = (0u32, 0u32);
            let mut target = vec![0; most];
            for length in writes {
                let source: Vec<u8> = (sent..).take(length).map(|byte| byte as u8).collect();
                match outbox.write(&source, Duration::ZERO) {
                    Ok(written) => sent += written as u32,
                    Err(Error::Timeout { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
                let mut drain = length % 3 != 0;
                while drain && received < sent {
                    let length = inbox.read(&mut target, Duration::ZERO).unwrap();
                    prop_assert!(length > 0);
                    for &byte in &target[..length] {
                        prop_assert_eq!(byte, received as u8);
                        received += 1;
                    }
                    drain = received % 2 == 0;
                }
            }
            while received < sent {
                let length = inbox.read(&mut target, Duration::ZERO).unwrap();
                for &byte in &target[..length] {
                    prop_assert_eq!(byte, received as u8);
                    received += 1;
                }
            }
            outbox.flush(Duration::ZERO).unwrap();
            prop_assert_eq!(outbox.posted_bytes, 0);
        }
    }

    #[test]
    fn what_came_before_the_end_is_read_before_the_end() {
        let (mut inbox, mut outbox) = boxes(64, 64, 32);
        assert_eq!(outbox.write(b"last words", Duration::ZERO).unwrap(), 10);
        let transport = Arc::clone(&inbox.transport);
        transport.state.lock().unwrap().step();
        transport.state.lock().unwrap().closed = true;
        let mut target = [0; 6];
        assert_eq!(inbox.read(&mut target, Duration::ZERO).unwrap(), 6);
        assert_eq!(inbox.read(&mut target, Duration::ZERO).unwrap(), 4);
        for _ in 0..2 {
            assert_eq!(inbox.read(&mut target, Duration::ZERO).unwrap(), 0);
        }
        outbox.flush(Duration::ZERO).unwrap();
        let error = outbox.write(b"x", Duration::ZERO).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EPIPE));
    }

    #[test]
    fn an_end_before_all_was_sent_is_an_error() {
        let (inbox, mut outbox) = boxes(4, 64, 32);
        assert_eq!(outbox.write(b"too long", Duration::ZERO).unwrap(), 8);
        inbox.transport.state.lock().unwrap().step();
        inbox.transport.state.lock().unwrap().closed = true;
        let error = outbox.flush(Duration::ZERO).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EPIPE));
    }
}
