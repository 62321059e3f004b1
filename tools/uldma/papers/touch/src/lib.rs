// SPDX-License-Identifier: MIT OR Apache-2.0

//! Tests if the device can use a page that is not pinned after the kernel has taken it away.
//!
//! The kernel takes a page back by a notifier, and goes on when that returns. The notifier retracts
//! the page entry, and waits until no *bracket* of the device is open that may have looked it up
//! before: the device numbers its brackets, and stores the last number that it has begun and the
//! oldest that has not ended. Nothing is sent to the device, so the proof is an order of loads,
//! stores and fences; this library tries all of them, on weakly ordered memory ([`memory`]).
//!
//! A [`Mix`](mix::Mix) has the device with two brackets, and up to three actors: notifiers, fills,
//! eviction, unbinding; in some the device stops, or is reset. The [`search`] visits each state that
//! they can be in together, nearest first, and finds none with harm. For each
//! [`Mutation`](mutation::Mutation) of the protocol it finds the shortest way to harm.
//!
//! There is one page entry: entries share only the touch words, which do not depend on what is looked
//! up. So what is not here is a transfer that ends at the second of two pages.

pub mod actor;
pub mod bracket;
pub mod device;
pub mod driver;
pub mod evict;
pub mod fault;
pub mod fill;
pub mod memory;
pub mod mix;
pub mod mm;
pub mod mutation;
pub mod notifier;
pub mod retraction;
pub mod search;
pub mod state;
pub mod step;
pub mod unbind;
