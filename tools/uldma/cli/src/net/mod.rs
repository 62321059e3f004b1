// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma net`: shows the network interfaces of the devices, or bridges one of its own and a
//! connection.

mod ethtool;
mod frame;
mod show;
mod statistics;
mod tun;

use crate::args::{Common, Net};
use crate::failure::Result;

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Net) -> Result<()> {
    match &args.tun {
        Some(name) => tun::run(common, args, name),
        None => show::run(common),
    }
}
