// SPDX-License-Identifier: GPL-2.0

//! The uldma adapter: `Documentation/uldma/device.rst`.

use kernel::{
    device::{
        Bound,
        Device, //
    },
    devres::Devres,
    new_mutex,
    page::{
        PAGE_SHIFT,
        PAGE_SIZE, //
    },
    pci,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    geometry::lanes_of,
    health::Health,
    layout::{
        self,
        ctx,
        reg,
        Array,
        Block,
        ContextControl,
        ContextRegister,
        Control,
        ControlRegister,
        EventCauses,
        Invalidation,
        KernelAddress,
        Register,
        Running,
        Version,
        CONTEXT_BLOCKS,
        MAX_NODES,
        VERSION, //
    },
    registers::{
        wake,
        Registers, //
    },
    Backend,
    Consumer,
    ContextCounters,
    ContextSetup,
    DevicePage,
    Doorbells,
    Geometry,
    Hardware,
    KernelDoorbell,
    KernelQueues,
    LinkState,
    RegionOffset,
    SegmentDoorbells,
    TableSetup, //
};
use crate::{
    kernel_ext::{
        compat::{
            DevresBar,
            IrqVectors, //
        },
        errno::{
            enotconn,
            eopnotsupp, //
        },
        irq_mask::IrqMask,
        pci::clear_master,
        window::Window, //
    },
    params,
    uapi, //
};

mod answer;
mod wait;

use wait::wait_ready;

/// The registers of one context.
type ContextBlock = Block<ControlRegister, ContextRegister>;

/// A control register that holds a `T`.
type ControlAt<T, A> = Register<ControlRegister, T, A>;

/// Control registers of which each node has one.
type OfNodes<T, A> = Array<ControlRegister, T, A, MAX_NODES>;

/// log2 of the maximum number of page entries in use.
const MAX_PAGE_SHIFT: u32 = 24;

/// Number of contexts for the kernel's queues; one less without the network's.
const KERNEL_QUEUES: u32 = 3;

/// An adapter that is bound.
#[pin_data]
pub(crate) struct Adapter {
    registers: DevresBar<{ layout::BAR_CONTROL_SIZE }>,
    window: Devres<Window>,
    geometry: Geometry,
    /// Number of contexts, including those that are not for programs.
    contexts: u32,
    /// The last contexts are for the kernel's queues.
    queues: u32,
    /// The network interface has an interrupt of its own.
    has_network_vector: bool,
    /// By vector.
    masks: [Arc<IrqMask>; layout::MSIX_VECTORS as usize],
    /// The pages of the contexts' registers, if the kernel has queues to wake.
    context_pages: Option<DevresBar>,
    /// First frames of the BARs that processes map.
    context_frame: usize,
    shadow_frame: usize,
    window_frame: usize,
    /// Held over the register writes of one start of the kernel's context.
    #[pin]
    start: Mutex<()>,
    /// Doorbell bits of segments do not interrupt.
    #[pin]
    are_segments_masked: Mutex<bool>,
    /// Held during an invalidation, so that the pending count belongs to it.
    #[pin]
    invalidate: Mutex<()>,
    health: Health,
}

/// The frame of the first page of `bar`, and its bytes.
fn frames(pdev: &pci::Device<Bound>, bar: u32) -> Result<(usize, u64)> {
    let start = usize::try_from(pdev.resource_start(bar)?)?;
    Ok((start >> PAGE_SHIFT, pdev.resource_len(bar)?))
}

