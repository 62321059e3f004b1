// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma net`: shows the network interfaces of the devices.

mod ethtool;
mod show;
mod statistics;

pub(crate) use show::run;
