// SPDX-License-Identifier: GPL-2.0

//! The user interface: device files, their ioctls and objects, and debugfs.

pub(crate) mod attachment;
pub(crate) mod debugfs;
pub(crate) mod endpoint;
pub(crate) mod file;
pub(crate) mod ioctl;
pub(crate) mod message;
pub(crate) mod open_file;
pub(crate) mod region;
pub(crate) mod watched;
