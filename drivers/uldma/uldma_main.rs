// SPDX-License-Identifier: GPL-2.0

//! User-level DMA over a shared PCI window.
//!
//! Ordinary processes on several nodes register memory once, then start DMA and exchange messages
//! without a system call, and none can reach what is not its own.
//!
//! The module is built in floors. Each uses only floors below it, which `scripts/lint floors` checks:
//!
//! | floor | what it has |
//! | --- | --- |
//! | [`driver`] | one driver per kind of hardware: probe, interrupts, unbind |
//! | [`user`] | device files, ioctls, and the objects of open files; debugfs |
//! | [`device`] | one device, which ties all of the floors below together |
//! | [`net`] | the network interface over the link |
//! | [`connection`] | streams of bytes between processes on two nodes |
//! | [`dma`] | register contexts, initiation methods, queues of descriptors, transfers |
//! | [`link`] | the control protocol between nodes, and the worker that drives it; window segments and exports |
//! | [`mem`] | locked memory, and the device's tables of regions and pages |
//! | [`user_abi`] | access rights, events, handles, mmap offsets, status pages, limits per user |
//! | [`hw`] | registers and tables of each kind of hardware behind one trait |
//! | [`params`], [`uapi`] | module parameters; the structures of the user interface |
//! | [`ring`] | rings of messages over any memory, which the library has, too |
//! | [`kernel_ext`] | abstractions that the kernel crate lacks |

mod connection;
mod device;
mod dma;
mod driver;
mod hw;
mod kernel_ext;
mod link;
mod mem;
mod net;
mod params;
mod ring;
mod uapi;
mod user;
mod user_abi;

kernel::prelude::module! {
    type: driver::Drivers,
    name: "uldma",
    authors: ["The uldma developers"],
    description: "User-level DMA over a shared PCI window",
    license: "GPL",
    params: {
        max_file_regions: usize {
            default: 8192,
            description: "Maximum of regions and imports per open file; raise it if registering fails with ENOSPC while the device has room",
        },
        user_regions: usize {
            default: 0,
            description: "Maximum of regions and imports per user without CAP_SYS_RESOURCE; 0: a quarter of the device's region table",
        },
        user_pages: usize {
            default: 0,
            description: "Maximum of registered and imported pages per user without CAP_SYS_RESOURCE; 0: a quarter of the device's page table",
        },
        user_contexts: usize {
            default: 0,
            description: "Maximum of contexts per user without CAP_SYS_RESOURCE; 0: half of the device's",
        },
        user_exclusive_contexts: usize {
            default: 0,
            description: "Maximum of exclusive contexts, which the driver cannot take back while idle, per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_connections: usize {
            default: 0,
            description: "Maximum of connections per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_listeners: usize {
            default: 0,
            description: "Maximum of listeners per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_window_bytes: usize {
            default: 0,
            description: "Maximum of window bytes per user without CAP_SYS_RESOURCE, for segments and connections; 0: a quarter of this node's section",
        },
        user_requests: usize {
            default: 0,
            description: "Maximum of requests to peers in flight per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_endpoints: usize {
            default: 0,
            description: "Maximum of endpoints of message connections per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_transfers: usize {
            default: 0,
            description: "Maximum of transfers through the kernel in flight per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        user_objects: usize {
            default: 0,
            description: "Maximum of open files, contexts of open files and segments, all together, per user without CAP_SYS_RESOURCE; 0: a quarter of the device's",
        },
        context_slice_ms: u32 {
            default: 10,
            description: "Time slice in milliseconds of a context while others wait for one; longer slices cost fewer switches, shorter ones less waiting",
        },
        context_wait_ms: u32 {
            default: 10000,
            description: "Timeout in milliseconds after which an access to a context without registers fails with SIGBUS, if no context becomes free",
        },
        insecure_methods: u8 {
            default: 0,
            description: "Allow initiation methods that do not protect processes from each other, for comparison only (0 or 1)",
        },
        window_wc: u8 {
            default: 1,
            description: "Map windows write-combining (1), or uncached for comparison (0)",
        },
        merge: u8 {
            default: 1,
            description: "Merge adjacent locked memory areas with the same users (0 or 1)",
        },
        pin_cache_regions: usize {
            default: 256,
            description: "Size of the pin cache of each address space in unregistered regions; 0: no cache",
        },
        pin_cache_bytes: usize {
            default: 67108864,
            description: "Size of the pin cache of each address space in bytes; 0: no cache",
        },
        optimistic_entries: usize {
            default: 0,
            description: "Maximum of pages of optimistic regions that a device knows at a time, a quarter of them for each process; 0: its page table, or 16384 with an IOMMU",
        },
        revalidate_ms: u32 {
            default: 1000,
            description: "Timeout in milliseconds for which the driver waits for file locks of other processes before it revalidates regions",
        },
        ivshmem_nodes: u32 {
            default: 2,
            description: "Number of nodes that share each ivshmem device; the same on all nodes (2 to 8)",
        },
        loopback: u32 {
            default: 0,
            description: "Number of loopback devices, nodes within this machine for tests (0, or 2 to 8)",
        },
        loopback_bytes: usize {
            default: 16777216,
            description: "Bytes of the window of the loopback devices, all sections together",
        },
        link_peers: u32 {
            default: 0,
            description: "Bit mask of the nodes to begin sessions with, where they are not to be discovered; 0: all nodes that answer",
        },
        link_slots: u32 {
            default: 64,
            description: "Messages in flight from each peer: 1 to 64, rounded down to a power of two",
        },
        link_timeout_ms: u32 {
            default: 3000,
            description: "Timeout in milliseconds without a heartbeat after which the link to a peer is down; raise it on overcommitted hosts",
        },
        link_backoff_ms: u32 {
            default: 4000,
            description: "Maximum backoff in milliseconds before the next session with a peer that broke the protocol or keeps ending sessions",
        },
        wakeup_us: u32 {
            default: 0,
            description: "Cost of a sleep and a wake-up in microseconds, from which polling times derive; 0: measure it",
        },
        link_busy_poll_us: u32 {
            default: 100000,
            description: "Maximum time in microseconds for which the driver polls for more messages before it asks for doorbells again; 0: no busy polling",
        },
        link_spin_us: u32 {
            default: 100000,
            description: "Maximum time in microseconds for which a call polls before it sleeps; 0: sleep at once",
        },
        link_poll_us: u32 {
            default: 0,
            description: "Interval in microseconds of polling in place of doorbells; 0: use doorbells",
        },
        network: u8 {
            default: 1,
            description: "Create a network interface ulN for each adapter and each ivshmem device (1), also for each loopback device (2), or none (0)",
        },
        network_bytes: usize {
            default: 0,
            description: "Bytes of the window that each peer can write packets to, 16 KiB to 1 GiB; 0: a quarter of this node's section for all peers, up to 1 MiB each",
        },
        network_engine_bytes: u32 {
            default: 0,
            description: "Bytes of a packet from which on the adapter's engine moves it, if both nodes have this; 4096 fits, since it takes a page of the receiver; 0: processors copy all packets",
        },
    },
}
