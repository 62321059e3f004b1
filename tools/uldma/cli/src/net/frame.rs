// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets in a stream of bytes, as frames.
//!
//! A frame is the length of a packet in two bytes, the higher one first, and the packet, as in
//! RFC 4571. The private data of each side's offer is the largest packet that the side takes, in two
//! bytes like a length. The smaller one of both sides is what both keep to.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use uldma::{ConnectionKind, Offer, PrivateData, Receiving};

use crate::failure::{Failure, Kind, Result};

const VERSION: u16 = 2;
/// Bytes of a frame before its packet.
const HEADER: usize = 2;
/// The smallest MTU of IPv4 (RFC 791).
pub(crate) const LEAST_MTU: u16 = 68;

/// A stream whose reads have a limit of time.
pub(super) trait TimedRead: Read {
    /// Sets the time after which reads fail with `TimedOut`; unlimited for [`Duration::MAX`].
    fn set_timeout(&mut self, timeout: Duration);
}

impl TimedRead for Receiving {
    fn set_timeout(&mut self, timeout: Duration) {
        Receiving::set_timeout(self, timeout);
    }
}

/// Returns the offer of a side that takes packets of at most `mtu` bytes.
pub(super) fn offer(mtu: u16) -> Result<Offer> {
    Ok(Offer {
        kind: ConnectionKind::PACKETS,
        version: VERSION,
        private: PrivateData::new(&mtu.to_be_bytes())?,
        ..Offer::default()
    })
}

/// Returns the MTU of both sides, of which this one's is `mtu`.
///
/// # Errors
///
/// [`Kind::Peer`] for a peer whose packets would be too small, or that does not say how large they may
/// be.
pub(super) fn agree(peer: &Offer, mtu: u16) -> Result<u16> {
    let private = peer.private.as_slice();
    let theirs = private.try_into().map_or(0, u16::from_be_bytes);
    if theirs < LEAST_MTU {
        let text = format!("the peer takes packets of up to {theirs} bytes only");
        return Err(Failure::new(Kind::Peer, text));
    }
    Ok(theirs.min(mtu))
}

/// Frames that are sent together.
#[derive(Debug)]
pub(super) struct Batch {
    /// As long as it may become.
    bytes: Vec<u8>,
    used: usize,
    mtu: u16,
}

impl Batch {
    /// Makes an empty batch of at most `bytes` bytes, or of one packet if that is more.
    pub(super) fn new(bytes: usize, mtu: u16) -> Self {
        Self {
            bytes: vec![0; bytes.max(HEADER + usize::from(mtu))],
            used: 0,
            mtu,
        }
    }

    /// Adds the packet that `read` writes into the memory that it gets, and returns its length.
    /// Returns none, without a call, if a packet might not fit; an empty packet is not added.
    ///
    /// # Errors
    ///
    /// That of `read`, and `InvalidData` if it returns more than the memory has.
    pub(super) fn add(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Option<usize>> {
        let body = self.used + HEADER;
        let Some(room) = self.bytes.get_mut(body..body + usize::from(self.mtu)) else {
            return Ok(None);
        };
        let length = read(room)?;
        let header = u16::try_from(length).ok().filter(|&it| it <= self.mtu);
        let header = header.ok_or(io::ErrorKind::InvalidData)?;
        if header > 0 {
            self.bytes[self.used..body].copy_from_slice(&header.to_be_bytes());
            self.used = body + length;
        }
        Ok(Some(length))
    }

    /// Sends all frames, and empties the batch.
    pub(super) fn send(&mut self, output: &mut impl Write) -> io::Result<()> {
        output.write_all(&self.bytes[..self.used])?;
        self.used = 0;
        Ok(())
    }
}

/// What a peer sends, which may be anything.
#[derive(Debug)]
pub(super) struct Packets<R> {
    input: R,
    bytes: Vec<u8>,
    /// The bytes that have arrived and were not returned.
    start: usize,
    end: usize,
    mtu: u16,
    /// In which the rest of a packet has to follow its first byte.
    patience: Duration,
}

impl<R: TimedRead> Packets<R> {
    /// Takes packets of at most `mtu` bytes.
    pub(super) fn new(input: R, mtu: u16, patience: Duration) -> Self {
        Self {
            input,
            bytes: vec![0; HEADER + usize::from(u16::MAX)],
            start: 0,
            end: 0,
            mtu,
            patience,
        }
    }

