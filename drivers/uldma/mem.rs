// SPDX-License-Identifier: GPL-2.0

//! Memory that the device can access: pinned, charged, and entered in its tables.

pub(crate) mod charge;
pub(crate) mod charged_pages;
pub(crate) mod exchange;
pub(crate) mod lmm;
pub(crate) mod optimistic;
mod own_pages;
pub(crate) mod slots;
pub(crate) mod tpt;