impl Adapter {
    /// Maps the BARs of `pdev`, checks version and geometry, and resets it.
    pub(crate) fn new(pdev: &pci::Device<Bound>) -> Result<impl PinInit<Self>> {
        let registers = pdev
            .iomap_region_sized::<{ layout::BAR_CONTROL_SIZE }>(
                layout::BAR_CONTROL,
                c"uldma/control",
            )?
            .into_devres()?;
        let window = Window::of_bar(
            pdev,
            layout::BAR_WINDOW,
            c"uldma/window",
            params::window_caching(),
        )?;
        let bar = registers.access(pdev.as_ref())?;

        if bar.read(reg::ID) != layout::ID_MAGIC {
            dev_err!(pdev, "not an uldma adapter\n");
            return Err(ENODEV);
        }
        let version = bar.read(reg::VERSION);
        if version.get(Version::MAJOR) != VERSION.get(Version::MAJOR) {
            dev_err!(
                pdev,
                "adapter has version {:#x}, this driver supports {:#x}\n",
                version.bits(),
                VERSION.bits()
            );
            return Err(ENODEV);
        }
        bar.write(reg::CONTROL, Control::RESET);
        wait_ready(bar)?;

        let page_shift = u32::try_from(PAGE_SHIFT)?;
        bar.write(reg::PAGE_SHIFT, page_shift);
        if bar.read(reg::PAGE_SHIFT) != page_shift {
            dev_err!(
                pdev,
                "adapter does not support pages of {} bytes\n",
                PAGE_SIZE
            );
            return Err(eopnotsupp());
        }

        let contexts = bar.read(reg::CONTEXTS).min(layout::MAX_CONTEXTS);
        let methods = bar.read(reg::METHODS);
        let shadow_shift = bar.read(reg::SHADOW_SHIFT);
        let (node, nodes) = (bar.read(reg::NODE), bar.read(reg::NODES));
        let section = bar.try_read(reg::WINDOW_SIZE)?;
        let (context_frame, context_len) = frames(pdev, layout::BAR_CONTEXT)?;
        let (shadow_frame, shadow_len) = frames(pdev, layout::BAR_SHADOW)?;
        let mapped = window.access(pdev.as_ref())?;
        let (window_frame, window_len) = (mapped.frame(0)?, mapped.len());

        let fits = |count: u64, shift: u32, len: u64| {
            shift < 48 && count.checked_mul(1 << shift).is_some_and(|all| all <= len)
        };
        if contexts < 2
            || shadow_shift <= page_shift
            || !fits(contexts.into(), page_shift, context_len)
            || !fits(contexts.into(), shadow_shift, shadow_len)
            || node >= nodes
            || !lanes_of(window_len, nodes).is_ok_and(|lanes| lanes.section() == section)
        {
            dev_err!(
                pdev,
                "adapter's registers do not match the sizes of its BARs\n"
            );
            return Err(EIO);
        }
        let lanes = lanes_of(window_len, nodes)?;

        let has_queue = methods & 1 << uapi::ULDMA_METHOD_QUEUE != 0;
        let sends_packets = params::network() != 0;
        let queues = match contexts.saturating_sub(2) {
            _ if !has_queue => 0,
            left if left >= KERNEL_QUEUES && sends_packets => KERNEL_QUEUES,
            left if left >= KERNEL_QUEUES - 1 => KERNEL_QUEUES - 1,
            _ => 0,
        };
        let context_pages = if queues > 0 {
            let bar = pdev.iomap_region(layout::BAR_CONTEXT, c"uldma/context")?;
            Some(bar.into_devres()?)
        } else {
            None
        };
        let geometry = Geometry {
            backend: Backend::Adapter,
            node,
            nodes,
            contexts: contexts - queues,
            methods,
            cpus: bar.read(reg::CPUS),
            shadow_shift,
            // As many as a directory of a reasonable size can name.
            page_capacity: 1 << (shadow_shift - page_shift).min(MAX_PAGE_SHIFT),
            region_capacity: layout::REGION_SLOTS,
            endpoint_capacity: if has_queue { layout::MAX_ENDPOINTS } else { 0 },
            has_streams: has_queue,
            lanes,
            window_cached: false,
            is_optimistic: true,
            window_regions: true,
        };
        let masks = [IrqMask::new()?, IrqMask::new()?, IrqMask::new()?];
        Ok(pin_init!(Self {
            registers,
            window,
            geometry,
            contexts,
            queues,
            has_network_vector: u32::from(layout::VECTOR_NETWORK) < IrqVectors::MOST,
            masks,
            context_pages,
            context_frame,
            shadow_frame,
            window_frame,
            start <- new_mutex!((), "uldma::Adapter::start"),
            are_segments_masked <- new_mutex!(false, "uldma::Adapter::are_segments_masked"),
            invalidate <- new_mutex!((), "uldma::Adapter::invalidate"),
            health: Health::new(),
        }))
    }

