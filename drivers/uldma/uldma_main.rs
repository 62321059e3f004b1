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
//! | services | [`opener`], [`region`], [`device`], [`segment`], [`context`], [`export`] |
//! | mechanisms | [`lmm`], [`tpt`], [`engine`], [`link`], [`maps`], [`events`], [`status_page`], [`handles`] |
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
mod lmm;
mod maps;
mod opener;
mod region;
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
}
