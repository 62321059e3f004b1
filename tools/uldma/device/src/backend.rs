// SPDX-License-Identifier: MIT OR Apache-2.0

//! Serves one node over vfio-user: the regions, interrupts and memory of its client.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use vfio_bindings::bindings::vfio::{
    VFIO_DEVICE_FLAGS_PCI, VFIO_DEVICE_FLAGS_RESET, VFIO_IRQ_INFO_EVENTFD, VFIO_IRQ_SET_DATA_BOOL,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_CAP_SPARSE_MMAP,
    VFIO_REGION_INFO_FLAG_CAPS, VFIO_REGION_INFO_FLAG_MMAP, VFIO_REGION_INFO_FLAG_READ,
    VFIO_REGION_INFO_FLAG_WRITE,
};

use crate::config::CONFIG_SIZE;
use crate::device::Device;
use crate::irq::Event;
use crate::layout::{BAR_WINDOW, MSIX_VECTORS};
use crate::wire::{command, Request, MAX_ACCESS};

/// Bits of the flags of a range of memory.
mod dma_flags {
    pub(super) const READ: u32 = 1;
    pub(super) const WRITE: u32 = 1 << 1;
    pub(super) const UNMAP_ALL: u32 = 1 << 2;
}

/// Time from a failed accept() to the next attempt.
const BACK_OFF: Duration = Duration::from_millis(100);

/// Serves one node to one client at a time, forever.
pub fn serve(device: Arc<Device>, node: usize, listener: UnixListener) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) => {
                device.complain(node, format_args!("no client can come: {error}"));
                std::thread::sleep(BACK_OFF);
                continue;
            }
        };
        let mut session = Session {
            device: &device,
            node,
            attached: false,
        };
        match catch_unwind(AssertUnwindSafe(|| session.run(&stream))) {
            Ok(Ok(())) => log::info!("node {node}: client left"),
            Ok(Err(error)) => device.complain(node, format_args!("client lost: {error}")),
            Err(_) => device.complain(node, format_args!("its client made this process fail")),
        }
        device.with(|model, memories| model.detach(node, memories));
        device.release_interrupts(node);
        let cleared = device.with_memory(node, |memory| {
            memory.clear();
            Ok(())
        });
        if let Err(error) = cleared {
            device.complain(node, format_args!("{error}"));
        }
    }
}

/// Spins until an access has lasted its minimum time. A sleep would last much longer.
fn spin_until(began: Instant, least: Duration) {
    while began.elapsed() < least {
        std::hint::spin_loop();
    }
}

/// The reply to a request that succeeded.
#[derive(Default)]
struct Reply<'a> {
    body: Vec<u8>,
    file: Option<BorrowedFd<'a>>,
}

impl From<Vec<u8>> for Reply<'_> {
    fn from(body: Vec<u8>) -> Self {
        Self { body, file: None }
    }
}

fn invalid() -> io::Error {
    io::ErrorKind::InvalidInput.into()
}

/// Returns the errno that is sent to the client for an error.
fn errno(error: &io::Error) -> u32 {
    use rustix::io::Errno;
    let errno = match error.kind() {
        io::ErrorKind::InvalidInput => Errno::INVAL,
        io::ErrorKind::FileTooLarge => Errno::MSGSIZE,
        io::ErrorKind::AlreadyExists => Errno::EXIST,
        io::ErrorKind::StorageFull => Errno::NOSPC,
        io::ErrorKind::Unsupported => Errno::OPNOTSUPP,
        _ => Errno::from_io_error(error).unwrap_or(Errno::IO),
    };
    errno.raw_os_error().unsigned_abs()
}

/// A client of one node.
struct Session<'a> {
    device: &'a Device,
    node: usize,
    attached: bool,
}

impl<'a> Session<'a> {
    fn run(&mut self, stream: &UnixStream) -> io::Result<()> {
        while let Some(mut request) = Request::receive(stream)? {
            self.attach();
            let result = self.handle(&mut request);
            if let Err(error) = &result {
                let command = request.command();
                let node = self.node;
                let device = self.device;
                device.complain(node, format_args!("command {command} refused: {error}"));
            }
            if !request.wants_reply() {
                continue;
            }
            match result {
                Ok(Reply { body, file }) => request.reply(stream, &body, file)?,
                Err(error) => request.refuse(stream, errno(&error))?,
            }
        }
        Ok(())
    }

    /// A client counts as attached from its first message on.
    fn attach(&mut self) {
        if !self.attached {
            log::info!("node {}: client came", self.node);
            self.attached = true;
            self.device.with(|model, _| model.attach(self.node));
        }
    }

