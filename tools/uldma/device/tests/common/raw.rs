// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client that sends any bytes.

use std::io::{IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

pub(crate) const VERSION: u16 = 1;
pub(crate) const DMA_MAP: u16 = 2;
pub(crate) const DMA_UNMAP: u16 = 3;
pub(crate) const SET_IRQS: u16 = 8;
pub(crate) const REGION_READ: u16 = 9;
pub(crate) const REGION_WRITE: u16 = 10;

const HEADER: usize = 16;
const ERROR: u32 = 1 << 5;

/// Time in which a working device answers.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A connection to a node.
pub(crate) struct Raw {
    pub(crate) stream: UnixStream,
}

/// A reply: the errno of an error, or the body.
pub(crate) type Answer = Result<Vec<u8>, u32>;

impl Raw {
    /// Connects without sending anything.
    pub(crate) fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Self { stream }
    }

    /// Connects and negotiates a version.
    pub(crate) fn negotiate(socket: &Path) -> Self {
        let mut raw = Self::connect(socket);
        let body = [&[0; 4][..], b"{\"capabilities\":{}}\0"].concat();
        raw.ask(VERSION, &body, &[]).unwrap();
        raw
    }

    /// Sends a message. Returns true if the device read all of it.
    pub(crate) fn send(&mut self, command: u16, size: u32, body: &[u8], files: &[BorrowedFd<'_>]) {
        let mut message = Vec::new();
        for word in [7, command] {
            message.extend(word.to_le_bytes());
        }
        for word in [size, 0, 0] {
            message.extend(word.to_le_bytes());
        }
        message.extend(body);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(control.push(SendAncillaryMessage::ScmRights(files)));
        }
        let mut sent = 0;
        while sent < message.len() {
            let part = [IoSlice::new(&message[sent..])];
            let Ok(more) = sendmsg(&self.stream, &part, &mut control, SendFlags::NOSIGNAL) else {
                return;
            };
            control.clear();
            sent += more;
        }
    }

    /// Receives a reply; also an error if the device closes the connection.
    pub(crate) fn answer(&mut self) -> Answer {
        let mut header = [0; HEADER];
        if let Err(error) = self.stream.read_exact(&mut header) {
            assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "no answer");
            return Err(0);
        }
        let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - HEADER];
        self.stream.read_exact(&mut body).unwrap();
        if word(8) & ERROR == 0 {
            Ok(body)
        } else {
            Err(word(12))
        }
    }

    /// Sends a message of the size that it has, and takes the answer.
    pub(crate) fn ask(&mut self, command: u16, body: &[u8], files: &[BorrowedFd<'_>]) -> Answer {
        self.send(command, (HEADER + body.len()) as u32, body, files);
        self.answer()
    }

    /// Offers memory.
    pub(crate) fn map(&mut self, address: u64, size: u64, file: BorrowedFd<'_>) -> Answer {
        let mut body = [32u32.to_le_bytes(), 3u32.to_le_bytes()].concat();
        for word in [0, address, size] {
            body.extend(word.to_le_bytes());
        }
        self.ask(DMA_MAP, &body, &[file])
    }

    /// Unmaps memory.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) -> Answer {
        let mut body = [24u32.to_le_bytes(), 0u32.to_le_bytes()].concat();
        for word in [address, size] {
            body.extend(word.to_le_bytes());
        }
        self.ask(DMA_UNMAP, &body, &[])
    }

    /// Passes a file, usually an eventfd, for an interrupt.
    pub(crate) fn set_vector(&mut self, vector: u32, file: BorrowedFd<'_>) -> Answer {
        // An eventfd that triggers, of MSI-X.
        let words = [20u32, (1 << 2) | (1 << 5), 2, vector, 1];
        let body = words.map(u32::to_le_bytes).concat();
        self.ask(SET_IRQS, &body, &[file])
    }

    /// The beginning of an access to a region.
    pub(crate) fn access(region: u32, offset: u64, count: u32) -> Vec<u8> {
        let mut body = offset.to_le_bytes().to_vec();
        body.extend(region.to_le_bytes());
        body.extend(count.to_le_bytes());
        body
    }

    /// Reads a part of a region.
    pub(crate) fn read(&mut self, region: u32, offset: u64, count: u32) -> Answer {
        let body = self.ask(REGION_READ, &Self::access(region, offset, count), &[])?;
        Ok(body[16..].to_vec())
    }

    /// Writes a part of a region.
    pub(crate) fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Answer {
        let mut body = Self::access(region, offset, data.len() as u32);
        body.extend(data);
        self.ask(REGION_WRITE, &body, &[])
    }
}
