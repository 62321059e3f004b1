// SPDX-License-Identifier: GPL-2.0

//! Ethernet devices.
//!
//! A [`NetDevice`] is allocated before its interrupts can come, and freed after them; between, a
//! [`Registration`] makes it visible for as long as the device below it is bound.

use core::{
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
    slice, //
};

use kernel::{
    bindings,
    device::{
        Bound,
        Device, //
    },
    error::{
        from_result,
        to_result, //
    },
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};

use super::{
    napi::Poll,
    skb::{
        MacAddress,
        SkBuff, //
    }, //
};

unsafe extern "C" {
    fn uldma_netdev_new(
        ops: *const RawOps,
        driver: *mut c_void,
        queues: u32,
        max_frame: u32,
    ) -> *mut c_void;
    fn uldma_netdev_free(dev: *mut c_void);
    fn uldma_netdev_register(
        dev: *mut c_void,
        parent: *mut bindings::device,
        number: u32,
        address: *const [u8; 6],
    ) -> c_int;
    fn uldma_netdev_unregister(dev: *mut c_void);
    fn uldma_netdev_set_carrier(dev: *mut c_void, on: u32);
    fn uldma_netdev_schedule(dev: *mut c_void, queue: u32) -> u32;
    fn uldma_netdev_stop_queue(dev: *mut c_void, queue: u32);
    fn uldma_netdev_wake_queue(dev: *mut c_void, queue: u32);
    fn uldma_netdev_sent(dev: *mut c_void, queue: u32, sent: u32, completed: u32) -> u32;
    fn uldma_netdev_reset_sent(dev: *mut c_void, queue: u32);
}

/// Bytes of the name of a counter.
pub(crate) const COUNTER_NAME: usize = 32;

/// A name of a counter, filled up by zeros.
pub(crate) type CounterName = [u8; COUNTER_NAME];

/// The offloads of packets for one address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Offloads(u32);

impl Offloads {
    /// Checksums may be left to the receiver.
    pub(crate) const CHECKSUM: Self = Self(1);
    /// Packets may be longer than the MTU, for the receiver to segment.
    pub(crate) const SEGMENTATION: Self = Self(2);
    /// Both.
    pub(crate) const ALL: Self = Self(3);

    /// Returns the offloads that either has.
    pub(crate) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the offloads of these bits, without those that are not known.
    pub(crate) fn from_bits(bits: u32) -> Self {
        Self(bits & Self::ALL.0)
    }

    /// Returns a bit for each offload.
    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    /// Returns true if all of `other` are there.
    pub(crate) fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The counters of a device since it was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    pub(crate) rx_errors: u64,
    pub(crate) tx_errors: u64,
    pub(crate) rx_dropped: u64,
    pub(crate) tx_dropped: u64,
    pub(crate) multicast: u64,
}

/// The counters of one queue of each direction since the device was made.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct QueueStats {
    pub(crate) rx_packets: u64,
    pub(crate) tx_packets: u64,
    pub(crate) rx_bytes: u64,
    pub(crate) tx_bytes: u64,
    /// Number of times that the queue stopped for lack of room.
    pub(crate) tx_stop: u64,
}

