// SPDX-License-Identifier: GPL-2.0

//! QEMU's ivshmem-doorbell: memory that virtual machines share, with an interrupt for each.
//!
//! It has no engine and does not detect peers, which is left to the link.
//!
//! A device has as many interrupt vectors as its server and the command line of QEMU agree on. A ring of
//! one that is not there is lost without a trace, so all but the first are used only after they have
//! interrupted.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    io::{
        poll::read_poll_timeout,
        Io, //
    },
    page::PAGE_SHIFT,
    pci,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
    time::Delta, //
};

use super::{
    geometry::{
        lanes_of,
        least_section, //
    },
    health::Health,
    layout::{
        self,
        REGION_SLOTS, //
    },
    Backend,
    Consumer,
    DevicePage,
    Doorbells,
    Geometry,
    Hardware,
    KernelDoorbell,
    LinkState,
    SegmentDoorbells, //
};
use crate::{
    kernel_ext::{
        compat::DevresBar,
        irq_mask::IrqMask,
        wakeup,
        window::Window, //
    },
    params, //
};

/// PCI device ID, of vendor 0x1af4.
pub(crate) const DEVICE_ID: u32 = 0x1110;

/// BAR0: registers.
const BAR_REGISTERS: u32 = 0;
/// BAR1: MSI-X tables; not there without doorbells.
const BAR_MSIX: u32 = 1;
/// BAR2: the shared memory.
const BAR_MEMORY: u32 = 2;

/// Bytes of BAR0.
const REGISTERS_SIZE: usize = 0x100;
/// i32, read-only: number of this peer, or negative while the server has given none.
const IV_POSITION: usize = 8;
/// u32, write: number of a peer in bits 31..16 and a vector of it in bits 15..0.
const DOORBELL: usize = 12;
/// Position of the peer's number.
const DOORBELL_PEER_SHIFT: u32 = 16;

/// The MSI-X vector of all doorbells that have no other.
pub(crate) const VECTOR_CONTROL: u16 = 0;
/// The MSI-X vector of the network interface alone.
pub(crate) const VECTOR_NETWORK: u16 = 1;
/// The MSI-X vector of segments alone.
pub(crate) const VECTOR_SEGMENTS: u16 = 2;
/// Maximum number of vectors that are used.
pub(crate) const VECTORS: u16 = 3;

/// Time in which a vector that is there interrupts.
const PROBE_TIMEOUT: Delta = Delta::from_millis(500);

/// Page entries of the tables, which no device reads.
const PAGE_CAPACITY: u32 = 1 << 18;

/// An ivshmem-doorbell device that is bound.
pub(crate) struct Ivshmem {
    registers: DevresBar<REGISTERS_SIZE>,
    window: Devres<Window>,
    window_frame: usize,
    geometry: Geometry,
    health: Health,
    /// By vector.
    masks: [Arc<IrqMask>; VECTORS as usize],
    /// By vector: it has interrupted.
    rang: [Atomic<bool>; VECTORS as usize],
    /// Sessions are offered [`VECTOR_SEGMENTS`].
    has_segment_vector: Atomic<bool>,
}

/// Returns the vector by which `doorbell` of a peer rings, where this node has [`VECTOR_NETWORK`] if
/// `has_vector`.
///
/// A server may give nodes different numbers of vectors, and each node those of the others that it has
/// itself.
fn vector_of(doorbell: KernelDoorbell, has_vector: bool) -> u16 {
    match doorbell {
        KernelDoorbell::Network if has_vector => VECTOR_NETWORK,
        KernelDoorbell::Network | KernelDoorbell::Link => VECTOR_CONTROL,
    }
}

impl Ivshmem {
    /// Maps the BARs of `pdev`, whose memory `nodes` nodes share.
    pub(crate) fn new(pdev: &pci::Device<Bound>, nodes: u32) -> Result<Self> {
        if pdev.resource_len(BAR_MSIX)? == 0 {
            dev_err!(
                pdev,
                "ivshmem-plain has no doorbells; use ivshmem-doorbell\n"
            );
            return Err(ENODEV);
        }
        let registers = pdev
            .iomap_region_sized::<REGISTERS_SIZE>(BAR_REGISTERS, c"uldma/ivshmem")?
            .into_devres()?;
        let window = Window::of_bar(pdev, BAR_MEMORY, c"uldma/window", params::window_caching())?;
        let mapped = window.access(pdev.as_ref())?;
        let window_frame = mapped.frame(0)?;

        let lanes = lanes_of(mapped.len(), nodes).inspect_err(|_| {
            dev_err!(
                pdev,
                "ivshmem_nodes={} and {} bytes: 2 to {} nodes need {} bytes each\n",
                nodes,
                mapped.len(),
                layout::MAX_NODES,
                least_section(nodes)
            );
        })?;
        let position = registers.access(pdev.as_ref())?.read32(IV_POSITION);
        if position >= nodes {
            // CAST: The register holds a signed number.
            let position = position as i32;
            dev_err!(
                pdev,
                "peer {} is not one of the ivshmem_nodes={} nodes of the link\n",
                position,
                nodes
            );
            return Err(ENODEV);
        }
        let geometry = Geometry {
            backend: Backend::Ivshmem,
            node: position,
            nodes,
            contexts: 1,
            methods: 0,
            cpus: 0,
            shadow_shift: PAGE_CAPACITY.ilog2() + u32::try_from(PAGE_SHIFT)?,
            page_capacity: PAGE_CAPACITY,
            region_capacity: REGION_SLOTS,
            endpoint_capacity: 0,
            has_streams: false,
            lanes,
            window_cached: false,
            is_optimistic: false,
            window_regions: false,
        };
        Ok(Self {
            registers,
            window,
            window_frame,
            geometry,
            health: Health::new(),
            masks: [IrqMask::new()?, IrqMask::new()?, IrqMask::new()?],
            rang: [const { Atomic::new(false) }; VECTORS as usize],
            has_segment_vector: Atomic::new(false),
        })
    }

