// SPDX-License-Identifier: MIT OR Apache-2.0

//! Messages to a client: numbers, some of which carry a file.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{sendmsg, SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// First number: the protocol's version.
pub(crate) const VERSION: i64 = 0;
/// Number that brings the memory along.
pub(crate) const MEMORY: i64 = -1;

/// Sends a number, with a file or without. Fails rather than wait for a client that does not read.
pub(crate) fn send(to: &UnixStream, number: i64, file: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let bytes = number.to_le_bytes();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files = file.as_slice();
    if !files.is_empty() && !control.push(SendAncillaryMessage::ScmRights(files)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let sent = sendmsg(to, &[IoSlice::new(&bytes)], &mut control, flags)?;
    if sent == bytes.len() {
        Ok(())
    } else {
        Err(io::ErrorKind::WriteZero.into())
    }
}
