// SPDX-License-Identifier: MIT OR Apache-2.0

//! One node over vfio-user: regions, interrupts and memory of its client.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

use vfio_bindings::bindings::vfio::{
    vfio_region_info, vfio_region_sparse_mmap_area, VFIO_IRQ_INFO_EVENTFD,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_ERR_IRQ_INDEX, VFIO_PCI_MSIX_IRQ_INDEX,
    VFIO_PCI_NUM_IRQS, VFIO_PCI_NUM_REGIONS, VFIO_REGION_INFO_FLAG_MMAP,
    VFIO_REGION_INFO_FLAG_READ, VFIO_REGION_INFO_FLAG_WRITE,
};
use vfio_user::{
    DmaMapFlags, DmaUnmapFlags, IrqInfo, Server, ServerBackend, ServerRegion, SparseArea,
};

use crate::config::CONFIG_SIZE;
use crate::device::Device;
use crate::layout::{BAR_WINDOW, MSIX_VECTORS};

/// Serves one node to one client after the other, forever.
pub fn serve(device: Arc<Device>, node: usize, listener: UnixListener) {
    let server = Server::from_owned_fd(OwnedFd::from(listener), true, irqs(), regions(&device));
    loop {
        let mut backend = Backend {
            device: Arc::clone(&device),
            node,
            attached: false,
        };
        // The crate panics on a malformed version message; that ends this client, not the device.
        match catch_unwind(AssertUnwindSafe(|| server.run(&mut backend))) {
            Ok(Ok(())) => log::info!("node {node}: client left"),
            Ok(Err(error)) => log::warn!("node {node}: client lost: {error}"),
            Err(_) => log::error!("node {node}: client sent nonsense"),
        }
        device.with(|model, memories| model.detach(node, memories));
        let cleared = device.with_memory(node, |memory| {
            memory.clear();
            Ok(())
        });
        if let Err(error) = cleared {
            log::error!("node {node}: {error}");
        }
    }
}

fn regions(device: &Device) -> Vec<ServerRegion> {
    let sizes = device.shape().bar_sizes();
    (0..VFIO_PCI_NUM_REGIONS)
        .map(|index| {
            let size = match index {
                VFIO_PCI_CONFIG_REGION_INDEX => CONFIG_SIZE as u64,
                bar => sizes.bytes.get(bar as usize).copied().unwrap_or(0),
            };
            let mut flags = 0;
            if size > 0 {
                flags |= VFIO_REGION_INFO_FLAG_READ | VFIO_REGION_INFO_FLAG_WRITE;
            }
            // A client maps only what is listed as an area, even if that is all of it.
            let direct = index == BAR_WINDOW;
            if direct {
                flags |= VFIO_REGION_INFO_FLAG_MMAP;
            }
            ServerRegion {
                region_info: vfio_region_info {
                    argsz: size_of::<vfio_region_info>() as u32,
                    flags,
                    index,
                    size,
                    ..Default::default()
                },
                sparse_areas: direct
                    .then_some(SparseArea {
                        area: vfio_region_sparse_mmap_area { offset: 0, size },
                    })
                    .into_iter()
                    .collect(),
                mmap_fd: direct.then(|| device.window().as_raw_fd()),
            }
        })
        .collect()
}

fn irqs() -> Vec<IrqInfo> {
    (0..VFIO_PCI_NUM_IRQS)
        .map(|index| {
            let (flags, count) = match index {
                VFIO_PCI_MSIX_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, MSIX_VECTORS.into()),
                // Never signalled, but QEMU warns at every start if it cannot be.
                VFIO_PCI_ERR_IRQ_INDEX => (VFIO_IRQ_INFO_EVENTFD, 1),
                _ => (0, 0),
            };
            IrqInfo {
                index,
                flags,
                count,
            }
        })
        .collect()
}

/// Waits until an access has taken as long as it has to. Sleeping would take much longer.
fn spin_until(began: Instant, least: Duration) {
    while began.elapsed() < least {
        std::hint::spin_loop();
    }
}

/// A client of one node.
struct Backend {
    device: Arc<Device>,
    node: usize,
    attached: bool,
}

impl Backend {
    /// The crate does not tell when a client connects; its first request does.
    fn attach(&mut self) {
        if !self.attached {
            log::info!("node {}: client came", self.node);
            self.attached = true;
            self.device.with(|model, _| model.attach(self.node));
        }
    }

    /// Counts an access to the window that was not direct; says whether it is served.
    fn window_answers(&self, offset: u64, length: usize) -> bool {
        let room = self.device.shape().window_size.saturating_sub(offset);
        self.device.with(|model, _| model.window_access(self.node)) && room >= length as u64
    }
}

impl ServerBackend for Backend {
    fn region_read(&mut self, region: u32, offset: u64, data: &mut [u8]) -> io::Result<()> {
        let began = Instant::now();
        self.attach();
        let node = self.node;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self
                .device
                .with(|model, _| model.config_load(node, offset, data)),
            BAR_WINDOW => {
                data.fill(0xff);
                if self.window_answers(offset, data.len()) {
                    self.device.window().read_exact_at(data, offset)?;
                }
            }
            bar => self
                .device
                .with(|model, memories| model.load(node, bar, offset, data, memories)),
        }
        spin_until(began, self.device.speed().access);
        Ok(())
    }

    fn region_write(&mut self, region: u32, offset: u64, data: &[u8]) -> io::Result<()> {
        let began = Instant::now();
        self.attach();
        let node = self.node;
        match region {
            VFIO_PCI_CONFIG_REGION_INDEX => self
                .device
                .with(|model, _| model.config_store(node, offset, data)),
            BAR_WINDOW => {
                if self.window_answers(offset, data.len()) {
                    self.device.window().write_all_at(data, offset)?;
                }
            }
            bar => self
                .device
                .with(|model, memories| model.store(node, bar, offset, data, memories)),
        }
        spin_until(began, self.device.speed().access);
        Ok(())
    }

    fn dma_map(
        &mut self,
        flags: DmaMapFlags,
        offset: u64,
        address: u64,
        size: u64,
        fd: Option<File>,
    ) -> io::Result<()> {
        self.attach();
        log::debug!("node {}: map {size:#x} at {address:#x} {fd:?}", self.node);
        self.device.with_memory(self.node, |memory| {
            memory.map(
                address,
                size,
                fd.map(|file| (file, offset)),
                flags.contains(DmaMapFlags::READ),
                flags.contains(DmaMapFlags::WRITE),
            )
        })
    }

    fn dma_unmap(&mut self, flags: DmaUnmapFlags, address: u64, size: u64) -> io::Result<()> {
        self.attach();
        log::debug!("node {}: unmap {size:#x} at {address:#x}", self.node);
        self.device.with_memory(self.node, |memory| {
            if flags.contains(DmaUnmapFlags::UNMAP_ALL) {
                memory.clear();
            } else {
                memory.unmap(address, size);
            }
            Ok(())
        })
    }

    fn reset(&mut self) -> io::Result<()> {
        self.attach();
        self.device
            .with(|model, memories| model.reset_function(self.node, memories));
        self.device.wait_for_chunk();
        Ok(())
    }

    fn set_irqs(
        &mut self,
        index: u32,
        flags: u32,
        start: u32,
        count: u32,
        fds: Vec<File>,
    ) -> io::Result<()> {
        self.attach();
        if index != VFIO_PCI_MSIX_IRQ_INDEX {
            return Ok(());
        }
        self.device
            .with(|model, _| model.set_vectors(self.node, flags, start, count, fds))
    }
}