    /// Returns true if the network interface has an interrupt of its own.
    pub(crate) fn has_network_vector(&self) -> bool {
        self.has_network_vector
    }

    /// Returns the mask of a vector, which its handler needs.
    pub(crate) fn mask_of(&self, vector: u16) -> Result<&Arc<IrqMask>> {
        self.masks.get(usize::from(vector)).ok_or(EINVAL)
    }

    /// Masks or unmasks the doorbells of segments, unless they are.
    fn set_segments_masked(&self, dev: &Device<Bound>, masked: bool) -> Result {
        let bar = self.registers.access(dev)?;
        let mut are_masked = self.are_segments_masked.lock();
        if *are_masked != masked {
            let bits = SegmentDoorbells::ALL.bits();
            bar.write(reg::DOORBELL_MASK, if masked { bits } else { 0 });
            *are_masked = masked;
        }
        Ok(())
    }

    fn invalidate(&self, dev: &Device<Bound>, what: Invalidation) -> Result {
        let _guard = self.invalidate.lock();
        let bar = self.answering(dev)?;
        bar.try_write(reg::INVALIDATE, what)?;
        self.wait_clear(dev, || Ok(bar.read(reg::INVALIDATE_PENDING)), u32::MAX)
    }

    fn ring_bits(&self, dev: &Device<Bound>, peer: u32, bits: u32) -> Result {
        let doorbell = self.of_peer(reg::PEER_DOORBELL, peer)?;
        self.registers.access(dev)?.try_write(doorbell, bits)
    }

    /// Checks the number of a context, which may be one of the kernel's.
    fn context(&self, context: u32) -> Result<usize> {
        if context >= self.contexts {
            return Err(EINVAL);
        }
        Ok(usize::try_from(context)?)
    }

    /// Returns the registers of a context, which may be one of the kernel's.
    fn block(&self, context: u32) -> Result<ContextBlock> {
        CONTEXT_BLOCKS.at(self.context(context)?).ok_or(EINVAL)
    }

    /// Returns the register of `peer` in `array`.
    fn of_peer<T, A>(&self, array: OfNodes<T, A>, peer: u32) -> Result<ControlAt<T, A>> {
        self.geometry.check_peer(peer)?;
        array.at(usize::try_from(peer)?).ok_or(EINVAL)
    }
}

/// Returns the vector of a doorbell.
fn vector_of(doorbell: KernelDoorbell) -> u16 {
    match doorbell {
        KernelDoorbell::Link => layout::VECTOR_CONTROL,
        KernelDoorbell::Network => layout::VECTOR_NETWORK,
    }
}

/// The errno for a refusal of the kernel's context.
fn refusal(status: u64) -> Error {
    match u32::try_from(status).unwrap_or(u32::MAX) {
        uapi::ULDMA_DMA_BAD_SIZE | uapi::ULDMA_DMA_BOUNDS => EINVAL,
        uapi::ULDMA_DMA_NO_RIGHT | uapi::ULDMA_DMA_REMOTE | uapi::ULDMA_DMA_REVOKED => EACCES,
        uapi::ULDMA_DMA_NOT_VALID => ENOENT,
        uapi::ULDMA_DMA_QUEUE_FULL => EBUSY,
        uapi::ULDMA_DMA_LINK_DOWN => enotconn(),
        uapi::ULDMA_DMA_DISABLED => ENODEV,
        _ => EIO,
    }
}

