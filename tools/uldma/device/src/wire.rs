// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages of the vfio-user protocol, as a server takes and sends them.
//!
//! No allocation has a size from a message before that size has been bounded, and the size in a
//! message's header is the number of bytes that are read for it.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{
    recvmsg, sendmsg, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};

/// Limit of bytes of a region that one message reads or writes.
pub const MAX_ACCESS: u32 = 4096;
/// Limit of files per message.
pub const MAX_FILES: usize = 16;

/// Bytes of what each message begins with.
const HEADER: usize = 16;
/// Limit of bytes after the header: the longest message is a write to a region.
const MAX_BODY: usize = 16 + MAX_ACCESS as usize;

const FLAG_REPLY: u32 = 1;
const FLAG_NO_REPLY: u32 = 1 << 4;
const FLAG_ERROR: u32 = 1 << 5;

/// Commands that are served.
pub mod command {
    /// Agree on a version.
    pub const VERSION: u16 = 1;
    /// Offer memory.
    pub const DMA_MAP: u16 = 2;
    /// Removes a memory range.
    pub const DMA_UNMAP: u16 = 3;
    /// Returns the properties of the device.
    pub const DEVICE_GET_INFO: u16 = 4;
    /// Returns the properties of a region.
    pub const DEVICE_GET_REGION_INFO: u16 = 5;
    /// Returns the properties of an interrupt index.
    pub const DEVICE_GET_IRQ_INFO: u16 = 7;
    /// Sets, removes or tests interrupts.
    pub const DEVICE_SET_IRQS: u16 = 8;
    /// Read a region.
    pub const REGION_READ: u16 = 9;
    /// Write a region.
    pub const REGION_WRITE: u16 = 10;
    /// Reset the function.
    pub const DEVICE_RESET: u16 = 13;
}

/// Header of a message.
#[derive(Clone, Copy, Debug)]
struct Header {
    id: u16,
    command: u16,
    size: u32,
    flags: u32,
}

impl Header {
    fn decode(bytes: &[u8; HEADER]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *bytes;
        Self {
            id: u16::from_le_bytes([a, b]),
            command: u16::from_le_bytes([c, d]),
            size: u32::from_le_bytes([e, f, g, h]),
            flags: u32::from_le_bytes([i, j, k, l]),
        }
    }

    fn encode(self, error: u32) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let words = [self.size, self.flags, error].map(u32::to_le_bytes);
        let halves = [self.id, self.command].map(u16::to_le_bytes);
        let all = halves.iter().flatten().chain(words.iter().flatten());
        for (byte, value) in bytes.iter_mut().zip(all) {
            *byte = *value;
        }
        bytes
    }
}

/// A message of a client.
#[derive(Debug)]
pub struct Request {
    header: Header,
    /// `None` if it was longer than the limit.
    body: Option<Vec<u8>>,
    files: Vec<File>,
}

impl Request {
    /// Receives the next message of a stream; `None` at its end.
    ///
    /// # Errors
    ///
    /// Errors of the stream, and `InvalidData` for a message that is shorter than a header: nothing
    /// that follows it can be decoded.
    pub fn receive(stream: &UnixStream) -> io::Result<Option<Self>> {
        let mut files = Vec::new();
        let mut bytes = [0; HEADER];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match receive(stream, rest, &mut files)? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        let header = Header::decode(&bytes);
        let size = usize::try_from(header.size).ok();
        let size = size.and_then(|size| size.checked_sub(HEADER));
        let size = size.ok_or(io::ErrorKind::InvalidData)?;
        let body = take_body(stream, size)?;
        Ok(Some(Self {
            header,
            body,
            files,
        }))
    }

    /// Returns the command of the request.
    pub fn command(&self) -> u16 {
        self.header.command
    }

    /// Returns true if the client waits for a reply.
    pub fn wants_reply(&self) -> bool {
        self.header.flags & FLAG_NO_REPLY == 0
    }

    /// Takes the files that were passed with the message.
    pub fn take_files(&mut self) -> Vec<File> {
        std::mem::take(&mut self.files)
    }

    /// Returns the bytes after the header.
    ///
    /// # Errors
    ///
    /// `FileTooLarge` if the body was longer than the limit.
    pub fn body(&self) -> io::Result<&[u8]> {
        let too_large = || io::ErrorKind::FileTooLarge.into();
        self.body.as_deref().ok_or_else(too_large)
    }

    /// Returns the bytes from an offset of the body on.
    pub fn rest(&self, offset: usize) -> io::Result<&[u8]> {
        let rest = self.body()?.get(offset..);
        rest.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns the number of 4 bytes at an offset of the body.
    pub fn word(&self, offset: usize) -> io::Result<u32> {
        let bytes = self.rest(offset)?.first_chunk();
        let word = bytes.copied().map(u32::from_le_bytes);
        word.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Returns the number of 8 bytes at an offset of the body.
    pub fn wide(&self, offset: usize) -> io::Result<u64> {
        let bytes = self.rest(offset)?.first_chunk();
        let wide = bytes.copied().map(u64::from_le_bytes);
        wide.ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// Replies, with or without a file.
    pub fn reply(
        &self,
        stream: &UnixStream,
        body: &[u8],
        file: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let size = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
        let header = Header {
            size,
            flags: FLAG_REPLY,
            ..self.header
        };
        send(stream, &[&header.encode(0), body].concat(), file)
    }

    /// Replies with an error.
    pub fn refuse(&self, stream: &UnixStream, errno: u32) -> io::Result<()> {
        let header = Header {
            size: HEADER as u32,
            flags: FLAG_REPLY | FLAG_ERROR,
            ..self.header
        };
        send(stream, &header.encode(errno), None)
    }
}

/// Receives bytes, and the files passed with them; 0 at the end of the stream.
fn receive(stream: &UnixStream, bytes: &mut [u8], files: &mut Vec<File>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FILES))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut parts = [IoSliceMut::new(bytes)];
        recvmsg(stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)
    })?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            files.extend(received.map(File::from));
        }
    }
    Ok(received.bytes)
}

/// Reads the body of a message. A body that is too long is read and discarded.
fn take_body(mut stream: &UnixStream, size: usize) -> io::Result<Option<Vec<u8>>> {
    let mut body = vec![0; size.min(MAX_BODY)];
    if size <= MAX_BODY {
        stream.read_exact(&mut body)?;
        return Ok(Some(body));
    }
    let mut left = size;
    while left > 0 {
        let piece = body.get_mut(..left.min(MAX_BODY)).unwrap_or_default();
        stream.read_exact(piece)?;
        left -= piece.len();
    }
    Ok(None)
}

fn send(mut stream: &UnixStream, bytes: &[u8], file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let files = file.as_slice();
    if files.is_empty() {
        return stream.write_all(bytes);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let parts = [IoSlice::new(bytes)];
    let sent =
        rustix::io::retry_on_intr(|| sendmsg(stream, &parts, &mut control, SendFlags::NOSIGNAL))?;
    stream.write_all(bytes.get(sent..).unwrap_or_default())
}
