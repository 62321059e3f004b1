// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma send-file`.

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use serde::Serialize;
use uldma::connection::Link;
use uldma::measure::Clock;
use uldma::transfer::Started;
use uldma::{Access, Buffer, Channel, Context, Device, Error, Import, Name, Region, Spin};
use uldma_papers::tracer::Tracer;

use super::{
    digest, protocol_error, receive_message, send_message, Listening, Message, CAPACITY, CHUNK,
    VERSION,
};
use crate::args::{Common, Method, SendFile};
use crate::dma::warn;
use crate::failure::{Failure, Kind, Result};
use crate::file;
use crate::output::{self, or_dash};
use crate::progress::{Progress, Style};
use crate::schema::SCHEMA_VERSION;

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    method: Method,
    bytes: u64,
    sha256: String,
    /// From the first initiation until all bytes have arrived, without preparation and digest.
    seconds: f64,
    mb_per_s: f64,
    /// With `--warm`: time of the first transfer, in which the device touched the memory first.
    #[serde(skip_serializing_if = "Option::is_none")]
    first_seconds: Option<f64>,
    #[serde(flatten)]
    counts: SendCounts,
}

/// Cost of moving the bytes.
#[derive(Debug, Default, Serialize)]
pub(super) struct SendCounts {
    /// System calls that start the transfer; with window and tcp, those that move the bytes.
    syscalls: Option<u64>,
    /// Counter of the system calls: "ptrace" from outside, or the "library" itself.
    syscalls_counted_by: Option<&'static str>,
    /// System calls that wait for the end, counted by the library.
    wait_syscalls: Option<u64>,
    /// Loads from the device by this process, by the device's count.
    mmio_loads: Option<u64>,
    mmio_stores: Option<u64>,
    initiations: Option<u64>,
}

/// Destination at the receiver.
pub(super) struct Target {
    pub(super) region: Option<Name>,
    pub(super) tcp: Option<Listening>,
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &SendFile) -> Result<()> {
    let device = common.open()?;
    let (buffer, length) = file::read(&args.path)?;
    let sha256 = digest(&buffer[..length], Style::new(common, &args.progress));

    let (peer, options) = (args.node.peer(), common.connect());
    let mut channel = Channel::connect(&device, peer, args.port, CAPACITY, options)?;
    // Control messages are not urgent; the processors should move the bytes.
    channel.set_spin(Spin::Never);
    let report = send(common, args, &device, &mut channel, buffer, length, sha256);
    if let Err(failure) = &report {
        let message = failure.message.clone();
        let _ = send_message(&mut channel, &Message::Failed { message }, Duration::ZERO);
    }
    output::print(common.json, &report?, words)
}

fn send(
    common: &Common,
    args: &SendFile,
    device: &Device,
    channel: &mut Channel<impl Link>,
    buffer: Buffer,
    length: usize,
    sha256: String,
) -> Result<Report> {
    let bytes = length as u64;
    let offer = Message::Offer {
        version: VERSION,
        method: args.method,
        bytes,
    };
    send_message(channel, &offer, common.timeout)?;
    let target = match receive_message(channel, common.timeout)? {
        Message::Ready { region, tcp } => Target {
            region: region.and_then(Name::new),
            tcp,
        },
        other => return Err(protocol_error(other)),
    };
    let mut first_seconds = None;
    let (seconds, counts) = match args.method {
        _ if length == 0 => (0.0, SendCounts::default()),
        Method::ExtendedShadow | Method::Kernel => {
            let name = target.region.ok_or_else(|| protocol_error("no region"))?;
            let region = device.register(buffer, Access::Read)?;
            let import =
                device.import_from(args.node.peer(), name, Access::Write, common.timeout)?;
            let context = match args.method {
                Method::Kernel => None,
                _ => Some(device.context()?),
            };
            let by_dma = || match &context {
                Some(context) => by_shadow(common, args, context, (&region, &import), bytes),
                None => by_kernel(common, args, device, (&region, &import), bytes),
            };
            if args.warm {
                first_seconds = Some(by_dma()?.0);
            }
            by_dma()?
        }
        Method::Window => by_window(common, args, channel, &buffer[..length])?,
        Method::Tcp => by_tcp(common, args, &target, &buffer[..length])?,
    };
    send_message(channel, &Message::Done, common.timeout)?;
    match receive_message(channel, common.timeout)? {
        Message::Digest {
            bytes: arrived,
            sha256: theirs,
        } => {
            if (arrived, &theirs) != (bytes, &sha256) {
                let text = format!("{bytes} bytes {sha256} were sent, {arrived} {theirs} arrived");
                return Err(Failure::new(Kind::Mismatch, text));
            }
        }
        other => return Err(protocol_error(other)),
    }
    let mb_per_s = output::megabytes_per_second(bytes, seconds);
    let method = args.method;
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        method,
        bytes,
        sha256,
        seconds,
        mb_per_s,
        first_seconds,
        counts,
    })
}

