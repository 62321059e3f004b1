// SPDX-License-Identifier: MIT OR Apache-2.0

//! The rival: TCP between the same two nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use uldma::measure::Clock;
use uldma::{Channel, Name};

use crate::failure::Failure;
use crate::figure::Figures;
use crate::peer::{say, unexpected, Answer, Peer, Request};
use crate::timing::{throughput, times};

const ROUND_TRIPS: u32 = 2000;
/// Bytes of a round trip's message, as those of the ring.
const SIZE: usize = 8;
const STREAM: u64 = 32 << 20;
const CHUNK: usize = 256 * 1024;
/// How long to try an address.
const CONNECT: Duration = Duration::from_secs(3);

pub(crate) fn failed(error: std::io::Error) -> Failure {
    Failure::Tcp(error.to_string())
}

/// Round trips, then a stream.
pub(crate) fn measure(
    peer: &mut Peer,
    address: Option<IpAddr>,
    figures: &mut Figures,
) -> Result<(), Failure> {
    let (addresses, port, token) = match peer.ask(&Request::Tcp)? {
        Answer::Listening {
            addresses,
            port,
            token,
        } => (addresses, port, token),
        other => return Err(unexpected(&other)),
    };
    let addresses = address.map_or(addresses, |address| vec![address]);
    let mut stream = connect(&addresses, port, peer.timeout)?;
    stream.write_all(&token.to_le_bytes()).map_err(failed)?;

    let clock = Clock::start();
    let mut message = [0x5a; SIZE];
    let mut samples = Vec::new();
    for round in 0..ROUND_TRIPS + 100 {
        let before = clock.ticks();
        stream.write_all(&message).map_err(failed)?;
        stream.read_exact(&mut message).map_err(failed)?;
        if round >= 100 {
            samples.push(clock.ticks() - before);
        }
    }
    let rtt = times(&clock, &samples, 1);
    figures.add("tcp.rtt.p50", rtt.median(), "ns", None, None);

    let chunk = vec![0xa5; CHUNK];
    let before = clock.ticks();
    for _ in 0..STREAM / CHUNK as u64 {
        stream.write_all(&chunk).map_err(failed)?;
    }
    // One byte says that all of it is there.
    stream.read_exact(&mut [0]).map_err(failed)?;
    let nanoseconds = (clock.ticks() - before) as f64 * clock.rate();
    figures.add(
        "tcp.throughput",
        throughput(STREAM, nanoseconds),
        "MB/s",
        None,
        None,
    );
    Ok(())
}

pub(crate) fn connect(
    addresses: &[IpAddr],
    port: u16,
    timeout: Duration,
) -> Result<TcpStream, Failure> {
    let mut last = Failure::Tcp("the other side has no IP address".into());
    for &address in addresses {
        match TcpStream::connect_timeout(&SocketAddr::new(address, port), CONNECT) {
            Ok(stream) => {
                prepare(&stream, timeout)?;
                return Ok(stream);
            }
            Err(error) => last = Failure::Tcp(format!("connect to {address}: {error}")),
        }
    }
    Err(last)
}

pub(crate) fn prepare(stream: &TcpStream, timeout: Duration) -> Result<(), Failure> {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(timeout).map_err(failed)?;
    stream.set_write_timeout(timeout).map_err(failed)
}

/// The other side: says where to connect, and serves one connection.
pub(crate) fn serve(channel: &mut Channel, timeout: Duration) -> Result<(), Failure> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let token = Name::random()?.get();
    let answer = Answer::Listening {
        addresses: own_addresses(),
        port,
        token,
    };
    say(channel, &answer, timeout)?;
    match accept(&listener) {
        // Whoever cannot reach us does without.
        None => Ok(()),
        Some(stream) => answer_all(stream, token, timeout).or(Ok(())),
    }
}

/// Waits for a connection; the listener must not block.
pub(crate) fn accept(listener: &TcpListener) -> Option<TcpStream> {
    let deadline = Instant::now() + 2 * CONNECT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut fds = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(left).ok()?).ok()?;
        match listener.accept() {
            Ok((stream, _)) => return Some(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock && !left.is_zero() => {}
            Err(_) => return None,
        }
    }
}

fn answer_all(mut stream: TcpStream, token: u64, timeout: Duration) -> Result<(), Failure> {
    stream.set_nonblocking(false).map_err(failed)?;
    prepare(&stream, timeout)?;
    let mut said = [0; 8];
    stream.read_exact(&mut said).map_err(failed)?;
    if u64::from_le_bytes(said) != token {
        return Err(Failure::Tcp("somebody else connected".into()));
    }
    let mut message = [0; SIZE];
    for _ in 0..ROUND_TRIPS + 100 {
        stream.read_exact(&mut message).map_err(failed)?;
        stream.write_all(&message).map_err(failed)?;
    }
    let mut chunk = vec![0; CHUNK];
    for _ in 0..STREAM / CHUNK as u64 {
        stream.read_exact(&mut chunk).map_err(failed)?;
    }
    stream.write_all(b"!").map_err(failed)
}

/// This machine's addresses, other than those of the loopback interface.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
        .filter(|address| !address.is_loopback())
        .map(IpAddr::V4)
        .collect()
}
