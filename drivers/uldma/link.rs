// SPDX-License-Identifier: GPL-2.0

//! What the two drivers say to each other, through the window and the doorbells.

pub(crate) mod channel;
pub(crate) mod message;
pub(crate) mod window;
