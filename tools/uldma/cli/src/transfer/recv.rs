// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma recv-file`.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::ops::Deref;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use serde::Serialize;
use uldma::connection::Link;
use uldma::{Access, Buffer, Channel, ChannelListener, Device, Name, Spin};

use super::{
    digest, protocol_error, receive_message, send_message, Listening, Message, CAPACITY, VERSION,
};
use crate::args::{Common, Method, RecvFile};
use crate::failure::{Failure, Kind, Result};
use crate::output;
use crate::progress::{Progress, Style};
use crate::schema::SCHEMA_VERSION;

/// Time for which the receiver waits until the sender has read the digest.
const FAREWELL: Duration = Duration::from_secs(5);

#[derive(Debug, Serialize)]
struct Report {
    schema_version: u32,
    method: Method,
    bytes: u64,
    sha256: String,
    /// From being ready until the sender reported the end.
    seconds: f64,
    mb_per_s: f64,
}

/// The received bytes: the first `length` bytes of a buffer.
pub(super) struct Received {
    buffer: Buffer,
    length: usize,
    seconds: f64,
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer[..self.length]
    }
}

/// Runs the verb.
pub(crate) fn run(common: &Common, args: &RecvFile) -> Result<()> {
    let device = common.open()?;
    let listener = ChannelListener::new(&device, args.port, 1, CAPACITY)?;
    let (mut channel, _) = listener.accept(common.timeout)?;
    // Another sender is to be refused.
    drop(listener);
    // Control messages are not urgent; the processors should move the bytes.
    channel.set_spin(Spin::Never);
    let report = receive(common, args, &device, &mut channel);
    if let Err(failure) = &report {
        let message = failure.message.clone();
        let _ = send_message(&mut channel, &Message::Failed { message }, Duration::ZERO);
    }
    // The sender still reads the last message: let it close first.
    let _ = channel.wait_closed(FAREWELL);
    output::print(common.json, &report?, |report| {
        format!(
            "{} bytes, {:.6} s, {:.1} MB/s\nsha256 {}",
            report.bytes, report.seconds, report.mb_per_s, report.sha256
        )
    })
}

fn receive(
    common: &Common,
    args: &RecvFile,
    device: &Device,
    channel: &mut Channel<impl Link>,
) -> Result<Report> {
    let (method, bytes) = match receive_message(channel, common.timeout)? {
        Message::Offer {
            version: VERSION,
            method,
            bytes,
        } => (method, bytes),
        Message::Offer { version, .. } => {
            let text = format!("the sender speaks version {version}, this side {VERSION}");
            return Err(Failure::new(Kind::Peer, text));
        }
        other => return Err(protocol_error(other)),
    };
    let length = usize::try_from(bytes)
        .ok()
        .filter(|_| bytes <= args.max_size)
        .ok_or_else(|| {
            let text = format!("{bytes} bytes are more than --max-size, {}", args.max_size);
            Failure::new(Kind::Failed, text)
        })?;
    let arrived = match method {
        Method::ExtendedShadow | Method::Kernel => by_dma(common, device, channel, length)?,
        Method::Window => by_window(common, args, channel, length)?,
        Method::Tcp if args.no_tcp => {
            let text = "the receiver refuses TCP (--no-tcp)";
            return Err(Failure::new(Kind::Failed, text));
        }
        Method::Tcp => by_tcp(common, args, channel, length)?,
    };
    let sha256 = digest(&arrived, Style::new(common, &args.progress));
    if let Some(path) = &args.out {
        std::fs::write(path, &*arrived).map_err(|error| Failure::io(path.display(), &error))?;
    }
    send_message(
        channel,
        &Message::Digest {
            bytes,
            sha256: sha256.clone(),
        },
        common.timeout,
    )?;
    Ok(Report {
        schema_version: SCHEMA_VERSION,
        method,
        bytes,
        sha256,
        seconds: arrived.seconds,
        mb_per_s: output::megabytes_per_second(bytes, arrived.seconds),
    })
}

