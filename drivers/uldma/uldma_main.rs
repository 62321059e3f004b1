// SPDX-License-Identifier: GPL-2.0

//! User-level DMA over a shared PCI window.
//!
//! Ordinary processes on several nodes register memory once, then start DMA and exchange messages
//! without a system call, and none can reach what is not its own.
//!
//! The module is built in floors, each of which uses only floors below it:
//!
//! | floor | modules |
//! | --- | --- |
//! | entry | [`driver`] |
//! | user interface | [`file`], [`ioctl`], [`debugfs`] |
//! | services | [`open_file`], [`options`], [`region`], [`device`], [`segment`], [`context`], [`export`], [`connection`], [`attachment`] |
//! | mechanisms | [`ledger`], [`charge`], [`lmm`], [`tpt`], [`engine`], [`link`], [`maps`], [`events`], [`status_page`], [`handles`], [`list`], [`running`], [`queue`], [`pump`], [`polling`], [`adaptive_poll`] |
//! | hardware | [`hw`] |
//! | kernel extras | [`kernel_ext`] |

mod access;
mod adaptive_poll;
mod attachment;
mod charge;
mod connection;
mod context;
mod debugfs;
mod device;
mod driver;
mod engine;
mod events;
mod export;
mod file;
mod handles;
mod hw;
mod ioctl;
mod kernel_ext;
mod ledger;
mod link;
mod list;
mod lmm;
mod maps;
mod method;
mod open_file;
mod options;
mod polling;
mod pump;
mod queue;
mod region;
mod running;
mod segment;
mod status_page;
mod tpt;
mod uapi;
mod wait;

kernel::prelude::module! {
    type: driver::Drivers,
    name: "uldma",
    authors: ["The uldma developers"],
    description: "User-level DMA over a shared PCI window",
    license: "GPL",
    params: {
        max_file_regions: usize {
            default: 8192,
            description: "Regions and imports that one open file can have",
        },
        user_regions: usize {
            default: 0,
            description: "Regions and imports that one user without CAP_SYS_RESOURCE can have of a device; 0 for a quarter of its table",
        },
        user_pages: usize {
            default: 0,
            description: "Pages that one user without CAP_SYS_RESOURCE can have registered and imported; 0 for a quarter of the device's table",
        },
        user_contexts: usize {
            default: 0,
            description: "Contexts that one user without CAP_SYS_RESOURCE can have at a time; 0 for half of the device's",
        },
        user_exclusive_contexts: usize {
            default: 0,
            description: "Contexts that cannot be lent to others and that one user without CAP_SYS_RESOURCE can have; 0 for a quarter of the device's",
        },
        user_connections: usize {
            default: 0,
            description: "Connections that one user without CAP_SYS_RESOURCE can have of a device; 0 for a quarter of its places",
        },
        user_listeners: usize {
            default: 0,
            description: "Ports at which one user without CAP_SYS_RESOURCE can listen; 0 for a quarter of the device's places",
        },
        user_window_bytes: usize {
            default: 0,
            description: "Bytes of the window that one user without CAP_SYS_RESOURCE can have for segments and connections; 0 for a quarter of this node's section",
        },
        user_requests: usize {
            default: 0,
            description: "Requests of one user without CAP_SYS_RESOURCE that can wait for answers of peers; 0 for a quarter of the device's places",
        },
        context_slice_ms: u32 {
            default: 10,
            description: "Milliseconds for which an open file keeps a context that another wants",
        },
        context_wait_ms: u32 {
            default: 10000,
            description: "Milliseconds after which an access to a context that was lent is a bus error, if none comes free",
        },
        insecure_methods: u8 {
            default: 0,
            description: "Allow initiation methods by which processes can misuse others (0 or 1)",
        },
        merge: u8 {
            default: 1,
            description: "Merge locked memory areas that nothing tells apart any more (0 or 1)",
        },
        pin_cache_regions: usize {
            default: 256,
            description: "Ended regions whose pins an address space can keep",
        },
        pin_cache_bytes: usize {
            default: 67108864,
            description: "Bytes of ended regions whose pins an address space can keep",
        },
        revalidate_ms: u32 {
            default: 1000,
            description: "Milliseconds for which finding stale regions of a process waits for others who hold a file's lock, at most",
        },
        ivshmem_nodes: u32 {
            default: 2,
            description: "Nodes that share the memory of an ivshmem device (2 to 8)",
        },
        loopback: u32 {
            default: 0,
            description: "Nodes to make that memory of this machine joins (0, or 2 to 8)",
        },
        loopback_bytes: usize {
            default: 16777216,
            description: "Bytes of the window of these nodes, all sections together",
        },
        link_slots: u32 {
            default: 64,
            description: "Messages that each peer can have in flight to a node (1 to 64)",
        },
        link_timeout_ms: u32 {
            default: 3000,
            description: "Milliseconds without a beat after which a peer counts as gone",
        },
        link_backoff_ms: u32 {
            default: 4000,
            description: "Milliseconds, at most, for which a peer that ends sessions again and again, or breaks the rules, waits for the next session",
        },
        wakeup_us: u32 {
            default: 0,
            description: "Microseconds that a sleep and a wake-up cost here; 0 to measure when the module is loaded",
        },
        link_busy_poll_us: u32 {
            default: 100000,
            description: "Microseconds for which a node polls for more before peers have to ring its doorbell, at most; as a rule as many as a wake-up costs",
        },
        link_spin_us: u32 {
            default: 100000,
            description: "Microseconds for which a call polls for what it waits for before it sleeps, at most; as a rule as many as a wake-up costs",
        },
        link_poll_us: u32 {
            default: 0,
            description: "Microseconds between two looks of a node that nobody rings; 0 for doorbells",
        },
    },
}
