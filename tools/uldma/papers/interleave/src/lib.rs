// SPDX-License-Identifier: MIT OR Apache-2.0

//! Attacks on each initiation method, found by trying every order of accesses.
//!
//! The state machines are those of the device model (`uldma_device::method`). A *victim* makes the
//! accesses that start one transfer from its page A to its page B, checks the values that it reads
//! as the library does, restarts once when one is wrong, and then gives up. *Attackers* make any
//! accesses to their own pages, in any number up to a bound. The search is breadth first over all
//! states of machine, victim and attackers together, so an attack that it finds is a shortest one,
//! and if it finds none, there is none within the bound.
//!
//! There are three further studies: [`simulate`] counts how often honest processes disturb each
//! other, [`buffer`] shows accesses that a write buffer combines, and [`reach`] tries every order in
//! which the driver can unpin pages that the device works on.

pub mod buffer;
pub mod methods;
pub mod orders;
pub mod reach;
pub mod search;
pub mod simulate;
pub mod table;
pub mod whole;
pub mod world;