    /// The largest packet, in either direction.
    pub(super) fn mtu(&self) -> u16 {
        self.mtu
    }

    /// The stream.
    pub(super) fn input(&self) -> &R {
        &self.input
    }

    /// Waits for the next packet; none at the end of the stream.
    ///
    /// # Errors
    ///
    /// [`Kind::Peer`] for a packet of no byte or of more than was agreed, and for a stream that ends
    /// within one; [`Kind::Timeout`] if the rest of a packet does not follow in time.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>> {
        let mut deadline = None;
        loop {
            let arrived = self.arrived();
            if let Some(&header) = arrived.first_chunk::<HEADER>() {
                let length = u16::from_be_bytes(header);
                if length == 0 || length > self.mtu {
                    let text = format!(
                        "the peer sent a packet of {length} bytes, not of 1 to {}",
                        self.mtu
                    );
                    return Err(Failure::new(Kind::Peer, text));
                }
                let body = self.start + HEADER;
                let end = body + usize::from(length);
                if end <= self.end {
                    self.start = end;
                    return Ok(self.bytes.get(body..end));
                }
            }
            let empty = self.start == self.end;
            if !empty && deadline.is_none() {
                deadline = Some(Instant::now() + self.patience);
            }
            if !self.fill(deadline)? {
                let text = "the peer disconnected before a packet was complete";
                return match empty {
                    true => Ok(None),
                    false => Err(Failure::new(Kind::Peer, text)),
                };
            }
        }
    }