/// A device whose packets a driver sends and receives.
///
/// All methods but `open`, `stop` and `vector` are called with bottom halves disabled, or in
/// contexts that must not sleep.
pub(crate) trait Driver: Send + Sync + Sized + 'static {
    /// Prepares for packets; the administrator has set the device up. May sleep.
    fn open(&self, handle: Handle<'_>) -> Result;

    /// The reverse of [`Driver::open`]. Neither `transmit` nor `poll` are called from before it on.
    /// May sleep.
    fn stop(&self, handle: Handle<'_>);

    /// Sends a packet, or drops it.
    fn transmit(&self, handle: Handle<'_>, skb: SkBuff);

    /// Returns the MSI-X vector of the device below whose interrupts have queues polled, if there is
    /// one. May sleep.
    fn vector(&self) -> Option<u32>;

    /// Returns the number of the queue for packets to `destination`.
    fn select_queue(&self, destination: MacAddress) -> u32;

    /// Returns what packets to `destination` may leave to the receiver.
    fn offloads(&self, destination: MacAddress) -> Offloads;

    /// Receives packets of queue `queue`. Returns their number: the budget of the poll for being
    /// polled again, or less after [`Poll::complete`].
    fn poll(&self, handle: Handle<'_>, queue: u32, poll: Poll<'_>) -> u32;

    /// Schedules the queues that have packets, while a processor has nothing else to do. Returns
    /// false if no queue waits for packets: then this is not called before the next
    /// [`Poll::complete_and_wait`].
    fn poll_idle(&self, handle: Handle<'_>) -> bool;

    /// Returns the counters.
    fn stats(&self) -> Stats;

    /// Returns the counters of queue `queue`; zeros if there is no such queue.
    fn queue_stats(&self, queue: u32) -> QueueStats;

    /// Returns the names of more counters, always the same.
    fn counter_names(&self) -> &[CounterName];

    /// Calls `put` with the value of each of these counters.
    fn counter_values(&self, put: &mut dyn FnMut(u64));
}

/// Bytes of one queue that are on their way, which its owner counts.
#[derive(Debug, Default)]
pub(crate) struct InFlight(u32);

/// A device that is registered, and the bound device below it, during a call.
#[derive(Clone, Copy)]
pub(crate) struct Handle<'a> {
    dev: NonNull<c_void>,
    parent: &'a Device<Bound>,
}

impl<'a> Handle<'a> {
    /// Returns the bound device below.
    pub(crate) fn parent(self) -> &'a Device<Bound> {
        self.parent
    }

    /// Has the stack send no more packets of `queue` until it is woken.
    pub(crate) fn stop_queue(self, queue: u32) {
        // SAFETY: The device is alive; the number is checked.
        unsafe { uldma_netdev_stop_queue(self.dev.as_ptr(), queue) };
    }

    /// Ends [`Handle::stop_queue`].
    pub(crate) fn wake_queue(self, queue: u32) {
        // SAFETY: As above.
        unsafe { uldma_netdev_wake_queue(self.dev.as_ptr(), queue) };
    }

    /// Notes that `sent` bytes are on their way in `queue`, and that `completed` of those before have
    /// arrived. Returns true if the stack sends no more until more of them have: byte queue limits.
    pub(crate) fn sent(
        self,
        queue: u32,
        in_flight: &mut InFlight,
        sent: u32,
        completed: u32,
    ) -> bool {
        // The stack ends the kernel if more completes than was sent.
        let completed = completed.min(in_flight.0);
        in_flight.0 = (in_flight.0 - completed).saturating_add(sent);
        // SAFETY: As above.
        unsafe { uldma_netdev_sent(self.dev.as_ptr(), queue, sent, completed) != 0 }
    }

    /// Has `queue` polled soon. Returns false if it is being polled already, and polled again then.
    pub(crate) fn schedule(self, queue: u32) -> bool {
        // SAFETY: As above.
        unsafe { uldma_netdev_schedule(self.dev.as_ptr(), queue) != 0 }
    }
}

/// `struct uldma_netdev_ops`.
#[repr(C)]
struct RawOps {
    open: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> c_int,
    stop: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void),
    transmit: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, *mut c_void),
    vector: unsafe extern "C" fn(*mut c_void) -> c_int,
    select_queue: unsafe extern "C" fn(*mut c_void, *const u8) -> u32,
    offloads: unsafe extern "C" fn(*mut c_void, *const u8) -> u32,
    poll: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void, u32, *mut c_void, u32) -> u32,
    poll_idle: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_void) -> u32,
    stats: unsafe extern "C" fn(*mut c_void, *mut c_void),
    queue_stats: unsafe extern "C" fn(*mut c_void, u32, *mut c_void),
    counters: unsafe extern "C" fn(*mut c_void) -> u32,
    counter_names: unsafe extern "C" fn(*mut c_void, *mut u8),
    counter_values: unsafe extern "C" fn(*mut c_void, *mut u64),
}

