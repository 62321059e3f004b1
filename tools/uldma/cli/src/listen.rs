// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma listen`: waits for a connection, and carries data.

use uldma::ChannelListener;

use crate::args::{Common, Listen};
use crate::connection::{self, AtEnd};
use crate::failure::{Failure, Result};
use crate::progress::Progress;
use crate::ring;
use crate::standard;

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Listen) -> Result<()> {
    let device = common.open()?;
    let style = connection::style(common, &args.carry);
    if args.carry.ring {
        let listener = ChannelListener::new(&device, args.port, 1, args.carry.capacity)?;
        let (mut channel, _) = listener.accept(common.timeout)?;
        let progress = Progress::new(style, "receive", None);
        let output = standard::output().map_err(|error| Failure::output(&error))?;
        let report = ring::receive(&mut channel, output, common.timeout, &progress)?;
        return ring::print(common, report);
    }
    let options = args.carry.stream();
    let offer = options.offer()?.with_receipts()?;
    let connection = if args.once {
        let connection = device.listen_once(args.port, offer)?;
        connection.wait_connected(common.timeout)?;
        connection
    } else {
        let listener = device.listen(args.port, 1, offer)?;
        listener.accept(common.timeout)?.0
    };
    let at_end = if args.close {
        AtEnd::Disconnect
    } else {
        AtEnd::Stay
    };
    let report = connection::carry(connection, options, at_end, style)?;
    connection::print(common, &report)
}
