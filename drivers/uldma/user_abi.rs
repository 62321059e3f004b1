// SPDX-License-Identifier: GPL-2.0

//! Parts of the user interface that all floors above share: access rights, events, handles, offsets
//! for mmap, status pages, and limits of users.

pub(crate) mod access;
pub(crate) mod events;
pub(crate) mod handles;
pub(crate) mod ledger;
pub(crate) mod miss_policy;
pub(crate) mod mmap_offset;
pub(crate) mod offer;
pub(crate) mod status_page;
