// SPDX-License-Identifier: MIT OR Apache-2.0

//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};
use uldma::region::Miss;
use uldma::Name;
use uldma_papers::registrar::Mode;

mod parse;

use parse::{at_least_one, buffer, exchange_from, seconds, size};

pub(crate) use parse::ExchangeFrom;

const EXIT_CODES: &str = "\
Exit codes:
  0  done
  1  failed for another reason than those below; the program at the other side has not taken all that was sent;
     output could not be written (without a message if the reader of a pipe has closed it)
  2  wrong usage
  3  no device, no permission, or module and tools are of different versions
  4  something did not happen in time (see --timeout)
  5  the data that arrived is not the data that was sent, or the process that listens expects another kind of connection
  6  the link is down, or the peer closed, failed or broke the rules

With --json, results go to standard output and errors to standard error, one JSON value each.";

/// Inspect, test and use user-level DMA devices.
#[derive(Debug, Parser)]
#[command(name = "uldma", version, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Args)]
pub(crate) struct Common {
    /// Use /dev/uldma<N> [default: 0; info: all]
    #[arg(long, global = true, value_name = "N")]
    pub(crate) device: Option<u32>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Fail after waiting for this many seconds
    #[arg(long, global = true, value_name = "SECONDS", default_value = "30", value_parser = seconds)]
    pub(crate) timeout: Duration,
}

impl Common {
    /// The device to open.
    pub(crate) fn open(&self) -> uldma::Result<uldma::Device> {
        uldma::Device::open(self.device.unwrap_or(0))
    }

