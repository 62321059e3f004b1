// SPDX-License-Identifier: MIT OR Apache-2.0

//! The verb that shows network interfaces, or carries their packets.

use clap::{ArgGroup, Args};

use super::parse::buffer;

const NET_HELP: &str = "\
Without --tun, shows the interface of each device, which the driver makes and calls ul<N>, and the counters of each
peer, as `ethtool -S` does. With --tun, one side listens and the other connects; each makes a TUN interface, and the
packets of one arrive at the other. It is up when the first line is printed. Addresses are assigned by `ip address
add`, but those of the link, which IPv6 has by itself. Ends when the peer disconnects or SIGINT or SIGTERM arrives,
and takes the interface away. --json prints two lines with --tun: the interface when it is up, and what has crossed
it.";

#[derive(Debug, Args)]
#[command(after_help = NET_HELP, group(ArgGroup::new("side").args(["listen", "connect"])))]
pub(crate) struct Net {
    /// Make a TUN interface of this name, in which the kernel replaces %d by a number
    #[arg(long, value_name = "NAME", num_args = 0..=1, default_missing_value = "tun%d", requires = "side")]
    pub(crate) tun: Option<String>,
    /// Listen at this port, not zero
    #[arg(long, value_name = "PORT", requires = "tun", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) listen: Option<u32>,
    /// Connect to this port of a node
    #[arg(long, num_args = 2, value_names = ["NODE", "PORT"], requires = "tun")]
    pub(crate) connect: Vec<u32>,
    /// While no process listens there, or the link is down, retry until --timeout
    #[arg(long, requires = "tun", conflicts_with = "listen")]
    pub(crate) wait: bool,
    /// Largest packet; the peer's counts if that is smaller
    #[arg(long, value_name = "BYTES", requires = "tun", default_value_t = u16::MAX, value_parser = clap::value_parser!(u16).range(68..))]
    pub(crate) mtu: u16,
    /// Bytes of each buffer (K, M, G: times 1024)
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = buffer)]
    pub(crate) buffer: usize,
    /// Buffers in each direction
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) buffers: u8,
}

impl Net {
    /// Returns the sizes of a stream's memory.
    pub(crate) fn stream(&self) -> uldma::StreamOptions {
        uldma::StreamOptions {
            buffers: self.buffers.into(),
            bytes: self.buffer,
            ..Default::default()
        }
    }
}