/// Receives by DMA: the sender's device writes into an exported region.
fn by_dma(
    common: &Common,
    device: &Device,
    channel: &mut Channel<impl Link>,
    length: usize,
) -> Result<Received> {
    let region = device.register(Buffer::new(length.max(1))?, Access::Write)?;
    // Only a peer that has received the name can write there.
    let name = Name::random()?;
    let export = region.export(name, Access::Write)?;
    send_message(
        channel,
        &Message::Ready {
            region: Some(name.get()),
            tcp: None,
        },
        common.timeout,
    )?;
    let start = Instant::now();
    done(common, channel)?;
    let seconds = start.elapsed().as_secs_f64();
    // From here on no peer can write: the digest is that of the file.
    drop(export);
    Ok(Received {
        buffer: region.unregister()?,
        length,
        seconds,
    })
}

/// Receives by the window: the sender writes into the ring, and this side copies out of it.
pub(super) fn by_window(
    common: &Common,
    args: &RecvFile,
    channel: &mut Channel<impl Link>,
    length: usize,
) -> Result<Received> {
    let mut buffer = Buffer::new(length.max(1))?;
    send_message(
        channel,
        &Message::Ready {
            region: None,
            tcp: None,
        },
        common.timeout,
    )?;
    channel.set_spin(Spin::Adaptive);
    let progress = progress(common, args, length);
    let start = Instant::now();
    let mut filled = 0;
    while filled < length {
        let arrived = channel.receive(&mut buffer[filled..length], common.timeout)?;
        if arrived == 0 {
            return Err(protocol_error("an empty chunk"));
        }
        filled += arrived;
        progress.inc(arrived);
    }
    progress.finish();
    done(common, channel)?;
    Ok(Received {
        buffer,
        length,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The rival.
pub(super) fn by_tcp(
    common: &Common,
    args: &RecvFile,
    channel: &mut Channel<impl Link>,
    length: usize,
) -> Result<Received> {
    let failed = |error: std::io::Error| Failure::io(format!("TCP port {}", args.tcp_port), &error);
    let mut buffer = Buffer::new(length.max(1))?;
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, args.tcp_port)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let token = Name::random()?.get();
    let listening = Listening {
        addresses: own_addresses(),
        port: listener.local_addr().map_err(failed)?.port(),
        token,
    };
    send_message(
        channel,
        &Message::Ready {
            region: None,
            tcp: Some(listening),
        },
        common.timeout,
    )?;
    let start = Instant::now();
    if length > 0 {
        let mut stream = accept(&listener, common.timeout).map_err(failed)?;
        let mut said = [0; 8];
        stream.read_exact(&mut said).map_err(failed)?;
        if u64::from_le_bytes(said) != token {
            return Err(Failure::new(Kind::Peer, "another program connected by TCP"));
        }
        let progress = progress(common, args, length);
        for chunk in buffer[..length].chunks_mut(1 << 20) {
            stream.read_exact(chunk).map_err(failed)?;
            progress.inc(chunk.len());
        }
        progress.finish();
        // One byte reports that all bytes have arrived.
        stream.write_all(b"!").map_err(failed)?;
    }
    done(common, channel)?;
    Ok(Received {
        buffer,
        length,
        seconds: start.elapsed().as_secs_f64(),
    })
}

fn progress(common: &Common, args: &RecvFile, length: usize) -> Progress {
    let style = Style::new(common, &args.progress);
    Progress::new(style, "receive", Some(length as u64))
}

/// Returns this machine's addresses, except those of the loopback interface.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
        .filter(|address| !address.is_loopback())
        .map(IpAddr::V4)
        .collect()
}

/// Waits for a connection. A listener that does not block is needed where one may go away again
/// between the two calls.
fn accept(listener: &TcpListener, timeout: Duration) -> std::io::Result<TcpStream> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        let most = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, most)?;
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
                return Ok(stream);
            }
            Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => return Err(error),
            Err(_) if left.is_zero() => return Err(std::io::ErrorKind::TimedOut.into()),
            Err(_) => {}
        }
    }
}

fn done(common: &Common, channel: &mut Channel<impl Link>) -> Result<()> {
    match receive_message(channel, common.timeout)? {
        Message::Done => Ok(()),
        other => Err(protocol_error(other)),
    }
}
