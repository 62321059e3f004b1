// SPDX-License-Identifier: MIT OR Apache-2.0

//! Channels over a link within the process.

use std::time::{Duration, Instant};

use crate::channel::Channel;
use crate::connection::loopback::{pair, Loopback};
use crate::error::Error;
use crate::ring::Geometry;
use crate::wait::spin::Spin;

const LONG: Duration = Duration::from_secs(20);

fn channels(capacity: u64, spin: Spin) -> (Channel<Loopback>, Channel<Loopback>) {
    let (left, right) = pair(capacity);
    let mut left = Channel::over(left, capacity).unwrap();
    let mut right = Channel::over(right, capacity).unwrap();
    left.set_spin(spin);
    right.set_spin(spin);
    (left, right)
}

/// Messages of all lengths cross, whole and in order, with both sides asleep half the time.
#[test]
fn messages_cross_between_threads() {
    let start = Instant::now();
    for spin in [Spin::Never, Spin::For(Duration::from_micros(10))] {
        let (mut left, mut right) = channels(256, spin);
        let writer = std::thread::spawn(move || {
            for round in 0..2000usize {
                let message = vec![round as u8; round % 249];
                left.send(&message, LONG).unwrap();
            }
            left.wait_closed(LONG).unwrap();
        });
        let mut target = [0; 256];
        for round in 0..2000usize {
            let length = right.receive(&mut target, LONG).unwrap();
            assert_eq!(length, round % 249);
            assert!(target[..length].iter().all(|&byte| byte == round as u8));
        }
        drop(right);
        writer.join().unwrap();
    }
    // A wake-up that gets lost costs LONGEST_SLEEP; many of them would take minutes.
    assert!(start.elapsed() < LONG);
}

/// Messages in pieces go over in batches, with both sides asleep half the time.
#[test]
fn batches_cross_between_threads() {
    for spin in [Spin::Never, Spin::Adaptive] {
        let (mut left, mut right) = channels(256, spin);
        left.set_spin(spin);
        right.set_spin(spin);
        let writer = std::thread::spawn(move || {
            for round in 0..2000usize {
                let (head, body) = ([round as u8], vec![round as u8; round % 100]);
                left.send_vectored(&[&head[..], &body, &head], LONG)
                    .unwrap();
            }
            left.wait_closed(LONG).unwrap();
        });
        let (mut target, mut round) = ([0; 256], 0);
        while round < 2000 {
            let count = right
                .receive_batch(&mut target, 7, LONG, |message| {
                    assert_eq!(message.len(), round % 100 + 2);
                    assert!(message.iter().all(|&byte| byte == round as u8));
                    round += 1;
                })
                .unwrap();
            assert!((1..=7).contains(&count));
        }
        drop(right);
        writer.join().unwrap();
    }
}

#[test]
fn a_full_ring_says_so_and_goes_on() {
    let (mut left, mut right) = channels(64, Spin::Never);
    // The first one takes the only data line.
    assert!(left.try_send(&[1; 57]).unwrap());
    assert!(!left.try_send(&[1; 57]).unwrap());
    let error = left.send(&[1; 57], Duration::from_millis(1)).unwrap_err();
    assert!(matches!(error, Error::Timeout { .. }));
    let mut sent = 0;
    while left.try_send(&[]).unwrap() {
        sent += 1;
    }
    assert_eq!(sent, 15);
    let mut target = [0; 64];
    assert_eq!(right.try_receive(&mut target).unwrap(), Some(57));
    for _ in 0..sent {
        assert_eq!(right.try_receive(&mut target).unwrap(), Some(0));
    }
    assert_eq!(right.try_receive(&mut target).unwrap(), None);
    left.send(&[2], Duration::ZERO).unwrap();
    assert_eq!(right.try_receive(&mut target).unwrap(), Some(1));
}

#[test]
fn a_message_that_is_too_long_harms_nothing() {
    let (mut left, mut right) = channels(64, Spin::Never);
    assert!(matches!(
        left.try_send(&[0; 121]),
        Err(Error::TooLong {
            length: 121,
            limit: 120
        })
    ));
    left.try_send(b"bytes").unwrap();
    let error = right.try_receive(&mut [0; 4]).unwrap_err();
    assert!(matches!(
        error,
        Error::TooLong {
            length: 5,
            limit: 4
        }
    ));
    let mut target = [0; 5];
    assert_eq!(right.try_receive(&mut target).unwrap(), Some(5));
    assert_eq!(&target, b"bytes");
}

#[test]
fn what_was_sent_before_closing_arrives() {
    let (mut left, mut right) = channels(64, Spin::Never);
    left.try_send(b"last").unwrap();
    drop(left);
    assert!(matches!(
        right.try_send(b"x"),
        Err(Error::Closed) | Ok(true)
    ));
    let mut target = [0; 8];
    assert_eq!(right.receive(&mut target, LONG).unwrap(), 4);
    assert!(matches!(
        right.receive(&mut target, LONG),
        Err(Error::Closed)
    ));
    assert!(matches!(right.try_send(b"x"), Err(Error::Closed)));
}

#[test]
fn odd_capacities_are_refused() {
    for capacity in [0, 32, 65, 96, 1 << 29] {
        let (left, _right) = pair(64);
        assert!(matches!(
            Channel::over(left, capacity),
            Err(Error::Range { .. })
        ));
    }
}

#[test]
fn the_end_is_awaited_by_a_side_with_a_smaller_ring_to_the_peer() {
    let (left, right) = pair(256);
    let [small, large] = [64, 256].map(|capacity| Geometry::of(capacity).unwrap());
    let mut left = Channel::of(left, (large, small));
    let mut right = Channel::of(right, (small, large));
    left.send(&[1; 200], LONG).unwrap();
    drop(left);
    right.wait_closed(LONG).unwrap();
}