/// Bytes of the transfer whose start is watched.
const WORD: u64 = 8;

/// Moves the bytes by one store and one load, then waits.
fn by_shadow(
    common: &Common,
    args: &SendFile,
    context: &Context,
    (region, import): (&Region, &Import),
    bytes: u64,
) -> Result<(f64, SendCounts)> {
    let (from, to) = (context.shadow(region)?, context.shadow(import)?);
    let wait = (Spin::Adaptive, common.timeout);
    let start =
        |started: &mut Started, bytes| context.start(started, (&from, 0), (&to, 0), bytes, wait);
    let (mut started, mut waiting) = (Started::new(), 0);
    let before = context.stats()?;
    let (seconds, outside) = watched(args.prove, || {
        start(&mut started, bytes)?;
        let calls = uldma::measure::calls();
        context.finish(&mut started, wait)?;
        waiting = uldma::measure::calls() - calls;
        Ok(())
    })?;
    let counted = context.stats()?.since(&before);
    let syscalls = match (outside, Tracer::attach().map_err(warn)) {
        (None, Ok(tracer)) => {
            // The tracer's marks take longer than the transfer, so it watches how the first word is
            // sent once more.
            let mut again = Started::new();
            let (result, watched) = tracer.watch(|| start(&mut again, bytes.min(WORD)));
            result?;
            context.finish(&mut again, wait)?;
            let count = watched.count().map_err(warn).ok();
            count.map(|count| count.total * started.initiations)
        }
        (outside, _) => outside,
    };
    let counts = SendCounts {
        syscalls,
        syscalls_counted_by: syscalls.map(|_| "ptrace"),
        wait_syscalls: outside.is_none().then_some(waiting),
        mmio_loads: Some(counted.loads()),
        mmio_stores: Some(counted.stores()),
        initiations: Some(started.initiations),
    };
    Ok((seconds, counts))
}

/// Moves the bytes by one system call that starts the transfer, and one that waits.
fn by_kernel(
    common: &Common,
    args: &SendFile,
    device: &Device,
    (region, import): (&Region, &Import),
    bytes: u64,
) -> Result<(f64, SendCounts)> {
    let most = device.query()?.max_transfer.max(1);
    let (mut starting, mut waiting, mut initiations) = (0, 0, 0);
    let (seconds, outside) = watched(args.prove, || {
        let mut offset = 0;
        while offset < bytes {
            let length = most.min(bytes - offset);
            let before = uldma::measure::calls();
            let ticket = device.dma((region, offset), (import, offset), length)?;
            let between = uldma::measure::calls();
            device.dma_wait(ticket, common.timeout)?;
            starting += between - before;
            waiting += uldma::measure::calls() - between;
            initiations += 1;
            offset += length;
        }
        Ok(())
    })?;
    let counts = SendCounts {
        syscalls: Some(outside.unwrap_or(starting)),
        syscalls_counted_by: Some(if outside.is_some() {
            "ptrace"
        } else {
            "library"
        }),
        wait_syscalls: outside.is_none().then_some(waiting),
        initiations: Some(initiations),
        ..Default::default()
    };
    Ok((seconds, counts))
}

/// Sends by stores into the peer's memory, through the ring.
pub(super) fn by_window(
    common: &Common,
    args: &SendFile,
    channel: &mut Channel<impl Link>,
    bytes: &[u8],
) -> Result<(f64, SendCounts)> {
    channel.set_spin(Spin::Adaptive);
    let progress = progress(common, args, bytes);
    let before = uldma::measure::calls();
    let (seconds, outside) = watched(args.prove, || {
        for chunk in bytes.chunks(CHUNK) {
            channel.send(chunk, common.timeout)?;
            progress.inc(chunk.len());
        }
        Ok(())
    })?;
    progress.finish();
    Ok((seconds, moved(outside, uldma::measure::calls() - before)))
}