    fn handle(&mut self, request: &mut Request) -> io::Result<Reply<'a>> {
        match request.command() {
            command::VERSION => self.version(request),
            command::DMA_MAP => self.dma_map(request),
            command::DMA_UNMAP => self.dma_unmap(request),
            command::DEVICE_GET_INFO => Self::device_info(request),
            command::DEVICE_GET_REGION_INFO => self.region_info(request),
            command::DEVICE_GET_IRQ_INFO => Self::irq_info(request),
            command::DEVICE_SET_IRQS => self.set_irqs(request),
            command::REGION_READ => self.region_read(request),
            command::REGION_WRITE => self.region_write(request),
            command::DEVICE_RESET => {
                self.device
                    .with(|model, memories| model.reset_function(self.node, memories));
                self.device.wait_for_chunk();
                Ok(Reply::default())
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn version(&self, request: &Request) -> io::Result<Reply<'a>> {
        let major = request.word(0)? & 0xffff;
        // The text ends in a zero byte; the capabilities in it are not used.
        let offered = request.rest(4)?.strip_suffix(&[0]).ok_or_else(invalid)?;
        serde_json::from_slice::<serde_json::Value>(offered)?;
        if major != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let capabilities = json!({ "capabilities": {
            "max_msg_fds": 1,
            "max_data_xfer_size": MAX_ACCESS,
            "max_dma_maps": self.device.most_ranges(),
            "pgsizes": 4096,
        }});
        let mut body = vec![0; 4];
        body.extend(serde_json::to_vec(&capabilities)?);
        body.push(0);
        Ok(body.into())
    }

    fn device_info(request: &Request) -> io::Result<Reply<'a>> {
        request.rest(16)?;
        let flags = VFIO_DEVICE_FLAGS_PCI | VFIO_DEVICE_FLAGS_RESET;
        let words = [16, flags, VFIO_PCI_NUM_REGIONS, VFIO_PCI_NUM_IRQS];
        Ok(words.map(u32::to_le_bytes).concat().into())
    }

