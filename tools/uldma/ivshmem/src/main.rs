// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma-ivshmem-server`: joins QEMU guests by their `ivshmem-doorbell` devices.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use uldma_device::socket::Sockets;
use uldma_ivshmem::{Server, MAX_NODES, MAX_VECTORS};

/// Server for ivshmem-doorbell devices of QEMU.
///
/// Prints "ready" once all sockets listen, and runs until SIGTERM or SIGINT.
#[derive(Parser)]
#[command(version)]
struct Options {
    /// Socket for all clients; if given several times, the socket of the client with ID 0, 1 and so
    /// on
    #[arg(long, value_name = "PATH", required = true)]
    socket: Vec<PathBuf>,

    /// Bytes of the memory that all share; a power of two
    #[arg(long, value_name = "BYTES", value_parser = memory_size)]
    size: u64,

    /// Interrupt vectors of each client; if given several times, of the client with ID 0, 1 and so on.
    /// The `vectors` of its device must be as many or more, and nodes use three
    #[arg(long, value_name = "N", default_value = "1",
          value_parser = clap::value_parser!(u8).range(1..=MAX_VECTORS as i64))]
    vectors: Vec<u8>,

    /// Clients that there can be at a time, if there is one socket; 8 if absent
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=MAX_NODES as i64))]
    nodes: Option<u8>,
}

fn memory_size(text: &str) -> Result<u64, String> {
    let size: u64 = text.parse().map_err(|error| format!("{error}"))?;
    if size.is_power_of_two() && (1 << 12..=1 << 40).contains(&size) {
        Ok(size)
    } else {
        Err("not a power of two from 4096 to 2^40".into())
    }
}

/// Returns the vectors of each of `nodes` clients.
fn vectors_of(given: &[u8], nodes: usize) -> Option<Vec<usize>> {
    match given {
        [all] => Some(vec![usize::from(*all); nodes]),
        each => (each.len() == nodes).then(|| each.iter().copied().map(usize::from).collect()),
    }
}

fn run(options: &Options) -> io::Result<()> {
    let (stop, signalled) = UnixStream::pair()?;
    for signal in [SIGTERM, SIGINT] {
        pipe::register(signal, signalled.try_clone()?)?;
    }
    let mut sockets = Sockets::default();
    let listeners = options.socket.iter().map(|path| sockets.listen(path));
    let listeners = listeners.collect::<io::Result<_>>()?;
    let nodes = match options.socket.len() {
        1 => options.nodes.map_or(MAX_NODES, usize::from),
        sockets => sockets,
    };
    let vectors = vectors_of(&options.vectors, nodes)
        .ok_or_else(|| io::Error::other("--vectors is given once, or once for each client"))?;
    let mut server = Server::new(listeners, options.size, &vectors)?;
    println!("ready");
    io::stdout().flush()?;
    server.run(stop.as_fd())
}

fn main() -> ExitCode {
    env_logger::init();
    let options = Options::parse();
    let result = if options.socket.len() > MAX_NODES {
        Err(io::Error::other("there can be 8 sockets at most"))
    } else if options.socket.len() > 1 && options.nodes.is_some() {
        Err(io::Error::other("--nodes is for a single --socket"))
    } else {
        run(&options)
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uldma-ivshmem-server: {error}");
            ExitCode::FAILURE
        }
    }
}
