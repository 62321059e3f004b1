// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma connect`: connects to a listener, and carries data.

use uldma::{Channel, ConnectOptions, Peer};

use crate::args::{Common, Connect};
use crate::connection::{self, AtEnd};
use crate::failure::Result;
use crate::ring;
use crate::standard;

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &Connect) -> Result<()> {
    let device = common.open()?;
    let stream = args.carry.stream();
    let options = ConnectOptions {
        pull: args.pull,
        retry: args.wait,
        timeout: common.timeout,
        offer: stream.offer()?.with_receipts()?,
    };
    let peer = Peer::node(args.node);
    let style = connection::style(common, &args.carry);
    if args.carry.ring {
        let capacity = args.carry.capacity;
        let mut channel = Channel::connect(&device, peer, args.port, capacity, options)?;
        let input = standard::input();
        let (most, progress) = (args.carry.buffer, connection::progress(style));
        let report = ring::send(&mut channel, input, most, common.timeout, &progress)?;
        return ring::print(common, report);
    }
    let connection = device.connect(peer, args.port, options)?;
    let at_end = if args.keep {
        AtEnd::Stay
    } else {
        AtEnd::Disconnect
    };
    let report = connection::carry(connection, stream, at_end, style)?;
    connection::print(common, &report)
}