    fn region_info(&self, request: &Request) -> io::Result<Reply<'a>> {
        const INFO: u32 = 32;
        request.rest(INFO as usize)?;
        let (room, index) = (request.word(0)?, request.word(8)?);
        let size = self.region_size(index)?;
        let mut flags = 0;
        if size > 0 {
            flags |= VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
        }
        // A client maps only the areas that are listed. What is in none is trapped, and not answered.
        let mut capability = Vec::new();
        if index == BAR_WINDOW {
            flags |= VFIO_REGION_INFO_FLAG_MMAP | VFIO_REGION_INFO_FLAG_CAPS;
            let areas = self.device.areas(self.node);
            // Kind and version, offset of the next capability, number of areas, and the areas.
            for word in [
                VFIO_REGION_INFO_CAP_SPARSE_MMAP | (1 << 16),
                0,
                areas.len() as u32,
                0,
            ] {
                capability.extend(word.to_le_bytes());
            }
            for area in areas {
                capability.extend(area.start.to_le_bytes());
                capability.extend((area.end - area.start).to_le_bytes());
            }
        }
        let whole = INFO + capability.len() as u32;
        let first = if capability.is_empty() { 0 } else { INFO };
        let mut body = [whole, flags, index, first].map(u32::to_le_bytes).concat();
        body.extend(size.to_le_bytes());
        body.extend(0u64.to_le_bytes());
        // A client whose buffer is too small for the capability repeats the request.
        let complete = !capability.is_empty() && room >= whole;
        if complete {
            body.extend(capability);
        }
        let file = complete.then(|| self.device.window().as_fd());
        Ok(Reply { body, file })
    }

    fn irq_info(request: &Request) -> io::Result<Reply<'a>> {
        request.rest(16)?;
        let index = request.word(8)?;
        let (flags, count) = match index {
            VFIO_PCI_MSIX_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, MSIX_VECTORS.into()),
            // Never signalled, but QEMU warns at every start if it cannot be.
            VFIO_PCI_ERR_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, 1),
            0..VFIO_PCI_NUM_IRQS => (0, 0),
            _ => return Err(invalid()),
        };
        let words = [16, flags, index, count];
        Ok(words.map(u32::to_le_bytes).concat().into())
    }

    fn set_irqs(&self, request: &mut Request) -> io::Result<Reply<'a>> {
        let (flags, index) = (request.word(4)?, request.word(8)?);
        let (start, count) = (request.word(12)?, request.word(16)?);
        if index >= VFIO_PCI_NUM_IRQS {
            return Err(invalid());
        }
        if flags & VFIO_IRQ_SET_DATA_BOOL != 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if index == VFIO_PCI_MSIX_IRQ_INDEX {
            let files = request.take_files().into_iter();
            let events = files.map(Event::new).collect::<io::Result<_>>()?;
            self.device
                .with(|model, _| model.set_vectors(self.node, flags, start, count, events))?;
        }
        Ok(Reply::default())
    }

    fn dma_map(&self, request: &mut Request) -> io::Result<Reply<'a>> {
        let (flags, offset) = (request.word(4)?, request.wide(8)?);
        let (address, size) = (request.wide(16)?, request.wide(24)?);
        let mut files = request.take_files();
        let file = files.pop();
        if !files.is_empty() {
            return Err(invalid());
        }
        log::debug!("node {}: map {size:#x} at {address:#x} {file:?}", self.node);
        let problem = self.device.with_memory(self.node, |memory| {
            memory.map(
                address,
                size,
                file.map(|file| (file, offset)),
                flags & dma_flags::READ != 0,
                flags & dma_flags::WRITE != 0,
            )
        })?;
        if let Some(problem) = problem {
            self.device.complain(
                self.node,
                format_args!("{size:#x} bytes at {address:#x} are out of reach: {problem}"),
            );
        }
        Ok(Reply::default())
    }

    fn dma_unmap(&self, request: &Request) -> io::Result<Reply<'a>> {
        let flags = request.word(4)?;
        let (address, size) = (request.wide(8)?, request.wide(16)?);
        log::debug!("node {}: unmap {size:#x} at {address:#x}", self.node);
        self.device.with_memory(self.node, |memory| {
            if flags & dma_flags::UNMAP_ALL != 0 {
                memory.clear();
            } else {
                memory.unmap(address, size);
            }
            Ok(())
        })?;
        let body = request.body()?.get(..24).unwrap_or_default();
        Ok(body.to_vec().into())
    }

    fn region_size(&self, index: u32) -> io::Result<u64> {
        let sizes = self.device.shape().bar_sizes();
        match index {
            VFIO_PCI_CONFIG_REGION_INDEX => Ok(CONFIG_SIZE as u64),
            0..VFIO_PCI_NUM_REGIONS => {
                Ok(sizes.bytes.get(index as usize).copied().unwrap_or_default())
            }
            _ => Err(invalid()),
        }
    }

    /// Region, offset and bytes of an access that may be made.
    fn access(&self, request: &Request) -> io::Result<(u32, u64, usize)> {
        let (offset, region, count) = (request.wide(0)?, request.word(8)?, request.word(12)?);
        self.region_size(region)?;
        if count > MAX_ACCESS {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        Ok((region, offset, count as usize))
    }

    /// Counts a trapped access to the window. Returns true if the window serves it.
    fn window_answers(&self, offset: u64, length: usize) -> bool {
        let bytes = offset..offset.saturating_add(length as u64);
        self.device
            .with(|model, _| model.window_access(self.node, &bytes))
    }

    fn region_read(&self, request: &Request) -> io::Result<Reply<'a>> {
        let began = Instant::now();
        let (region, offset, count) = self.access(request)?;
        let head = request.body()?.get(..16).unwrap_or_default();
        let mut data = vec![0; count];
        let node = self.node;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self
                .device
                .with(|model, _| model.config_load(node, offset, &mut data)),
            BAR_WINDOW => {
                data.fill(0xff);
                if self.window_answers(offset, count) {
                    self.device.window().read_exact_at(&mut data, offset)?;
                }
            }
            bar => self
                .device
                .with(|model, memories| model.load(node, bar, offset, &mut data, memories)),
        }
        spin_until(began, self.device.speed().access);
        Ok([head, &data].concat().into())
    }

    fn region_write(&self, request: &Request) -> io::Result<Reply<'a>> {
        let began = Instant::now();
        let (region, offset, count) = self.access(request)?;
        let data = request.rest(16)?.get(..count).ok_or_else(invalid)?;
        let node = self.node;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => {
                let is_master = self.device.with(|model, _| {
                    model.config_store(node, offset, data);
                    model.is_bus_master(node)
                });
                if !is_master {
                    // The chunk under way was begun as a bus master. The host may take its memory
                    // back when this store has ended.
                    self.device.wait_for_chunk();
                }
            }
            BAR_WINDOW => {
                if self.window_answers(offset, count) {
                    self.device.window().write_all_at(data, offset)?;
                }
            }
            bar => self
                .device
                .with(|model, memories| model.store(node, bar, offset, data, memories)),
        }
        spin_until(began, self.device.speed().access);
        Ok(request
            .body()?
            .get(..16)
            .unwrap_or_default()
            .to_vec()
            .into())
    }
}
