// SPDX-License-Identifier: MIT OR Apache-2.0

//! TCP between the same two nodes.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::{poll, PollFd, PollFlags, PollTimeout};
use uldma::measure::Clock;

use super::transport::{Far, Near, Opened, Setup};
use crate::failure::Failure;

/// How long a client tries one address.
const CONNECT: Duration = Duration::from_secs(3);

/// The end that connects.
pub(crate) struct Client {
    stream: TcpStream,
    message: Vec<u8>,
}

impl Client {
    pub(crate) fn new(setup: Setup<'_>, addresses: &[IpAddr], port: u16) -> Result<Self, Failure> {
        let mut stream = connect(addresses, port, setup.timeout)?;
        let token = setup.name.get().to_le_bytes();
        stream.write_all(&token).map_err(failed)?;
        Ok(Self {
            stream,
            message: vec![0x5a; setup.size],
        })
    }
}

impl Near for Client {
    fn round_trips(&mut self, count: u32, clock: &Clock) -> Result<Vec<u64>, Failure> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let before = clock.ticks();
            self.stream.write_all(&self.message).map_err(failed)?;
            self.stream.read_exact(&mut self.message).map_err(failed)?;
            samples.push(clock.ticks() - before);
        }
        Ok(samples)
    }

    fn stream(&mut self, count: u32, clock: &Clock) -> Result<u64, Failure> {
        let began = clock.ticks();
        for _ in 0..count {
            self.stream.write_all(&self.message).map_err(failed)?;
        }
        Ok(began)
    }
}

/// The end that listens.
pub(crate) struct Server {
    listener: TcpListener,
    stream: Option<TcpStream>,
    token: u64,
    timeout: Duration,
    target: Vec<u8>,
}

impl Server {
    pub(crate) fn open(setup: Setup<'_>) -> Result<Opened, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Opened {
            end: Box::new(Self {
                listener,
                stream: None,
                token: setup.name.get(),
                timeout: setup.timeout,
                target: vec![0; setup.size],
            }),
            addresses: own_addresses(),
            port,
        })
    }

    fn parts(&mut self) -> Result<(&mut TcpStream, &mut [u8]), Failure> {
        let none = || Failure::Tcp("no client connected".into());
        let stream = self.stream.as_mut().ok_or_else(none)?;
        Ok((stream, &mut self.target))
    }
}

impl Far for Server {
    fn begin(&mut self) -> Result<(), Failure> {
        if self.stream.is_some() {
            return Ok(());
        }
        self.stream = accept(&self.listener);
        let (token, timeout) = (self.token, self.timeout);
        let (stream, _) = self.parts()?;
        stream.set_nonblocking(false).map_err(failed)?;
        prepare(stream, timeout)?;
        let mut said = [0; 8];
        stream.read_exact(&mut said).map_err(failed)?;
        if u64::from_le_bytes(said) == token {
            Ok(())
        } else {
            Err(Failure::Tcp("an unknown client connected".into()))
        }
    }

    fn round_trips(&mut self, count: u32) -> Result<(), Failure> {
        let (stream, target) = self.parts()?;
        for _ in 0..count {
            stream.read_exact(target).map_err(failed)?;
            stream.write_all(target).map_err(failed)?;
        }
        Ok(())
    }

    fn stream(&mut self, count: u32) -> Result<(), Failure> {
        let (stream, target) = self.parts()?;
        for _ in 0..count {
            stream.read_exact(target).map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(error: std::io::Error) -> Failure {
    Failure::Tcp(error.to_string())
}

fn connect(addresses: &[IpAddr], port: u16, timeout: Duration) -> Result<TcpStream, Failure> {
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

fn prepare(stream: &TcpStream, timeout: Duration) -> Result<(), Failure> {
    let timeout = Some(timeout.max(Duration::from_millis(1)));
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(timeout).map_err(failed)?;
    stream.set_write_timeout(timeout).map_err(failed)
}

/// Waits for a connection. The listener must be non-blocking.
fn accept(listener: &TcpListener) -> Option<TcpStream> {
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

/// Returns this machine's addresses without those of the loopback interface.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = nix::ifaddrs::getifaddrs().into_iter().flatten();
    interfaces
        .filter_map(|interface| Some(interface.address?.as_sockaddr_in()?.ip()))
        .filter(|address| !address.is_loopback())
        .map(IpAddr::V4)
        .collect()
}
