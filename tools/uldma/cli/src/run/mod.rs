// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma run`: starts a program whose sockets to other nodes go over uldma.
//!
//! The next commit adds the verb.
#![allow(dead_code)]

mod flow;
mod frame;
pub(crate) mod nodes;
mod report;
mod served;
