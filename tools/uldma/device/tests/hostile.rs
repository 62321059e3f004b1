// SPDX-License-Identifier: MIT OR Apache-2.0

//! Malicious clients: only their own node may suffer.

// To panic is how a test fails.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod common;

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use common::host::{start, wait_for, Host};
use common::raw::{Raw, DMA_MAP, REGION_READ, REGION_WRITE, VERSION};
use common::{memfd, Guest, BASE, FREE, PAGE};
use rustix::event::EventfdFlags;
use rustix::fs::MemfdFlags;
use tempfile::TempDir;
use uldma_device::abi::{Method, Status};
use uldma_device::engine::Speed;
use uldma_device::layout::{reg, BAR_CONTROL, BAR_WINDOW, ID_MAGIC};
use uldma_device::method::Compare;
use uldma_device::node::Shape;
use vfio_bindings::bindings::vfio::VFIO_PCI_CONFIG_REGION_INDEX;

const SHAPE: Shape = Shape {
    contexts: 8,
    shadow_bits: 34,
    window_size: 1 << 20,
    methods: Method::ALL,
    compare: Compare::Full,
};
const SLICE: u64 = 1 << 31;
const MEMORY: u64 = 64 << 20;

/// The sockets of a device of two nodes.
fn sockets() -> (TempDir, [PathBuf; 2]) {
    let directory = TempDir::new().unwrap();
    start(directory.path(), SHAPE, Speed::default());
    let sockets = ["a", "b"].map(|name| directory.path().join(name));
    (directory, sockets)
}

/// Runs an action that a hang of the device must not stop.
fn in_time<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, result) = mpsc::channel();
    std::thread::spawn(move || done.send(act()));
    result
        .recv_timeout(Duration::from_secs(20))
        .unwrap_or_else(|_| panic!("the device hangs"))
}

/// Memory that can be cut short under the device.
fn unsealed(size: u64) -> File {
    let file = File::from(rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap());
    file.set_len(size).unwrap();
    file
}

fn enable_memory(raw: &mut Raw) {
    raw.write(VFIO_PCI_CONFIG_REGION_INDEX, 4, &[0x06, 0x04])
        .unwrap();
}

fn id(raw: &mut Raw) -> Vec<u8> {
    raw.read(BAR_CONTROL, reg::ID.offset() as u64, 4).unwrap()
}

#[test]
fn a_file_that_shrinks_kills_nobody() {
    let (_directory, [a, _]) = sockets();
    let mut host = Host::connect(&a, MEMORY);
    host.probe(3);
    let file = unsealed(1 << 20);
    let address = BASE + MEMORY;
    let raw_fd = std::os::fd::AsRawFd::as_raw_fd(&file);
    host.client.dma_map(0, address, 1 << 20, raw_fd).unwrap();
    host.guest.register(1, 3, 0, address, PAGE);
    host.guest.register(2, 3, 100, FREE, PAGE);
    file.set_len(0).unwrap();
    assert_eq!(host.initiate(SLICE, (0, 1), (100 * PAGE, 2), 64), 1);
    wait_for("completion", || host.guest.completed(1).0 == 1);
    assert_eq!(host.guest.record(1, 1).2, Status::BusError as u64);
}

#[test]
fn the_window_cannot_be_cut() {
    let (_directory, [a, _]) = sockets();
    let host = Host::connect(&a, MEMORY);
    let region = host.client.region(BAR_WINDOW).unwrap();
    let file = region.file_offset.as_ref().unwrap().file();
    assert!(file.set_len(0).is_err());
    assert!(file.set_len(SHAPE.window_size * 2).is_err());
    assert_eq!(file.metadata().unwrap().len(), SHAPE.window_size);
}

#[test]
fn a_full_eventfd_hangs_nobody() {
    let (_directory, [a, b]) = sockets();
    let mut honest = Host::connect(&a, MEMORY);
    honest.probe(3);
    let event = File::from(rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap());
    let mut hostile = Raw::negotiate(&b);
    hostile.set_vector(0, event.as_fd()).unwrap();
    hostile.set_vector(1, event.as_fd()).unwrap();
    // Not before, so that it does not matter whether the device has made it non-blocking.
    let flags = rustix::fs::OFlags::empty();
    (&event).write_all(&(u64::MAX - 1).to_ne_bytes()).unwrap();
    rustix::fs::fcntl_setfl(&event, flags).unwrap();
    enable_memory(&mut hostile);
    hostile
        .write(BAR_CONTROL, reg::CONTROL.offset() as u64, &[1, 0, 0, 0])
        .unwrap();
    let identity = in_time(move || {
        for bit in [1, 2, 1, 2] {
            honest.set(reg::PEER_DOORBELL.at(1).unwrap(), bit);
        }
        honest.get(reg::ID)
    });
    assert_eq!(identity, ID_MAGIC);
    // The next client of the same socket is served.
    drop(hostile);
    let identity = in_time(move || {
        let mut next = Host::connect(&b, MEMORY);
        next.probe(4);
        next.guest.register(1, 4, 0, FREE, PAGE);
        assert_eq!(next.initiate(SLICE, (0, 1), (64, 1), 8), 1);
        next.interrupt(0);
        next.get(reg::ID)
    });
    assert_eq!(identity, ID_MAGIC);
}

