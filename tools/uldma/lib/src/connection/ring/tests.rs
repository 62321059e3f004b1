// SPDX-License-Identifier: MIT OR Apache-2.0

//! Streams through the rings of a link within the process.

use std::time::Instant;

use super::*;
use crate::connection::loopback;
use crate::connection::loopback::Loopback;
use crate::wait::spin::Spin;
use crate::wait::wakeup;

const CAPACITY: u64 = 256;
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(20);

type Halves<L> = (RingReceiver<L>, RingSender<L>);

fn over<L: Link>(link: L, spin: Spin) -> Halves<L> {
    let poller = Poller::new(spin, wakeup::cost());
    let ring = Geometry::of(CAPACITY).unwrap();
    halves(link, (ring, ring), poller)
}

fn pair(spin: Spin) -> (Halves<Loopback>, Halves<Loopback>) {
    let (left, right) = loopback::pair(CAPACITY);
    (over(left, spin), over(right, spin))
}

fn errno<T: std::fmt::Debug>(result: Result<T>) -> Errno {
    result.unwrap_err().errno().unwrap()
}

fn byte(index: usize) -> u8 {
    (index * 7 + index / 251) as u8
}

fn write_all(sender: &mut RingSender<impl Link>, total: usize, lengths: &[usize]) {
    let (mut written, mut calls) = (0, 0);
    while written < total {
        let length = lengths[calls % lengths.len()].min(total - written);
        let bytes: Vec<u8> = (written..written + length).map(byte).collect();
        written += sender.write(&bytes, LONG).unwrap();
        calls += 1;
    }
    sender.flush().unwrap();
}

/// Reads to the end. Returns the number of bytes, which were the right ones.
fn read_all(receiver: &mut RingReceiver<impl Link>, lengths: &[usize]) -> usize {
    let (mut read, mut calls) = (0, 0);
    loop {
        let mut bytes = vec![0; lengths[calls % lengths.len()]];
        let length = receiver.read(&mut bytes, LONG).unwrap();
        if length == 0 {
            return read;
        }
        for (index, &got) in bytes[..length].iter().enumerate() {
            assert_eq!(got, byte(read + index), "byte {}", read + index);
        }
        read += length;
        calls += 1;
    }
}

#[test]
fn both_directions_carry_bytes_of_any_lengths() {
    const TOTAL: usize = 50_000;
    for spin in [Spin::Never, Spin::Adaptive] {
        let (left, right) = pair(spin);
        let rings = Arc::clone(left.1.rings());
        let run = |(mut receiver, mut sender): Halves<Loopback>, lengths: [usize; 4]| {
            std::thread::scope(|scope| {
                let reader = scope.spawn(move || {
                    let mut read = 0;
                    let mut bytes = vec![0; lengths[1]];
                    while read < TOTAL {
                        let length = receiver.read(&mut bytes, LONG).unwrap();
                        assert!(length > 0);
                        for (index, &got) in bytes[..length].iter().enumerate() {
                            assert_eq!(got, byte(read + index));
                        }
                        read += length;
                    }
                    receiver
                });
                write_all(&mut sender, TOTAL, &lengths);
                (reader.join().unwrap(), sender)
            })
        };
        let other = std::thread::spawn(move || run(right, [1, 3, 70, 1000]));
        let here = run(left, [500, 64, 8, 7]);
        drop((here, other.join().unwrap()));
        assert_eq!(rings.counts(), (TOTAL as u64, TOTAL as u64));
    }
}

#[test]
fn what_was_written_is_read_before_the_end() {
    let (left, (mut receiver, mut sender)) = pair(Spin::Adaptive);
    let (left_receiver, mut left_sender) = left;
    write_all(&mut left_sender, 100, &[100]);
    // The end is that of both halves.
    drop(left_receiver);
    let mut bytes = [0; 10];
    assert_eq!(receiver.read(&mut bytes, LONG).unwrap(), 10);
    assert_eq!(sender.write(b"taken", LONG).unwrap(), 5);
    sender.flush().unwrap();
    assert_eq!(sender.write(b"unread", LONG).unwrap(), 6);
    drop(left_sender);
    assert_eq!(errno(sender.flush()), Errno::EPIPE);
    assert_eq!(errno(sender.write(b"late", LONG)), Errno::EPIPE);
    let mut rest = [0; 100];
    let mut read = 10;
    loop {
        match receiver.read(&mut rest, LONG).unwrap() {
            0 => break,
            length => {
                assert!((0..length).all(|index| rest[index] == byte(read + index)));
                read += length;
            }
        }
    }
    assert_eq!(read, 100);
    assert_eq!(receiver.read(&mut rest, LONG).unwrap(), 0);
}