    /// Options to connect to a process that may begin to listen later.
    pub(crate) fn connect(&self) -> uldma::ConnectOptions {
        uldma::ConnectOptions {
            retry: true,
            timeout: self.timeout,
            ..Default::default()
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the devices and their properties
    Info,
    /// Show the counters of a device, and of all processes that have it open
    Stat,
    /// Show the limits of locked memory of a device, and what a new process has locked
    Lmm,
    /// Show the charge of registering memory, and whether it fits the limit
    Charge(Charge),
    /// Register memory of any kind, and show the kernel's state of it
    Register(Register),
    /// Copy memory to memory on this node, and check it
    Dma(Dma),
    /// Export memory to the peer until a signal arrives
    Export(Export),
    /// Change a word of memory that the peer exports, atomically, and show its old value
    Atomic(Atomic),
    /// Send a file into the memory of a `recv-file` at the peer
    SendFile(SendFile),
    /// Receive a file from a `send-file` at the peer
    RecvFile(RecvFile),
    /// Send standard input in messages to a `recv` at the peer
    Send(Send),
    /// Receive messages from a `send` at the peer, and write them to standard output
    Recv(Recv),
    /// Measure from which size on messages are better exchanged than copied, on this machine
    Calibrate,
    /// Measure round trips to a `ping --serve` at the peer
    Ping(Ping),
    /// Show the other nodes of the link, with the state and the counters of each link
    Peers,
    /// Wait for a connection, and carry data between it and standard input and output
    Listen(Listen),
    /// Connect to a `listen`, and carry data between it and standard input and output
    Connect(Connect),
    /// Show the network interfaces of the devices, which the driver calls ul<N>, with the counters of each peer
    Net,
}

/// The node that a command addresses.
#[derive(Debug, Args)]
pub(crate) struct Node {
    /// The peer's number; needed where the link has more than two nodes
    #[arg(long = "node", value_name = "NODE")]
    number: Option<u32>,
}

impl Node {
    /// Returns the peer.
    pub(crate) fn peer(&self) -> uldma::Peer {
        self.number.into()
    }
}

const SEND_HELP: &str = "\
Techniques of sending: pio, copy-dma, copy-dma-kernel, direct-dma, v2p-dma and pex-dma; of receiving: pio,
copy-dma, copy-dma-kernel, direct-dma, v2p-dma, pex-dma and redirect. By pio, slots are in the window. By
copy-dma-kernel, the driver copies to and from slots of its own, in system calls. The two sides choose
independently of each other, but copy-dma-kernel does not send to direct-dma, and without an engine there are
only pio and copy-dma. A posted buffer (v2p-dma), or a place that the sender names (direct-dma), takes one
message: it has to have the bytes of the longest. Ends with 0 once recv has written all to its standard output, and
with 1 if that ended before. --json reports on standard error, as standard output has the data.";

const LISTEN_HELP: &str = "\
Ends with the connection: with 0 when the peer has disconnected, all that it sent was written to standard output,
and it has written all of standard input to its own; with 1 when the connection was reset or any of these was not
done. --json reports on standard error then, as standard output has the data, with the number of \"bytes_taken\";
\"matched\" is true if the devices have moved the data, as they do with --matched on both sides.";

const CONNECT_HELP: &str = "\
At the end of standard input the program waits until the listen at the other side has written all of it to its
standard output, and disconnects. Exit code 1: it has not written all, since it could not, has ended, or is another
program, which does not say what it takes; or the connection was reset. --json reports on standard error, as standard
output has the data, with the number of \"bytes_taken\"; \"matched\" is true if the devices have moved the data, as
they do with --matched on both sides.";

#[derive(Debug, Args)]
#[command(after_help = LISTEN_HELP)]
pub(crate) struct Listen {
    /// Port to listen at, not zero
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    /// Turn the listener itself into the connection, so that no other peer can connect
    #[arg(long)]
    pub(crate) once: bool,
    /// Disconnect at the end of standard input, once the peer has written all of it
    #[arg(long, conflicts_with = "ring")]
    pub(crate) close: bool,
    #[command(flatten)]
    pub(crate) carry: StreamArgs,
}

#[derive(Debug, Args)]
#[command(after_help = CONNECT_HELP)]
pub(crate) struct Connect {
    /// Number of the node
    pub(crate) node: u32,
    /// Port at which the node listens
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    /// Have receivers move the data, not senders
    #[arg(long, conflicts_with_all = ["ring", "matched"])]
    pub(crate) pull: bool,
    /// While no process listens there, or the link is down, retry until --timeout
    #[arg(long)]
    pub(crate) wait: bool,
    /// Stay connected after the end of standard input, until the peer disconnects
    #[arg(long, conflicts_with = "ring")]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) carry: StreamArgs,
}

/// Options of the progress display.
#[derive(Debug, Args)]
pub(crate) struct ProgressArgs {
    /// Show progress on standard error even where that is no terminal, or with --json
    #[arg(long)]
    pub(crate) progress: bool,
}

/// Options of the data path.
#[derive(Debug, Args)]
pub(crate) struct StreamArgs {
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
    /// Carry data through a ring in the window, without system calls, and only from `connect` to
    /// `listen`; needed on both sides, else `connect` ends with exit code 5
    #[arg(long)]
    pub(crate) ring: bool,
    /// Have the devices move the data, without system calls, if the other side asks for this, too, and
    /// both can; otherwise it goes by calls. Data that the peer does not take occupies a context
    #[arg(long, conflicts_with = "ring")]
    pub(crate) matched: bool,
    /// Bytes of the ring in which this side receives, a power of two (K, M, G: times 1024)
    #[arg(long, value_name = "BYTES", default_value = "256K", value_parser = size, requires = "ring")]
    pub(crate) capacity: u64,
    /// Bytes of each buffer (K, M, G: times 1024)
    #[arg(long, value_name = "BYTES", default_value = "128K", value_parser = buffer)]
    pub(crate) buffer: usize,
    /// Buffers in each direction
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) buffers: u8,
}

impl StreamArgs {
    /// Returns the sizes of a stream's memory.
    pub(crate) fn stream(&self) -> uldma::StreamOptions {
        uldma::StreamOptions {
            buffers: self.buffers.into(),
            bytes: self.buffer,
            matched: self.matched,
            ..Default::default()
        }
    }
}

/// Memory of a message connection.
#[derive(Debug, Args)]
pub(crate) struct SlotArgs {
    /// Bytes of each slot or posted buffer (K, M, G: times 1024)
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = buffer)]
    pub(crate) slot: usize,
    /// Slots or posted buffers
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub(crate) slots: u8,
    /// By pex-dma and redirect, copy messages and pieces of less than these bytes (K, M, G: times 1024);
    /// or "measured": those for which `calibrate` finds that copies take less time
    #[arg(long, value_name = "BYTES", default_value = "16K", value_parser = exchange_from)]
    pub(crate) exchange_from: ExchangeFrom,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
}