#[test]
fn only_an_eventfd_is_an_interrupt() {
    let (_directory, [a, b]) = sockets();
    let (_reader, writer) = rustix::pipe::pipe().unwrap();
    let mut hostile = Raw::negotiate(&b);
    assert!(hostile.set_vector(0, writer.as_fd()).is_err());
    assert!(hostile.set_vector(0, memfd(64).as_fd()).is_err());
    let mut honest = Raw::negotiate(&a);
    enable_memory(&mut honest);
    assert_eq!(id(&mut honest), ID_MAGIC.to_le_bytes());
}

#[test]
fn long_accesses_are_refused() {
    let (_directory, [a, _]) = sockets();
    let mut raw = Raw::negotiate(&a);
    for bar in [BAR_CONTROL, BAR_WINDOW, VFIO_PCI_CONFIG_REGION_INDEX] {
        assert!(raw.read(bar, 0, 4097).is_err());
        assert!(raw.write(bar, 0, &[0; 4097]).is_err());
        assert!(raw.write(bar, 0, &vec![0; 64 << 20]).is_err());
        assert_eq!(raw.read(bar, 0, 4096).unwrap().len(), 4096);
    }
    // The refused message was read from the stream.
    enable_memory(&mut raw);
    assert_eq!(id(&mut raw), ID_MAGIC.to_le_bytes());
    assert!(raw.read(BAR_CONTROL, 0, u32::MAX).is_err());
    assert_eq!(id(&mut raw), ID_MAGIC.to_le_bytes());
}

#[test]
fn messages_whose_sizes_contradict_each_other() {
    let (_directory, [a, b]) = sockets();
    // More data is announced than the message has.
    let mut raw = Raw::negotiate(&a);
    let body = Raw::access(BAR_CONTROL, 0, 4096);
    assert!(raw.ask(REGION_WRITE, &body, &[]).is_err());
    enable_memory(&mut raw);
    assert_eq!(id(&mut raw), ID_MAGIC.to_le_bytes());
    // Fewer bytes than the command needs.
    for command in 0..20 {
        assert!(
            raw.ask(command, &[], &[]).is_err() || command == 13,
            "{command}"
        );
    }
    enable_memory(&mut raw);
    assert_eq!(id(&mut raw), ID_MAGIC.to_le_bytes());
    // Less than a header: nothing after it can be understood.
    for (command, size) in [(REGION_READ, 0), (REGION_READ, 15), (VERSION, 3)] {
        let mut raw = Raw::connect(&b);
        raw.send(command, size, &[], &[]);
        assert_eq!(raw.answer(), Err(0), "{command}, {size}");
    }
    let mut raw = Raw::negotiate(&b);
    enable_memory(&mut raw);
    assert_eq!(id(&mut raw), ID_MAGIC.to_le_bytes());
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn files_are_not_kept() {
    const RANGES: u64 = 500;
    let (_directory, [a, _]) = sockets();
    let mut raw = Raw::negotiate(&a);
    let guest = Guest::new(MEMORY);
    let before = open_files();
    for number in 0..RANGES {
        raw.map(number * 2 * PAGE, PAGE, guest.file.as_fd())
            .unwrap();
    }
    // Other tests open and close files at the same time.
    wait_for("files are closed", || {
        open_files() < before + RANGES as usize / 2
    });
}

#[test]
fn ranges_are_limited() {
    let (_directory, [a, b]) = sockets();
    let mut raw = Raw::negotiate(&a);
    let guest = Guest::new(MEMORY);
    let no_space =
        (0..1 << 17).find_map(|number| raw.map(number * 2 * PAGE, PAGE, guest.file.as_fd()).err());
    assert_eq!(
        no_space,
        Some(rustix::io::Errno::NOSPC.raw_os_error() as u32)
    );
    assert!(raw.ask(DMA_MAP, &[0; 32], &[]).is_err());
    // The other node has room, and the first one has it again.
    let mut other = Raw::negotiate(&b);
    other.map(0, PAGE, guest.file.as_fd()).unwrap();
    raw.unmap(0, PAGE).unwrap();
    raw.map(0, PAGE, guest.file.as_fd()).unwrap();
}
