// SPDX-License-Identifier: GPL-2.0

//! User-level DMA over a shared PCI window.
//!
//! Ordinary processes on two nodes register memory once, then start DMA and exchange messages
//! without a system call, and none can reach what is not its own.
//!
//! The module is built in floors, each of which uses only floors below it:
//!
//! | floor | modules |
//! | --- | --- |
//! | entry | [`driver`] |
//! | user interface | [`file`], [`ioctl`], [`debugfs`] |
//! | services | [`opener`], [`options`], [`region`], [`device`], [`segment`], [`context`], [`export`] |
//! | mechanisms | [`lmm`], [`tpt`], [`engine`], [`link`], [`maps`], [`events`], [`status_page`], [`handles`], [`list`], [`running`] |
//! | hardware | [`hw`] |
//! | kernel extras | [`kernel_ext`] |

mod access;
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
mod link;
mod list;
mod lmm;
mod maps;
mod method;
mod opener;
mod options;
mod region;
mod running;
mod segment;
mod status_page;
mod tpt;
mod uapi;
mod wait;

kernel::module_pci_driver! {
    type: driver::Driver,
    name: "uldma",
    authors: ["The uldma developers"],
    description: "User-level DMA over a shared PCI window",
    license: "GPL",
    params: {
        max_opener_regions: usize {
            default: 8192,
            description: "Regions and imports that one opener can have",
        },
        context_slice_ms: u32 {
            default: 10,
            description: "Milliseconds for which an opener keeps a context that another wants",
        },
        insecure_methods: u8 {
            default: 0,
            description: "Allow initiation methods by which processes can misuse others (0 or 1)",
        },
        merge: u8 {
            default: 1,
            description: "Merge locked memory areas that nothing tells apart any more (0 or 1)",
        },
        pin_cache_locks: usize {
            default: 256,
            description: "Ended regions whose pins an address space can keep",
        },
        pin_cache_bytes: usize {
            default: 67108864,
            description: "Bytes of ended regions whose pins an address space can keep",
        },
    },
}
