// SPDX-License-Identifier: MIT OR Apache-2.0

//! The bytes of a socket on a connection: an opening of each side, then frames.
//!
//! A connection has no end of one direction alone, and its end does not say whether all was sent. So
//! each side sends frames, of which an empty one is the end of its direction. A connection that ends
//! before that was cut off.

use std::io::{self, ErrorKind, Read, Write};

use nix::errno::Errno;

const MAGIC: [u8; 8] = *b"uldmasck";
const VERSION: u32 = 1;
/// Bytes of the longest frame.
pub(super) const LONGEST: usize = 64 << 10;
/// Bytes of the length before each frame.
const HEADER: usize = 4;

/// Sends the opening: zero, or the errno with which the connection is refused.
pub(super) fn open(output: &mut impl Write, errno: i32) -> io::Result<()> {
    let mut bytes = [0; 16];
    let fields = MAGIC
        .into_iter()
        .chain(VERSION.to_le_bytes())
        .chain(errno.to_le_bytes());
    for (byte, field) in bytes.iter_mut().zip(fields) {
        *byte = field;
    }
    output.write_all(&bytes)
}

/// Receives the other side's opening.
///
/// # Errors
///
/// The errno that it has sent; EPROTO if it is another program.
pub(super) fn opened(input: &mut impl Read) -> io::Result<()> {
    let mut bytes = [0; 16];
    input.read_exact(&mut bytes)?;
    let (magic, rest) = bytes.split_at(MAGIC.len());
    let (version, errno) = rest.split_at(HEADER);
    if magic != MAGIC || word(version) != VERSION {
        return Err(Errno::EPROTO.into());
    }
    match word(errno) {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(
            i32::try_from(errno).unwrap_or(Errno::EPROTO as i32),
        )),
    }
}

/// Memory for one frame that is sent.
pub(super) struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn new() -> Self {
        Self(vec![0; HEADER + LONGEST])
    }

    /// Waits for input, and reads what has arrived. Returns the frame; one of no bytes at the end.
    pub(super) fn read(&mut self, mut input: impl Read) -> io::Result<Filled<'_>> {
        let (header, data) = self.0.split_at_mut(HEADER);
        let length = loop {
            match input.read(data) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                other => break other?,
            }
        };
        // No longer than the memory, so it fits.
        let word = u32::try_from(length).unwrap_or(0).to_le_bytes();
        header.copy_from_slice(&word);
        Ok(Filled(self.0.get(..HEADER + length).unwrap_or_default()))
    }
}

/// A frame to send.
pub(super) struct Filled<'a>(&'a [u8]);

impl Filled<'_> {
    /// Returns the number of its bytes.
    pub(super) fn length(&self) -> usize {
        self.0.len().saturating_sub(HEADER)
    }

    /// Sends it.
    pub(super) fn send(&self, output: &mut impl Write) -> io::Result<()> {
        output.write_all(self.0)
    }
}

/// Receives a frame into `data`. Returns its bytes; none at the end.
///
/// # Errors
///
/// `UnexpectedEof` if the connection ends before; EPROTO for a frame that is too long; those of the
/// connection.
pub(super) fn receive<'a>(input: &mut impl Read, data: &'a mut [u8]) -> io::Result<&'a [u8]> {
    let mut header = [0; HEADER];
    input.read_exact(&mut header)?;
    let length = usize::try_from(word(&header)).unwrap_or(usize::MAX);
    let frame = data.get_mut(..length).ok_or(Errno::EPROTO)?;
    input.read_exact(frame)?;
    Ok(frame)
}

/// Reads a word of four bytes.
fn word(bytes: &[u8]) -> u32 {
    bytes.try_into().map_or(0, u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_their_end_arrive() {
        let sent: Vec<u8> = (0..200_000u32).map(|it| it as u8).collect();
        let (mut input, mut wire) = (&sent[..], Vec::new());
        open(&mut wire, 0).unwrap();
        let mut frame = Frame::new();
        loop {
            let filled = frame.read(&mut input).unwrap();
            filled.send(&mut wire).unwrap();
            if filled.length() == 0 {
                break;
            }
        }
        let mut wire = &wire[..];
        opened(&mut wire).unwrap();
        let (mut data, mut received) = (vec![0; LONGEST], Vec::new());
        loop {
            match receive(&mut wire, &mut data).unwrap() {
                [] => break,
                bytes => received.extend_from_slice(bytes),
            }
        }
        assert!(received == sent);
        assert!(wire.is_empty());
    }

    #[test]
    fn what_is_cut_off_is_no_end() {
        let mut wire = Vec::new();
        let mut frame = Frame::new();
        let filled = frame.read(&b"some"[..]).unwrap();
        filled.send(&mut wire).unwrap();
        let mut data = vec![0; LONGEST];
        for length in 0..wire.len() {
            let error = receive(&mut &wire[..length], &mut data).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        }
    }

    #[test]
    fn a_peer_cannot_say_more_than_fits() {
        let too_long = (LONGEST as u32 + 1).to_le_bytes();
        let mut data = vec![0; LONGEST];
        let error = receive(&mut &too_long[..], &mut data).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EPROTO as i32));
    }

    #[test]
    fn an_opening_names_the_reason_of_a_refusal() {
        let answer = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut wire = Vec::new();
            open(&mut wire, Errno::ECONNREFUSED as i32).unwrap();
            change(&mut wire);
            opened(&mut &wire[..]).unwrap_err().raw_os_error()
        };
        assert_eq!(answer(&|_| {}), Some(Errno::ECONNREFUSED as i32));
        assert_eq!(answer(&|wire| wire[8] += 1), Some(Errno::EPROTO as i32));
        assert_eq!(answer(&|wire| wire[0] += 1), Some(Errno::EPROTO as i32));
        assert_eq!(answer(&|wire| wire[15] = 0xff), Some(Errno::EPROTO as i32));
    }
}
