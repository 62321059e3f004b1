// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma listen`: waits for a connection, and carries data.

use uldma::ChannelListener;

use crate::args::{Common, Listen};
use crate::connection::{self, AtEnd};
use crate::failure::Result;
use crate::progress::Progress;
use crate::ring;

/// Runs the verb.
pub(crate) fn run(common: &Common, verb: &Listen) -> Result<()> {
    let device = common.open()?;
    let style = connection::style(common, &verb.carry);
    if verb.carry.ring {
        let listener = ChannelListener::new(&device, verb.port, 1, verb.carry.capacity)?;
        let (mut channel, _) = listener.accept(common.timeout)?;
        let progress = Progress::new(style, "receive", None);
        let report = ring::receive(&mut channel, std::io::stdout().lock(), &progress)?;
        return ring::print(common, report);
    }
    let connection = if verb.once {
        let connection = device.listen_once(verb.port)?;
        connection.wait_connected(common.timeout)?;
        connection
    } else {
        device.listen(verb.port, 1)?.accept(common.timeout)?.0
    };
    let at_end = if verb.close {
        AtEnd::Disconnect
    } else {
        AtEnd::Stay
    };
    let report = connection::carry(connection, verb.carry.stream(), at_end, style)?;
    connection::print(common, &report)
}