#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub(crate) struct Send {
    /// Number of the node
    pub(crate) node: u32,
    /// Port at which the node receives
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    /// Technique of sending
    #[arg(long, value_name = "TECHNIQUE", default_value = "copy-dma")]
    pub(crate) technique: uldma::SendTechnique,
    /// Bytes of each message (K, M, G: times 1024)
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = buffer)]
    pub(crate) message: usize,
    /// Fail if the peer has posted no buffer for a message, instead of waiting for one
    #[arg(long)]
    pub(crate) without_credits: bool,
    /// While no process listens there, or the link is down, retry until --timeout
    #[arg(long)]
    pub(crate) wait: bool,
    #[command(flatten)]
    pub(crate) slots: SlotArgs,
}

#[derive(Debug, Args)]
#[command(after_help = SEND_HELP)]
pub(crate) struct Recv {
    /// Port to listen at, not zero
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    /// Technique of receiving
    #[arg(long, value_name = "TECHNIQUE", default_value = "copy-dma")]
    pub(crate) technique: uldma::ReceiveTechnique,
    /// Bytes of the longest message, where slots receive (K, M, G: times 1024) [default: 16M; by pex-dma: 1M]
    #[arg(long, value_name = "BYTES", value_parser = buffer)]
    pub(crate) longest: Option<usize>,
    #[command(flatten)]
    pub(crate) slots: SlotArgs,
}

/// Memory to map.
#[derive(Debug, Args)]
pub(crate) struct MemoryArgs {
    /// Bytes (K, M, G: times 1024)
    #[arg(long, default_value = "1M", value_parser = at_least_one)]
    pub(crate) size: u64,
    /// Kind of memory
    #[arg(long, value_enum, default_value = "private", conflicts_with = "file")]
    pub(crate) kind: KindArg,
    /// Map the first bytes of this file, shared; for writing, if the device may write
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
    /// Rights of the device
    #[arg(long, value_enum, default_value = "read-write")]
    pub(crate) access: AccessArg,
}

#[derive(Debug, Args)]
pub(crate) struct Charge {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
}

#[derive(Debug, Args)]
pub(crate) struct Register {
    #[command(flatten)]
    pub(crate) memory: MemoryArgs,
    /// Mechanism that keeps the pages in memory; all but the first are the paper's, for comparison
    #[arg(long, value_enum, default_value = "pinned")]
    pub(crate) mode: ModeArg,
    /// Keep no page in memory: what becomes of a transfer that misses one
    #[arg(long, value_enum, value_name = "MISS", num_args = 0..=1, require_equals = true,
          default_missing_value = "exception",
          conflicts_with_all = ["mode", "blocks", "pages", "then", "cache"])]
    pub(crate) optimistic: Option<MissArg>,
    /// Milliseconds for which a transfer waits for a page
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=8388),
          requires = "optimistic")]
    pub(crate) limit_ms: u32,
    /// Register it this many times at once
    #[arg(long, default_value = "1", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) times: u32,
    /// Show the bus addresses, one line for each run of pages (needs CAP_SYS_ADMIN)
    #[arg(long)]
    pub(crate) blocks: bool,
    /// Show the bus addresses, one line for each page (needs CAP_SYS_ADMIN)
    #[arg(long, conflicts_with = "blocks")]
    pub(crate) pages: bool,
    /// Do this to the memory while it is registered, and wait for the event that reports it as
    /// stale
    #[arg(long, value_enum)]
    pub(crate) then: Option<Disturbance>,
    /// Turn the pin cache on, and register once more at the end
    #[arg(long, conflicts_with = "then")]
    pub(crate) cache: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Dma {
    /// Initiation method; `uldma info` lists those that the device and the module offer
    #[arg(long, default_value = "extended-shadow", value_parser = crate::method::parser())]
    pub(crate) method: uldma::Method,
    /// Bytes of each transfer (K, M, G: times 1024)
    #[arg(long, default_value = "1M", value_parser = at_least_one)]
    pub(crate) size: u64,
    /// Number of transfers
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
}