#[test]
fn what_was_read_before_the_end_is_whole() {
    let ((mut receiver, peer), (_receiver, mut sender)) = pair(Spin::Adaptive);
    assert_eq!(sender.write(b"read", LONG).unwrap(), 4);
    let mut bytes = [0; 8];
    assert_eq!(receiver.read(&mut bytes, LONG).unwrap(), 4);
    drop((receiver, peer));
    sender.flush().unwrap();
    assert_eq!(errno(sender.write(b"late", LONG)), Errno::EPIPE);
}

#[test]
fn a_reader_that_sleeps_is_woken_by_the_end() {
    let (left, (mut receiver, _sender)) = pair(Spin::Never);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || read_all(&mut receiver, &[16]));
        let (_receiver, mut sender) = left;
        write_all(&mut sender, 1000, &[10]);
        drop((_receiver, sender));
        assert_eq!(reader.join().unwrap(), 1000);
    });
}

#[test]
fn a_side_that_waits_in_vain_says_so() {
    let ((_, mut sender), (mut receiver, _)) = pair(Spin::Adaptive);
    let mut byte = [0];
    let error = receiver.read(&mut byte, SHORT).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let mut written = 0;
    let error = loop {
        match sender.write(&[0; 100], SHORT) {
            Ok(length) => written += length,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
    let most = Geometry::of(CAPACITY).unwrap().length() as usize;
    assert!((1..most).contains(&written), "{written}");
    assert_eq!(sender.write(&[], SHORT).unwrap(), 0);
    assert_eq!(receiver.read(&mut [], SHORT).unwrap(), 0);
}

#[test]
fn a_side_that_has_disconnected_stops_waiting() {
    let (left, right) = loopback::pair(CAPACITY);
    let (mut receiver, mut sender) = over(left, Spin::Never);
    let (mut peer, _sender) = over(right, Spin::Never);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || receiver.read(&mut [0], Duration::MAX));
        sender.rings().disconnect();
        assert_eq!(errno(reader.join().unwrap()), Errno::ENOTCONN);
    });
    assert_eq!(errno(sender.write(b"late", LONG)), Errno::ENOTCONN);
    // The other side finds the end, while both halves here are alive.
    assert_eq!(peer.read(&mut [0], LONG).unwrap(), 0);
}

#[test]
fn messages_that_no_stream_sends_are_violations() {
    for (message, is_short) in [(&b""[..], true), (b"long enough", false)] {
        let (left, right) = loopback::pair(CAPACITY);
        let mut peer = Producer::new(Geometry::of(CAPACITY).unwrap());
        let (mut receiver, mut sender) = over(right, Spin::Never);
        peer.push(&left, &left, message).unwrap();
        let read = receiver.read(&mut [0; 4], LONG);
        match is_short {
            true => {
                assert!(matches!(read, Err(Error::Violation(_))), "{read:?}");
                // The other half does not wait for such a peer.
                assert_eq!(errno(sender.write(b"x", Duration::MAX)), Errno::EPROTO);
            }
            // One that is longer than the target is read in parts.
            false => assert_eq!(read.unwrap(), 4),
        }
    }
}

/// A link whose device reports an end to sleepers.
struct Ended(Loopback, fn() -> Error);

impl Link for Ended {
    type In = Loopback;
    type Out = Loopback;

    fn inbound(&self) -> &Loopback {
        &self.0
    }

    fn outbound(&self) -> &Loopback {
        &self.0
    }

    fn ring(&self) -> Result<()> {
        Err(self.1())
    }

    fn rings(&self) -> u64 {
        self.0.rings()
    }

    fn wait(&self, _seen: u64, _deadline: Instant) -> Result<bool> {
        Err(self.1())
    }
}

#[test]
fn an_end_that_one_half_finds_is_that_of_the_other_too() {
    // A peer that ends without a word in the ring may have had more to say.
    let ends: [(fn() -> Error, _); 2] = [
        (|| Error::LinkDown, Errno::ECONNRESET),
        (|| Error::Closed, Errno::EPIPE),
    ];
    for (why, written) in ends {
        let (left, right) = loopback::pair(CAPACITY);
        let (_peer_receiver, mut peer) = over(left, Spin::Never);
        let (mut receiver, mut sender) = over(Ended(right, why), Spin::Never);
        write_all(&mut peer, 20, &[20]);
        let mut bytes = [0; 64];
        assert_eq!(receiver.read(&mut bytes, LONG).unwrap(), 20);
        assert_eq!(errno(receiver.read(&mut bytes, LONG)), Errno::ECONNRESET);
        assert_eq!(errno(sender.write(b"no peer", LONG)), written);
        sender.flush().unwrap();
    }
}

#[test]
fn a_side_that_has_lost_its_device_stores_nothing_when_it_ends() {
    let (left, right) = loopback::pair(CAPACITY);
    let (mut peer, _sender) = over(left, Spin::Never);
    drop(over(Ended(right, || Error::LinkDown), Spin::Never));
    let read = peer.read(&mut [0], SHORT);
    assert!(matches!(read, Err(Error::Timeout { .. })), "{read:?}");
}
