// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma connect`: connects to a listener, and carries data.

use uldma::{Channel, ConnectOptions, Peer};

use crate::args::{Common, Connect};
use crate::connection::{self, AtEnd};
use crate::failure::Result;
use crate::ring;

/// Runs the verb.
pub(crate) fn run(common: &Common, verb: &Connect) -> Result<()> {
    let device = common.open()?;
    let options = ConnectOptions {
        pull: verb.pull,
        retry: verb.wait,
        timeout: common.timeout,
    };
    let peer = Peer::node(verb.node);
    let style = connection::style(common, &verb.carry);
    if verb.carry.ring {
        let capacity = verb.carry.capacity;
        let mut channel = Channel::connect(&device, peer, verb.port, capacity, options)?;
        let input = std::io::stdin().lock();
        let (most, progress) = (verb.carry.buffer, connection::progress(style));
        let report = ring::send(&mut channel, input, most, common.timeout, &progress)?;
        return ring::print(common, report);
    }
    let connection = device.connect(peer, verb.port, options)?;
    let at_end = if verb.keep {
        AtEnd::Stay
    } else {
        AtEnd::Disconnect
    };
    let report = connection::carry(connection, verb.carry.stream(), at_end, style)?;
    connection::print(common, &report)
}
