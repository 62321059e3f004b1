// SPDX-License-Identifier: MIT OR Apache-2.0

//! The conversation with `uldma run`, about one call of the program.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::OnceLock;

use nix::errno::Errno;

use crate::protocol::{Answer, Request, SIZE, VARIABLE};

/// A connection to `uldma run`.
pub(crate) struct Broker(UnixStream);

impl Broker {
    /// Connects; none if the program was not started by `uldma run`, or that has ended.
    pub(crate) fn find() -> Option<Self> {
        static NAME: OnceLock<Option<String>> = OnceLock::new();
        let name = NAME.get_or_init(|| std::env::var(VARIABLE).ok()).as_ref()?;
        let address = SocketAddr::from_abstract_name(name).ok()?;
        UnixStream::connect_addr(&address).ok().map(Self)
    }

    /// Sends a request and waits for its answer, which `uldma run` gives within its `--timeout`.
    ///
    /// # Errors
    ///
    /// ENETUNREACH: it has ended.
    pub(crate) fn ask(&mut self, request: Request) -> Result<Answer, Errno> {
        let mut packet = [0; SIZE];
        let asked = self.0.write_all(&request.encode());
        let answered = asked.and_then(|()| self.0.read_exact(&mut packet));
        let answer = answered.ok().and_then(|()| Answer::decode(&packet));
        answer.ok_or(Errno::ENETUNREACH)
    }
}