/// The rival.
pub(super) fn by_tcp(
    common: &Common,
    args: &SendFile,
    target: &Target,
    bytes: &[u8],
) -> Result<(f64, SendCounts)> {
    let listening = target
        .tcp
        .as_ref()
        .ok_or_else(|| protocol_error("no TCP port"))?;
    let progress = progress(common, args, bytes);
    let mut stream = connect(listening, args.peer_addr, common.timeout)?;
    let mut calls = 0;
    let (seconds, outside) = watched(args.prove, || {
        let mut rest = bytes;
        while !rest.is_empty() {
            calls += 1;
            let length = stream.write(&rest[..rest.len().min(1 << 20)])?;
            progress.inc(length);
            rest = &rest[length..];
        }
        // The peer reports that it has everything: the end of the transfer, as with DMA.
        calls += 2;
        stream.shutdown(std::net::Shutdown::Write)?;
        let mut end = [0; 1];
        std::io::Read::read_exact(&mut stream, &mut end)?;
        Ok(())
    })?;
    progress.finish();
    Ok((seconds, moved(outside, calls)))
}

fn progress(common: &Common, args: &SendFile, bytes: &[u8]) -> Progress {
    let style = Style::new(common, &args.progress);
    Progress::new(style, "send", Some(bytes.len() as u64))
}

/// Connects to the first address that answers, and writes the token.
fn connect(listening: &Listening, only: Option<IpAddr>, timeout: Duration) -> Result<TcpStream> {
    let timeout = timeout.max(Duration::from_millis(1));
    let addresses = only.map_or(listening.addresses.clone(), |address| vec![address]);
    let each = timeout / u32::try_from(addresses.len().max(1)).unwrap_or(1);
    let mut last = Failure::new(Kind::Peer, "the other side has no IP address");
    for address in addresses {
        let address = SocketAddr::new(address, listening.port);
        let failed = |error| Failure::io(format!("TCP to {address}"), &error);
        match TcpStream::connect_timeout(&address, each) {
            Ok(mut stream) => {
                stream.set_write_timeout(Some(timeout)).map_err(failed)?;
                stream.set_read_timeout(Some(timeout)).map_err(failed)?;
                stream
                    .write_all(&listening.token.to_le_bytes())
                    .map_err(failed)?;
                return Ok(stream);
            }
            Err(error) => last = failed(error),
        }
    }
    Err(last)
}

/// Failures of both worlds.
enum TransferError {
    Uldma(Error),
    Io(std::io::Error),
}

impl From<Error> for TransferError {
    fn from(error: Error) -> Self {
        Self::Uldma(error)
    }
}

impl From<std::io::Error> for TransferError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<TransferError> for Failure {
    fn from(error: TransferError) -> Self {
        match error {
            TransferError::Uldma(error) => error.into(),
            TransferError::Io(error) => Failure::io("TCP", &error),
        }
    }
}

/// Times a transfer and, if requested, counts its system calls from outside.
fn watched(
    prove: bool,
    work: impl FnOnce() -> std::result::Result<(), TransferError>,
) -> Result<(f64, Option<u64>)> {
    let tracer = if prove {
        Tracer::attach().map_err(warn).ok()
    } else {
        None
    };
    let clock = Clock::start();
    let (mut start, mut end) = (0, 0);
    let timed = || {
        start = clock.ticks();
        let result = work();
        end = clock.ticks();
        result
    };
    let count = match tracer {
        Some(tracer) => {
            let (result, count) = tracer.count(timed);
            result?;
            count.map_err(warn).ok().map(|count| count.total)
        }
        None => {
            timed()?;
            None
        }
    };
    Ok(((end - start) as f64 * clock.rate() / 1e9, count))
}

fn moved(outside: Option<u64>, calls: u64) -> SendCounts {
    SendCounts {
        syscalls: Some(outside.unwrap_or(calls)),
        syscalls_counted_by: Some(if outside.is_some() {
            "ptrace"
        } else {
            "library"
        }),
        ..Default::default()
    }
}

fn words(report: &Report) -> String {
    let counts = &report.counts;
    format!(
        "{} bytes by {}: {:.6} s, {:.1} MB/s; {} system calls, {} MMIO stores, {} MMIO loads, {} \
         initiations\nsha256 {}: the same on both sides",
        report.bytes,
        serde_json::to_value(report.method).map_or(String::new(), |name| {
            name.as_str().unwrap_or_default().to_owned()
        }),
        report.seconds,
        report.mb_per_s,
        or_dash(counts.syscalls),
        or_dash(counts.mmio_stores),
        or_dash(counts.mmio_loads),
        or_dash(counts.initiations),
        report.sha256,
    )
}