    /// Rings one of this node's own vectors, which interrupts if it is there.
    pub(crate) fn probe_vector(&self, dev: &Device<Bound>, vector: u16) -> Result {
        self.ring_vector(dev, self.geometry.node, vector)
    }

    /// Offers [`VECTOR_SEGMENTS`] to peers, if it interrupts soon after it was probed. Sessions begin
    /// afterwards.
    pub(crate) fn offer_segment_vector(&self) {
        let rang = read_poll_timeout(
            || Ok(self.has_rung(VECTOR_SEGMENTS)),
            |rang| *rang,
            wakeup::cost(),
            PROBE_TIMEOUT,
        );
        self.has_segment_vector.store(rang.is_ok(), Relaxed);
    }

    /// Notes an interrupt of a vector.
    pub(crate) fn vector_rang(&self, vector: u16) {
        if let Some(rang) = self.rang.get(usize::from(vector)) {
            rang.store(true, Relaxed);
        }
    }

    fn has_rung(&self, vector: u16) -> bool {
        let rang = self.rang.get(usize::from(vector));
        rang.is_some_and(|rang| rang.load(Relaxed))
    }

    /// Returns the mask of a vector, which its handler needs.
    pub(crate) fn mask_of(&self, vector: u16) -> Result<&Arc<IrqMask>> {
        self.masks.get(usize::from(vector)).ok_or(EINVAL)
    }

    fn ring_vector(&self, dev: &Device<Bound>, node: u32, vector: u16) -> Result {
        let bar = self.registers.access(dev)?;
        bar.write32(node << DOORBELL_PEER_SHIFT | u32::from(vector), DOORBELL);
        Ok(())
    }
}

impl Hardware for Ivshmem {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn window<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a Window> {
        self.window.access(dev)
    }

    fn frame(&self, page: DevicePage) -> Option<usize> {
        let DevicePage::Window(node, offset) = page else {
            return None;
        };
        let offset = self.in_section(node, offset).ok()?;
        Some(self.window_frame + (offset >> PAGE_SHIFT))
    }

    fn link(&self, _dev: &Device<Bound>, peer: u32) -> Result<LinkState> {
        self.geometry.check_peer(peer)?;
        Ok(LinkState::ALWAYS_UP)
    }

    fn ring(&self, dev: &Device<Bound>, peer: u32, doorbell: KernelDoorbell) -> Result {
        self.geometry.check_peer(peer)?;
        let has_vector = self.has_rung(VECTOR_NETWORK);
        self.ring_vector(dev, peer, vector_of(doorbell, has_vector))
    }

    fn ring_segment(
        &self,
        dev: &Device<Bound>,
        peer: u32,
        _doorbell: SegmentDoorbells,
        has_vector: bool,
    ) -> Result {
        self.geometry.check_peer(peer)?;
        let vector = if has_vector {
            VECTOR_SEGMENTS
        } else {
            VECTOR_CONTROL
        };
        self.ring_vector(dev, peer, vector)
    }

    fn has_segment_vector(&self) -> bool {
        self.has_segment_vector.load(Relaxed)
    }

    fn network_doorbell(&self) -> KernelDoorbell {
        if self.has_rung(VECTOR_NETWORK) {
            KernelDoorbell::Network
        } else {
            KernelDoorbell::Link
        }
    }

    fn network_vector(&self) -> Option<u32> {
        let has_vector = self.has_rung(VECTOR_NETWORK);
        Some(vector_of(KernelDoorbell::Network, has_vector).into())
    }

    fn unmask(&self, _dev: &Device<Bound>, consumer: Consumer) -> Result {
        let own = match consumer {
            Consumer::Link => VECTOR_CONTROL,
            Consumer::Network => VECTOR_NETWORK,
            Consumer::Segments => VECTOR_SEGMENTS,
        };
        self.mask_of(own)?.unmask();
        // Peers that lack the other vector ring this one.
        self.mask_of(VECTOR_CONTROL)?.unmask();
        Ok(())
    }

    fn take_doorbells(&self, _dev: &Device<Bound>) -> Result<Doorbells> {
        Ok(Doorbells::ALL)
    }
}

#[kunit_tests(uldma_hw_ivshmem)]
mod tests {
    use super::*;

    #[test]
    fn the_network_rings_the_vector_that_both_nodes_have() {
        assert_eq!(vector_of(KernelDoorbell::Network, true), VECTOR_NETWORK);
        for (doorbell, has_vector) in [
            (KernelDoorbell::Network, false),
            (KernelDoorbell::Link, true),
            (KernelDoorbell::Link, false),
        ] {
            assert_eq!(vector_of(doorbell, has_vector), VECTOR_CONTROL);
        }
    }
}