/// An Ethernet device of the driver `T`.
///
/// # Invariants
///
/// `dev` was made by `uldma_netdev_new()` with `driver`, and is freed by `drop` only. It is
/// registered while `registered` is true.
#[pin_data(PinnedDrop)]
pub(crate) struct NetDevice<T: Driver> {
    dev: NonNull<c_void>,
    driver: Arc<T>,
    #[pin]
    registered: Mutex<bool>,
}

// SAFETY: A `net_device` may be used from any thread, and the driver is `Send`.
unsafe impl<T: Driver> Send for NetDevice<T> {}
// SAFETY: As above, also from many at once; the driver is `Sync`.
unsafe impl<T: Driver> Sync for NetDevice<T> {}

impl<T: Driver> NetDevice<T> {
    const OPS: RawOps = RawOps {
        open: Self::open,
        stop: Self::stop,
        transmit: Self::transmit,
        vector: Self::vector,
        select_queue: Self::select_queue,
        offloads: Self::offloads,
        poll: Self::poll,
        poll_idle: Self::poll_idle,
        stats: Self::stats,
        queue_stats: Self::queue_stats,
        counters: Self::counters,
        counter_names: Self::counter_names,
        counter_values: Self::counter_values,
    };

    /// Creates a device of `queues` queues for packets of up to `max_frame` bytes, headers included.
    ///
    /// # Errors
    ///
    /// `EINVAL` for frames that are too short for Ethernet, or without a queue; `ENOMEM`.
    pub(crate) fn new(driver: Arc<T>, queues: u32, max_frame: u32) -> Result<Arc<Self>> {
        /// `ETH_FRAME_LEN`.
        const SHORTEST: u32 = 1514;
        if queues == 0 || max_frame < SHORTEST {
            return Err(EINVAL);
        }
        let data = ptr::from_ref::<T>(&driver).cast_mut().cast();
        // SAFETY: The operations are static and for a `T`, which lives as long as the device.
        let dev = unsafe { uldma_netdev_new(&Self::OPS, data, queues, max_frame) };
        let dev = NonNull::new(dev).ok_or(ENOMEM)?;
        // INVARIANT: It was made just now, and is not registered.
        let this = pin_init!(Self {
            dev,
            driver,
            registered <- new_mutex!(false, "uldma::NetDevice::registered"),
        });
        Arc::pin_init(this, GFP_KERNEL).inspect_err(|_| {
            // SAFETY: There is no `NetDevice` that would free it.
            unsafe { uldma_netdev_free(dev.as_ptr()) };
        })
    }

    /// Returns the driver.
    pub(crate) fn driver(&self) -> &T {
        &self.driver
    }

    /// Has `queue` polled soon. May be called from interrupts; nothing happens while the device is
    /// down.
    pub(crate) fn schedule(&self, queue: u32) {
        // SAFETY: By the type invariant the device is alive; a context that is not enabled is not
        // scheduled, and the number is checked.
        unsafe { uldma_netdev_schedule(self.dev.as_ptr(), queue) };
    }

    /// Has the stack send packets of `queue` again.
    pub(crate) fn wake_queue(&self, queue: u32) {
        // SAFETY: By the type invariant the device is alive; the number is checked.
        unsafe { uldma_netdev_wake_queue(self.dev.as_ptr(), queue) };
    }

    /// Notes that no bytes of `queue` are on their way any more.
    pub(crate) fn reset_sent(&self, queue: u32, in_flight: &mut InFlight) {
        *in_flight = InFlight::default();
        // SAFETY: By the type invariant the device is alive; the number is checked.
        unsafe { uldma_netdev_reset_sent(self.dev.as_ptr(), queue) };
    }

    /// Sets whether packets arrive anywhere. May sleep; nothing happens unless the device is
    /// registered.
    pub(crate) fn set_carrier(&self, on: bool) {
        let registered = self.registered.lock();
        if *registered {
            // SAFETY: The device is registered, and stays so while the lock is held.
            unsafe { uldma_netdev_set_carrier(self.dev.as_ptr(), on.into()) };
        }
    }

    /// # Safety
    ///
    /// `driver` is what the device was made with.
    unsafe fn of<'a>(driver: *mut c_void) -> &'a T {
        // SAFETY: By the type invariant the driver lives as long as the device, which calls.
        unsafe { &*driver.cast::<T>() }
    }