#[derive(Debug, Args)]
pub(crate) struct Export {
    /// A word, or 0x and hexadecimal digits
    pub(crate) name: Name,
    /// Export the contents of this file
    #[arg(required_unless_present = "size", conflicts_with = "size")]
    pub(crate) file: Option<PathBuf>,
    /// Export this many zero bytes (K, M, G: times 1024)
    #[arg(long, value_parser = at_least_one)]
    pub(crate) size: Option<u64>,
    /// Rights of the peer
    #[arg(long, value_enum, default_value = "read")]
    pub(crate) access: AccessArg,
    /// Export it to this node alone [default: to all]
    #[arg(long, value_name = "NODE")]
    pub(crate) to: Option<u32>,
    /// Write the memory to this file at the end
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    /// End after this many seconds, without a signal
    #[arg(long = "for", value_name = "SECONDS", value_parser = seconds)]
    pub(crate) lifetime: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct Atomic {
    /// Name of the peer's export, for reading and writing: a word, or 0x and hexadecimal digits
    pub(crate) name: Name,
    #[command(flatten)]
    pub(crate) node: Node,
    /// First byte of the word, a multiple of eight
    #[arg(long, default_value_t = 0)]
    pub(crate) offset: u64,
    /// Add this number to the word
    #[arg(long, value_name = "NUMBER", required_unless_present = "swap")]
    pub(crate) add: Option<u64>,
    /// Replace the word by this number, if it equals --expect
    #[arg(
        long,
        value_name = "NUMBER",
        requires = "expect",
        conflicts_with = "add"
    )]
    pub(crate) swap: Option<u64>,
    /// Expected value for --swap
    #[arg(long, value_name = "NUMBER", requires = "swap")]
    pub(crate) expect: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct SendFile {
    /// The file to send
    pub(crate) path: PathBuf,
    /// Port at which the `recv-file` listens
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    #[command(flatten)]
    pub(crate) node: Node,
    /// Method that moves the bytes
    #[arg(long, value_enum, default_value = "extended-shadow")]
    pub(crate) method: Method,
    /// Move the bytes twice by DMA, and report the second time, when the device has touched the
    /// memory before
    #[arg(long)]
    pub(crate) warm: bool,
    /// The peer's IP address, for --method tcp [default: the one that the peer sends]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) peer_addr: Option<std::net::IpAddr>,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
    /// Count the system calls of all methods from outside, by ptrace(), wait included (slower;
    /// initiations by extended-shadow are always counted so)
    #[arg(long)]
    pub(crate) prove: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecvFile {
    /// Port to listen at, not zero
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    /// Write the file here
    #[arg(long, value_name = "PATH")]
    pub(crate) out: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) progress: ProgressArgs,
    /// Refuse transfers by TCP
    #[arg(long)]
    pub(crate) no_tcp: bool,
    /// Accept transfers by TCP (so it is anyway)
    #[arg(long, alias = "listen", hide = true, conflicts_with = "no_tcp")]
    pub(crate) tcp: bool,
    /// TCP port to listen on, when a sender requests it
    #[arg(long, value_name = "PORT", default_value_t = 7420)]
    pub(crate) tcp_port: u16,
    /// Refuse files that are larger (K, M, G: times 1024)
    #[arg(long, default_value = "1G", value_parser = size)]
    pub(crate) max_size: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Ping {
    /// Listen, and answer the requests of a `ping` of any peer
    #[arg(long, conflicts_with = "number")]
    pub(crate) serve: bool,
    /// Largest number of round trips to measure (ignored with --serve: the peer sends it)
    #[arg(long, default_value_t = 10_000)]
    pub(crate) count: u32,
    /// Bytes of each message
    #[arg(long, default_value = "8", value_parser = size)]
    pub(crate) size: u64,
    /// With --serve: number of peers to serve before ending; 0: unlimited
    #[arg(long, default_value_t = 1)]
    pub(crate) sessions: u32,
    /// Port at which the `ping --serve` listens
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) port: u32,
    #[command(flatten)]
    pub(crate) node: Node,
}

