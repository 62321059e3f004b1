// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host behind a socket: what QEMU and a driver do, in this process.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{poll, EventfdFlags, PollFd, PollFlags};
use uldma_device::backend;
use uldma_device::device::Device;
use uldma_device::engine::Speed;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, ControlRegister, Register, Word, BAR_CONTROL, BAR_SHADOW,
};
use uldma_device::node::Shape;
use uldma_device::shadow::SizeWord;
use vfio_bindings::bindings::vfio::{
    VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD, VFIO_PCI_CONFIG_REGION_INDEX,
    VFIO_PCI_MSIX_IRQ_INDEX,
};
use vfio_user::Client;

use super::rig::of_context;
use super::{Guest, BASE, PAGES, REGIONS};

/// Starts a device with two nodes, whose sockets are `a` and `b` in a directory.
pub(crate) fn start(directory: &Path, shape: Shape, speed: Speed) -> Arc<Device> {
    start_nodes(directory, shape, &["a", "b"], speed)
}

/// Serves a device of nodes with these names from sockets of the same names.
pub(crate) fn start_nodes(
    directory: &Path,
    shape: Shape,
    names: &[&str],
    speed: Speed,
) -> Arc<Device> {
    let device = Arc::new(Device::new(shape, names.len(), speed).unwrap());
    for (node, name) in names.iter().enumerate() {
        let listener = UnixListener::bind(directory.join(name)).unwrap();
        let device = Arc::clone(&device);
        std::thread::spawn(move || backend::serve(device, node, listener));
    }
    device.start().unwrap();
    device
}

/// Calls `ready` until it returns true.
pub(crate) fn wait_for(what: &str, mut ready: impl FnMut() -> bool) {
    let limit = Instant::now() + Duration::from_secs(20);
    while !ready() {
        assert!(Instant::now() < limit, "{what} does not happen");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// One host with its memory, connected to its node.
pub(crate) struct Host {
    pub(crate) client: Client,
    pub(crate) guest: Guest,
    pub(crate) vectors: [File; 2],
}

impl Host {
    /// Connects, maps memory and interrupts, and lets the function decode and master the bus.
    pub(crate) fn connect(socket: &Path, memory: u64) -> Self {
        let mut client = Client::new(socket).unwrap();
        let guest = Guest::new(memory);
        client
            .dma_map(0, BASE, memory, guest.file.as_raw_fd())
            .unwrap();
        let event = || {
            let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
            File::from(rustix::event::eventfd(0, flags).unwrap())
        };
        let vectors = [event(), event()];
        client
            .set_irqs(
                VFIO_PCI_MSIX_IRQ_INDEX,
                VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER,
                0,
                2,
                &[vectors[0].as_raw_fd(), vectors[1].as_raw_fd()],
            )
            .unwrap();
        let mut host = Self {
            client,
            guest,
            vectors,
        };
        host.command(&[0x06, 0x04]);
        host
    }

    /// Stores the command register: bit 1 is memory decoding, bit 2 bus mastering.
    pub(crate) fn command(&mut self, value: &[u8; 2]) {
        self.client
            .region_write(VFIO_PCI_CONFIG_REGION_INDEX, 4, value)
            .unwrap();
    }

    pub(crate) fn load(&mut self, bar: u32, offset: u64, width: usize) -> u64 {
        let mut data = [0; 8];
        self.client
            .region_read(bar, offset, &mut data[..width])
            .unwrap();
        u64::from_le_bytes(data)
    }

    pub(crate) fn store(&mut self, bar: u32, offset: u64, width: usize, value: u64) {
        self.client
            .region_write(bar, offset, &value.to_le_bytes()[..width])
            .unwrap();
    }

    pub(crate) fn get<T: Word, A>(&mut self, register: Register<ControlRegister, T, A>) -> T {
        T::from_raw(self.load(BAR_CONTROL, register.offset() as u64, size_of::<T>()))
    }

    pub(crate) fn set<T: Word, A>(&mut self, register: Register<ControlRegister, T, A>, value: T) {
        let offset = register.offset() as u64;
        self.store(BAR_CONTROL, offset, size_of::<T>(), value.to_raw());
    }

    /// Enables the node with a context 1 of a space.
    pub(crate) fn probe(&mut self, space: u32) {
        let (pages, regions) = (self.guest.page_directory(), self.guest.region_directory());
        self.set(reg::PAGE_DIRECTORY, pages);
        self.set(reg::REGION_DIRECTORY, regions);
        self.set(reg::PAGE_CAPACITY, PAGES);
        self.set(reg::REGION_CAPACITY, REGIONS);
        let page = self.guest.status_page(1);
        self.set(of_context(1, ctx::STATUS_PAGE), page);
        self.set(of_context(1, ctx::SPACE), space);
        self.set(of_context(1, ctx::METHODS), 1);
        let always = ContextControl::ENABLE | ContextControl::INTERRUPT_ALWAYS;
        self.set(of_context(1, ctx::CONTROL), always);
        self.set(reg::CONTROL, Control::ENABLE);
    }

    /// Makes one initiation by context 1, whose shadow space starts at `slice`: page entry and
    /// region of both sides.
    pub(crate) fn initiate(
        &mut self,
        slice: u64,
        (source, src_region): (u64, u32),
        (destination, dst_region): (u64, u32),
        bytes: u32,
    ) -> i64 {
        let word = SizeWord {
            bytes,
            src_region,
            dst_region,
            ..SizeWord::default()
        };
        self.store(BAR_SHADOW, slice + destination, 8, word.pack());
        self.load(BAR_SHADOW, slice + source, 8) as i64
    }

    /// Waits for an interrupt and acknowledges it at the eventfd.
    pub(crate) fn interrupt(&self, vector: usize) {
        let file = &self.vectors[vector];
        let timeout = rustix::event::Timespec {
            tv_sec: 20,
            tv_nsec: 0,
        };
        let mut events = [PollFd::new(file, PollFlags::IN)];
        assert_eq!(
            poll(&mut events, Some(&timeout)).unwrap(),
            1,
            "vector {vector}"
        );
        rustix::io::read(file, &mut [0; 8]).unwrap();
    }
}