impl Hardware for Adapter {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn health(&self) -> &Health {
        &self.health
    }

    fn check_answers(&self, dev: &Device<Bound>) -> Result {
        self.answering(dev).map(drop)
    }

    fn is_enabled(&self, dev: &Device<Bound>) -> Result<bool> {
        let bar = self.registers.access(dev)?;
        let control = self.answer(dev, || Ok(bar.read(reg::CONTROL)))?;
        Ok(control.contains(Control::ENABLE))
    }

    fn has_caught_up(&self, dev: &Device<Bound>) -> Result<bool> {
        let bar = self.registers.access(dev)?;
        if self.answer(dev, || Ok(bar.read(reg::INVALIDATE_PENDING)))? != 0 {
            return Ok(false);
        }
        for context in 0..self.contexts {
            let control = ctx::CONTROL.of(self.block(context)?);
            let control = self.answer(dev, || bar.try_read(control))?;
            // An enabled context may be busy for any time.
            if control.contains(ContextControl::BUSY) && !control.contains(ContextControl::ENABLE) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn progress(&self, dev: &Device<Bound>) -> Result<u64> {
        let bar = self.registers.access(dev)?;
        let mut progress = 0u64;
        for context in 0..self.contexts {
            let block = self.block(context)?;
            progress = progress.wrapping_add(bar.try_read(ctx::BYTES.of(block))?);
            // Programs get tickets from a device whose engine does nothing.
            if context >= self.geometry.contexts {
                progress = progress.wrapping_add(bar.try_read(ctx::TICKET.of(block))?);
            }
        }
        Ok(progress)
    }

    fn window<'a>(&'a self, dev: &'a Device<Bound>) -> Result<&'a Window> {
        self.window.access(dev)
    }

    fn frame(&self, page: DevicePage) -> Option<usize> {
        match page {
            DevicePage::Shadow { context, entry } => {
                if context >= self.geometry.contexts || entry >= self.geometry.page_capacity {
                    return None;
                }
                let slice = usize::try_from(context).ok()?
                    << (usize::try_from(self.geometry.shadow_shift).ok()? - PAGE_SHIFT);
                Some(self.shadow_frame + slice + usize::try_from(entry).ok()?)
            }
            DevicePage::Context(context) => {
                if context >= self.geometry.contexts {
                    return None;
                }
                Some(self.context_frame + usize::try_from(context).ok()?)
            }
            DevicePage::Window(node, offset) => {
                let offset = self.in_section(node, offset).ok()?;
                Some(self.window_frame + (offset >> PAGE_SHIFT))
            }
        }
    }

    fn link(&self, dev: &Device<Bound>, peer: u32) -> Result<LinkState> {
        let generation = self.of_peer(reg::LINK_GENERATION, peer)?;
        let bar = self.registers.access(dev)?;
        let links = self.answer(dev, || Ok(bar.read(reg::LINKS)))?;
        Ok(LinkState {
            up: links & 1 << peer != 0,
            generation: self.answer(dev, || bar.try_read(generation))?,
        })
    }

    fn ring(&self, dev: &Device<Bound>, peer: u32, doorbell: KernelDoorbell) -> Result {
        self.ring_bits(dev, peer, doorbell.bit())
    }

    fn ring_segment(
        &self,
        dev: &Device<Bound>,
        peer: u32,
        doorbell: SegmentDoorbells,
        _has_vector: bool,
    ) -> Result {
        self.ring_bits(dev, peer, doorbell.bits())
    }

    fn network_doorbell(&self) -> KernelDoorbell {
        if self.has_network_vector {
            KernelDoorbell::Network
        } else {
            KernelDoorbell::Link
        }
    }

    fn network_vector(&self) -> Option<u32> {
        Some(vector_of(self.network_doorbell()).into())
    }

    fn take_doorbells(&self, dev: &Device<Bound>) -> Result<Doorbells> {
        let bar = self.registers.access(dev)?;
        let bits = bar.read(reg::DOORBELL);
        bar.write(reg::DOORBELL, bits);
        Ok(Doorbells::of_bits(bits))
    }

    fn unmask(&self, dev: &Device<Bound>, consumer: Consumer) -> Result {
        let doorbell = match consumer {
            Consumer::Segments => return self.set_segments_masked(dev, false),
            Consumer::Link => KernelDoorbell::Link,
            Consumer::Network => self.network_doorbell(),
        };
        self.mask_of(vector_of(doorbell)).map(|mask| mask.unmask())
    }

    fn mask_segments(&self, dev: &Device<Bound>) -> Result {
        self.set_segments_masked(dev, true)
    }

    fn enable(&self, dev: &Device<Bound>, tables: &TableSetup) -> Result {
        let bar = self.registers.access(dev)?;
        bar.try_write(reg::PAGE_DIRECTORY, tables.pages)?;
        bar.write(reg::PAGE_CAPACITY, tables.page_capacity);
        bar.try_write(reg::REGION_DIRECTORY, tables.regions)?;
        bar.write(reg::REGION_CAPACITY, tables.region_capacity);
        if tables.endpoint_capacity > 0 {
            bar.try_write(reg::ENDPOINT_DIRECTORY, tables.endpoints)?;
            bar.write(reg::ENDPOINT_CAPACITY, tables.endpoint_capacity);
        }
        if tables.touch_page != 0 {
            bar.try_write(reg::TOUCH_PAGE, tables.touch_page)?;
            bar.try_write(reg::PAGE_REQUESTS, tables.page_requests)?;
        }
        bar.write(reg::CONTROL, Control::ENABLE);
        self.health.recovered(dev);
        Ok(())
    }

    fn reset(&self, dev: &Device<Bound>) -> Result {
        let bar = self.registers.access(dev)?;
        bar.write(reg::CONTROL, Control::RESET);
        wait_ready(bar)
    }

    fn quiesce(&self, dev: &Device<Bound>) {
        // The adapter was created with a PCI device.
        if let Ok(pdev) = dev.try_into() {
            clear_master(pdev);
        }
    }

    fn take_events(&self, dev: &Device<Bound>) -> Result<EventCauses> {
        let bar = self.registers.access(dev)?;
        let events = self.answer(dev, || Ok(bar.read(reg::EVENT)))?;
        bar.write(reg::EVENT, events);
        Ok(events)
    }

    fn invalidate_region(&self, dev: &Device<Bound>, region: u32) -> Result {
        self.invalidate(dev, Invalidation::new(Invalidation::REGION, region))
    }

    fn invalidate_space(&self, dev: &Device<Bound>, space: u32) -> Result {
        self.invalidate(dev, Invalidation::new(Invalidation::SPACE, space))
    }

    fn invalidate_endpoint(&self, dev: &Device<Bound>, endpoint: u32) -> Result {
        self.invalidate(dev, Invalidation::new(Invalidation::ENDPOINT, endpoint))
    }

    fn start(
        &self,
        dev: &Device<Bound>,
        src: RegionOffset,
        dst: RegionOffset,
        length: u64,
    ) -> Result<u64> {
        let address = |place: RegionOffset| {
            KernelAddress::NONE
                .try_with(KernelAddress::REGION, place.region)?
                .try_with(KernelAddress::OFFSET, place.offset)
        };
        let (src, dst) = (address(src).ok_or(EINVAL)?, address(dst).ok_or(EINVAL)?);
        let bar = self.registers.access(dev)?;
        let _guard = self.start.lock();
        bar.try_write(reg::DMA_SOURCE, src)?;
        bar.try_write(reg::DMA_DESTINATION, dst)?;
        bar.try_write(reg::DMA_SIZE, length)?;
        let result = bar.try_read(reg::DMA_STATUS)?;
        if answer::is_doubtful(result) {
            self.check_answers(dev)?;
        }
        u64::try_from(result).map_err(|_| refusal(result.unsigned_abs()))
    }

    fn kernel_queues(&self) -> Option<KernelQueues> {
        self.context_pages.as_ref().map(|_| KernelQueues {
            copies: self.contexts - 1,
            invalidations: self.contexts - 2,
            packets: params::network_engine()
                .filter(|_| self.queues == KERNEL_QUEUES)
                .map(|_| self.contexts - KERNEL_QUEUES),
        })
    }

    fn enable_context(&self, dev: &Device<Bound>, context: u32, setup: &ContextSetup) -> Result {
        let block = self.block(context)?;
        let bar = self.answering(dev)?;
        bar.try_write(ctx::SPACE.of(block), setup.space)?;
        bar.try_write(ctx::STATUS_PAGE.of(block), setup.status_page)?;
        bar.try_write(ctx::METHODS.of(block), setup.methods)?;
        bar.try_write(ctx::KEY.of(block), setup.key)?;
        bar.try_write(ctx::QUEUE.of(block), setup.queue)?;
        let control = ContextControl::ENABLE
            | ContextControl::NO_DATA.when(setup.no_data)
            | ContextControl::INTERRUPT_ALWAYS.when(setup.interrupt_always)
            | ContextControl::PRIVILEGED.when(setup.privileged);
        bar.try_write(ctx::CONTROL.of(block), control)
    }

    fn disable_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        let control = ctx::CONTROL.of(self.block(context)?);
        let bar = self.answering(dev)?;
        bar.try_write(control, ContextControl::NONE)?;
        let read = || Ok(bar.try_read(control)?.bits());
        self.wait_clear(dev, read, ContextControl::BUSY.bits())
    }

    fn wake_context(&self, dev: &Device<Bound>, context: u32) -> Result {
        let pages = self.context_pages.as_ref().ok_or_else(eopnotsupp)?;
        let page = self.context(context)? << PAGE_SHIFT;
        wake(pages.access(dev)?, page)
    }

    fn sched_notify(&self, dev: &Device<Bound>, cpu: u32, context: Option<u32>) -> Result {
        let bar = self.registers.access(dev)?;
        let running = Running::NONE
            .with(Running::CPU, cpu)
            .with(Running::CONTEXT, context.unwrap_or(0));
        bar.try_write(reg::RUNNING, running)
    }

    fn bad_keys(&self, dev: &Device<Bound>, context: u32) -> Result<u32> {
        let bar = self.registers.access(dev)?;
        let bad_keys = ctx::BAD_KEYS.of(self.block(context)?);
        self.answer(dev, || bar.try_read(bad_keys))
    }

    fn arm_context(&self, dev: &Device<Bound>, context: u32, completed: u64) -> Result {
        let bar = self.registers.access(dev)?;
        bar.try_write(ctx::ARM.of(self.block(context)?), completed)
    }

    fn last_ticket(&self, dev: &Device<Bound>, context: u32) -> Result<u64> {
        let bar = self.registers.access(dev)?;
        let ticket = ctx::TICKET.of(self.block(context)?);
        self.answer(dev, || bar.try_read(ticket))
    }

    fn context_counters(&self, dev: &Device<Bound>, context: u32) -> Result<ContextCounters> {
        let bar = self.answering(dev)?;
        let block = self.block(context)?;
        let read = |counter: Register<_, u64, _>| bar.try_read(counter.of(block));
        Ok(ContextCounters {
            shadow_stores: read(ctx::SHADOW_STORES)?,
            shadow_loads: read(ctx::SHADOW_LOADS)?,
            page_stores: read(ctx::PAGE_STORES)?,
            page_loads: read(ctx::PAGE_LOADS)?,
            initiations: read(ctx::INITIATIONS)?,
            refused: read(ctx::REFUSED)?,
            bytes: read(ctx::BYTES)?,
            bad_keys: bar.try_read(ctx::BAD_KEYS.of(block))?,
        })
    }
}
