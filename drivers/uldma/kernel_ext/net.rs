// SPDX-License-Identifier: GPL-2.0

//! Ethernet devices, their NAPI contexts, and packets.
//!
//! The C side is `netdev.c` and `netdma.c`: the bindings have neither `struct net_device` nor `struct sk_buff`.
//!
//! C headers: `include/linux/netdevice.h`, `include/linux/skbuff.h`.

pub(crate) mod mapped_skb;
pub(crate) mod napi;
pub(crate) mod net_device;
pub(crate) mod page_pool;
pub(crate) mod skb;