    /// # Safety
    ///
    /// Called by the device `dev`, which is registered below `parent`.
    unsafe fn handle<'a>(dev: *mut c_void, parent: *mut c_void) -> Handle<'a> {
        Handle {
            // SAFETY: The device that calls is not null.
            dev: unsafe { NonNull::new_unchecked(dev) },
            // SAFETY: `Device` is transparent over `struct device`, and a `Registration` ends before the
            // device is unbound.
            parent: unsafe { &*parent.cast::<Device<Bound>>() },
        }
    }

    /// # Safety
    ///
    /// Called by a registered device that `new` made, as are all below.
    unsafe extern "C" fn open(driver: *mut c_void, dev: *mut c_void, parent: *mut c_void) -> c_int {
        // SAFETY: As the function requires.
        let (driver, handle) = unsafe { (Self::of(driver), Self::handle(dev, parent)) };
        from_result(|| driver.open(handle).map(|()| 0))
    }

    /// # Safety
    ///
    /// As [`Self::open`].
    unsafe extern "C" fn stop(driver: *mut c_void, dev: *mut c_void, parent: *mut c_void) {
        // SAFETY: As the function requires.
        let (driver, handle) = unsafe { (Self::of(driver), Self::handle(dev, parent)) };
        driver.stop(handle);
    }

    /// # Safety
    ///
    /// As [`Self::open`]; `skb` is passed on.
    unsafe extern "C" fn transmit(
        driver: *mut c_void,
        dev: *mut c_void,
        parent: *mut c_void,
        skb: *mut c_void,
    ) {
        // SAFETY: As the function requires.
        let (driver, handle) = unsafe { (Self::of(driver), Self::handle(dev, parent)) };
        // SAFETY: The stack passes a packet, and the reference to it.
        let skb = unsafe { SkBuff::from_raw(NonNull::new_unchecked(skb)) };
        driver.transmit(handle, skb);
    }

    /// # Safety
    ///
    /// As [`Self::open`].
    unsafe extern "C" fn vector(driver: *mut c_void) -> c_int {
        // SAFETY: As the function requires.
        let vector = unsafe { Self::of(driver) }.vector();
        vector
            .and_then(|vector| c_int::try_from(vector).ok())
            .unwrap_or(-1)
    }

    /// # Safety
    ///
    /// As [`Self::open`]; there is an address at `destination`.
    unsafe extern "C" fn select_queue(driver: *mut c_void, destination: *const u8) -> u32 {
        // SAFETY: As the function requires.
        let (driver, address) = unsafe { (Self::of(driver), *destination.cast::<[u8; 6]>()) };
        driver.select_queue(MacAddress(address))
    }

    /// # Safety
    ///
    /// As [`Self::select_queue`].
    unsafe extern "C" fn offloads(driver: *mut c_void, destination: *const u8) -> u32 {
        // SAFETY: As the function requires.
        let (driver, address) = unsafe { (Self::of(driver), *destination.cast::<[u8; 6]>()) };
        driver.offloads(MacAddress(address)).bits()
    }

    /// # Safety
    ///
    /// As [`Self::open`]; `napi` is being polled.
    unsafe extern "C" fn poll(
        driver: *mut c_void,
        dev: *mut c_void,
        parent: *mut c_void,
        queue: u32,
        napi: *mut c_void,
        budget: u32,
    ) -> u32 {
        // SAFETY: As the function requires.
        let (driver, handle) = unsafe { (Self::of(driver), Self::handle(dev, parent)) };
        // SAFETY: As the function requires; the context is not null.
        let poll = unsafe { Poll::new(NonNull::new_unchecked(napi), budget) };
        driver.poll(handle, queue, poll).min(budget)
    }

    /// # Safety
    ///
    /// As [`Self::open`].
    unsafe extern "C" fn poll_idle(
        driver: *mut c_void,
        dev: *mut c_void,
        parent: *mut c_void,
    ) -> u32 {
        // SAFETY: As the function requires.
        let (driver, handle) = unsafe { (Self::of(driver), Self::handle(dev, parent)) };
        driver.poll_idle(handle).into()
    }