    fn arrived(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Waits for more bytes, of which there is room for a whole frame; false at the end of the
    /// stream.
    fn fill(&mut self, deadline: Option<Instant>) -> Result<bool> {
        self.bytes.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        self.input.set_timeout(deadline.map_or(Duration::MAX, |it| {
            it.saturating_duration_since(Instant::now())
        }));
        let room = self.bytes.get_mut(self.end..).unwrap_or_default();
        let read = self.input.read(room);
        let length = read.map_err(|error| crate::connection::failure("receive", error))?;
        self.end += length;
        Ok(length > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::collections::VecDeque;

    use proptest::prelude::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// A stream that arrives in pieces, and after the last piece ends or never goes on.
    struct Pieces {
        pieces: VecDeque<Vec<u8>>,
        stalls: bool,
        timeout: Duration,
    }

    impl Read for Pieces {
        fn read(&mut self, target: &mut [u8]) -> io::Result<usize> {
            let Some(mut piece) = self.pieces.pop_front() else {
                assert!(!self.stalls || self.timeout <= PATIENCE, "waits forever");
                return if self.stalls {
                    Err(io::ErrorKind::TimedOut.into())
                } else {
                    Ok(0)
                };
            };
            let length = piece.len().min(target.len());
            target[..length].copy_from_slice(&piece[..length]);
            let rest = piece.split_off(length);
            if !rest.is_empty() {
                self.pieces.push_front(rest);
            }
            Ok(length)
        }
    }

    impl TimedRead for Pieces {
        fn set_timeout(&mut self, timeout: Duration) {
            self.timeout = timeout;
        }
    }

    fn stream(bytes: &[u8], piece: usize, stalls: bool) -> Pieces {
        Pieces {
            pieces: bytes.chunks(piece).map(<[u8]>::to_vec).collect(),
            stalls,
            timeout: Duration::ZERO,
        }
    }

    fn frames(packets: &[Vec<u8>], mtu: u16) -> Vec<u8> {
        let (mut batch, mut sent) = (Batch::new(4096, mtu), Vec::new());
        for packet in packets {
            let copy = |room: &mut [u8]| {
                room[..packet.len()].copy_from_slice(packet);
                Ok(packet.len())
            };
            if batch.add(copy).unwrap().is_none() {
                batch.send(&mut sent).unwrap();
                assert_eq!(batch.add(copy).unwrap(), Some(packet.len()));
            }
        }
        batch.send(&mut sent).unwrap();
        sent
    }

    fn kind(bytes: &[u8], mtu: u16, stalls: bool) -> Kind {
        let mut packets = Packets::new(stream(bytes, 7, stalls), mtu, PATIENCE);
        loop {
            match packets.next() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("no failure"),
                Err(failure) => return failure.kind,
            }
        }
    }

    proptest! {
        #[test]
        fn packets_arrive_as_they_were_sent(
            sizes in prop::collection::vec(1usize..1500, 0..40),
            piece in 1usize..5000,
        ) {
            let packets: Vec<_> = sizes.iter().map(|&size| vec![size as u8; size]).collect();
            let input = stream(&frames(&packets, 1500), piece, false);
            let mut found = Packets::new(input, 1500, PATIENCE);
            for packet in &packets {
                prop_assert_eq!(found.next().unwrap(), Some(&packet[..]));
            }
            prop_assert_eq!(found.next().unwrap(), None);
        }

        #[test]
        fn any_bytes_end_in_packets_or_a_failure(
            bytes in prop::collection::vec(any::<u8>(), 0..4000),
            piece in 1usize..500,
        ) {
            let mut packets = Packets::new(stream(&bytes, piece, true), 200, PATIENCE);
            let mut taken = 0;
            // A peer that has sent nothing more may be silent forever.
            while packets.start < packets.end || !packets.input().pieces.is_empty() {
                match packets.next() {
                    Ok(packet) => {
                        let length = packet.unwrap().len();
                        prop_assert!((1..=200).contains(&length));
                        taken += HEADER + length;
                    }
                    Err(failure) => {
                        prop_assert!(matches!(failure.kind, Kind::Peer | Kind::Timeout));
                        break;
                    }
                }
            }
            prop_assert!(taken <= bytes.len());
        }
    }

    #[test]
    fn both_keep_to_the_smaller_mtu() {
        for (mine, theirs) in [(1500, 65535), (65535, 1500)] {
            assert_eq!(agree(&offer(theirs).unwrap(), mine).unwrap(), 1500);
        }
        assert_eq!(offer(1500).unwrap().private.as_slice(), [0x05, 0xdc]);
    }

    #[test]
    fn peers_without_a_usable_mtu_are_refused() {
        let tiny = (LEAST_MTU - 1).to_be_bytes();
        for private in [&tiny[..], &[], &[0x05], &[0x05, 0xdc, 0]] {
            let private = PrivateData::new(private).unwrap();
            let peer = Offer {
                private,
                ..offer(1500).unwrap()
            };
            assert_eq!(agree(&peer, 1500).unwrap_err().kind, Kind::Peer);
        }
    }

    #[test]
    fn wrong_lengths_end_the_stream() {
        assert_eq!(kind(&[0, 0], 1500, true), Kind::Peer);
        assert_eq!(kind(&[0x05, 0xdd], 1500, true), Kind::Peer);
        assert_eq!(kind(&[0, 1], 1500, false), Kind::Peer);
        assert_eq!(kind(&[0], 1500, false), Kind::Peer);
        assert_eq!(kind(&[0, 2, 1], 1500, true), Kind::Timeout);
        assert_eq!(kind(&[0], 1500, true), Kind::Timeout);
    }

    #[test]
    fn a_batch_takes_what_surely_fits() {
        let mut batch = Batch::new(150, 68);
        let fill = |room: &mut [u8]| Ok(room.len());
        assert_eq!(batch.add(fill).unwrap(), Some(68));
        assert_eq!(batch.add(|_| Ok(0)).unwrap(), Some(0));
        assert_eq!(batch.add(fill).unwrap(), Some(68));
        assert_eq!(batch.add(|_| panic!("no room")).unwrap(), None);
        let error = Batch::new(0, 68).add(|_| Ok(69)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let mut sent = Vec::new();
        batch.send(&mut sent).unwrap();
        assert_eq!(sent.len(), 140);
    }
}
