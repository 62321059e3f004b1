// SPDX-License-Identifier: MIT OR Apache-2.0

//! What attackers can do to each initiation method, found by trying every order of accesses.
//!
//! The state machines are those that the device model runs (`uldma_device::method`). A *victim* makes the
//! accesses that start one transfer from its page A to its page B, checks what it is told as the library
//! does, begins anew once when that is not what it should be, and then gives up. *Attackers* make any accesses to
//! their own pages, in any number up to a bound. The search is breadth first over all states that
//! machine, victim and attackers can be in together, so an attack that it finds is a shortest one, and where it finds
//! none, there is none within the bound.
//!
//! Three things beside: [`simulate`] is how often honest processes disturb each other, [`buffer`] what
//! becomes of repeated accesses without barriers, and [`reach`] every order in which the driver can unpin
//! pages that the device works on.

pub mod buffer;
pub mod methods;
pub mod orders;
pub mod reach;
pub mod search;
pub mod simulate;
pub mod table;
pub mod world;