    /// # Safety
    ///
    /// As [`Self::open`]; `stats` is a `struct uldma_netdev_stats`.
    unsafe extern "C" fn stats(driver: *mut c_void, stats: *mut c_void) {
        // SAFETY: As the function requires.
        unsafe { stats.cast::<Stats>().write(Self::of(driver).stats()) };
    }

    /// # Safety
    ///
    /// As [`Self::open`]; `stats` is a `struct uldma_netdev_queue_stats`.
    unsafe extern "C" fn queue_stats(driver: *mut c_void, queue: u32, stats: *mut c_void) {
        // SAFETY: As the function requires.
        unsafe {
            stats
                .cast::<QueueStats>()
                .write(Self::of(driver).queue_stats(queue))
        };
    }

    /// # Safety
    ///
    /// As [`Self::open`].
    unsafe extern "C" fn counters(driver: *mut c_void) -> u32 {
        // SAFETY: As the function requires.
        let names = unsafe { Self::of(driver) }.counter_names();
        u32::try_from(names.len()).unwrap_or(0)
    }

    /// # Safety
    ///
    /// As [`Self::open`]; there is room for all names at `names`.
    unsafe extern "C" fn counter_names(driver: *mut c_void, names: *mut u8) {
        // SAFETY: As the function requires.
        let own = unsafe { Self::of(driver) }.counter_names();
        // SAFETY: As the function requires; the two do not overlap.
        unsafe { ptr::copy_nonoverlapping(own.as_ptr().cast(), names, size_of_val(own)) };
    }

    /// # Safety
    ///
    /// As [`Self::open`]; there is room for all counters at `values`.
    unsafe extern "C" fn counter_values(driver: *mut c_void, values: *mut u64) {
        // SAFETY: As the function requires.
        let driver = unsafe { Self::of(driver) };
        let count = driver.counter_names().len();
        // SAFETY: As the function requires; the stack has zeroed them.
        let values = unsafe { slice::from_raw_parts_mut(values, count) };
        let mut values = values.iter_mut();
        driver.counter_values(&mut |value| {
            if let Some(place) = values.next() {
                *place = value;
            }
        });
    }
}

#[pinned_drop]
impl<T: Driver> PinnedDrop for NetDevice<T> {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariant this frees it once. It is not registered, since a
        // `Registration` has a reference.
        unsafe { uldma_netdev_free(self.dev.as_ptr()) };
    }
}

/// The registration of a device, below a device that is bound; dropping it takes the device down
/// and waits for all calls.
pub(crate) struct Registration<'bound, T: Driver> {
    device: Arc<NetDevice<T>>,
    _parent: PhantomData<&'bound Device<Bound>>,
}

impl<'bound, T: Driver> Registration<'bound, T> {
    /// Registers `device` as ul`number`, or with the next free number, and with this address.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is or was registered; the errors of `register_netdev()`.
    pub(crate) fn new(
        device: Arc<NetDevice<T>>,
        parent: &'bound Device<Bound>,
        number: u32,
        address: MacAddress,
    ) -> Result<Self> {
        let mut registered = device.registered.lock();
        if *registered {
            return Err(EBUSY);
        }
        let raw = ptr::from_ref(parent).cast_mut().cast();
        // SAFETY: The device is alive and not registered; `Device` is transparent over `struct device`,
        // and bound until after this registration ends.
        to_result(unsafe { uldma_netdev_register(device.dev.as_ptr(), raw, number, &address.0) })?;
        // INVARIANT: It was registered just now.
        *registered = true;
        drop(registered);
        Ok(Self {
            device,
            _parent: PhantomData,
        })
    }
}

impl<T: Driver> Drop for Registration<'_, T> {
    fn drop(&mut self) {
        // INVARIANT: From here on it counts as not registered, which is true below.
        *self.device.registered.lock() = false;
        // SAFETY: `new` has registered it. No caller changes the carrier any more.
        unsafe { uldma_netdev_unregister(self.device.dev.as_ptr()) };
    }
}