/// Kinds of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    /// Private memory of the process
    Private,
    /// Anonymous memory, shared with children
    Shared,
    /// A file without a name
    Memfd,
    /// Anonymous shared memory of huge pages
    Huge,
    /// A System V shared memory segment
    Sysv,
}

impl From<KindArg> for uldma::memory::Kind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Private => Self::Private,
            KindArg::Shared => Self::Shared,
            KindArg::Memfd => Self::Memfd,
            KindArg::Huge => Self::Huge,
            KindArg::Sysv => Self::SysV,
        }
    }
}

/// A mechanism that keeps pages in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ModeArg {
    /// The driver's pins
    Pinned,
    /// None, by --optimistic
    #[value(skip)]
    Optimistic,
    /// Also mlock(), of the range before and of the segment after
    Mlock,
    /// Also shmctl(SHM_LOCK), for System V segments
    ShmCtl,
}

/// What becomes of a transfer that misses a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MissArg {
    /// It ends at once
    Exception,
    /// It waits while the page is mapped, if that needs no I/O
    LookUp,
    /// It waits until the page comes, from wherever
    PageIn,
}

impl Register {
    /// Returns the mechanism, and the same for the registrar.
    pub(crate) fn mode(&self) -> (ModeArg, Mode) {
        let limit = Duration::from_millis(self.limit_ms.into());
        let mode = match (self.optimistic, self.mode) {
            (Some(MissArg::Exception), _) => Mode::Optimistic(Miss::Exception),
            (Some(MissArg::LookUp), _) => Mode::Optimistic(Miss::LookUp(limit)),
            (Some(MissArg::PageIn), _) => Mode::Optimistic(Miss::PageIn(limit)),
            (None, ModeArg::Mlock) => Mode::Mlock,
            (None, ModeArg::ShmCtl) => Mode::ShmCtl,
            (None, ModeArg::Pinned | ModeArg::Optimistic) => Mode::Pinned,
        };
        match mode {
            Mode::Optimistic(_) => (ModeArg::Optimistic, mode),
            _ => (self.mode, mode),
        }
    }
}

/// An action that makes registered memory stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Disturbance {
    /// Unmap it
    Unmap,
    /// Drop its pages
    Discard,
}

/// A method that moves a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Method {
    /// DMA, started by one store and one load at user level
    ExtendedShadow,
    /// DMA, started by a system call
    Kernel,
    /// Stores into the shared window, copied out by the receiver
    Window,
    /// TCP, for comparison
    Tcp,
}

/// Access rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum AccessArg {
    Read,
    Write,
    ReadWrite,
}

impl From<AccessArg> for uldma::Access {
    fn from(access: AccessArg) -> Self {
        match access {
            AccessArg::Read => Self::Read,
            AccessArg::Write => Self::Write,
            AccessArg::ReadWrite => Self::ReadWrite,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
