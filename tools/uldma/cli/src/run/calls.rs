// SPDX-License-Identifier: MIT OR Apache-2.0

//! Answers the calls of the program, which the library that it has preloaded asks about.

use std::io::{self, ErrorKind, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use super::protocol::{Answer, Request, SIZE};
use super::sockets::{Open, Sockets};

/// Limit of the time that a program takes between two requests of a call.
const PATIENCE: Duration = Duration::from_secs(10);

/// The socket that programs connect to.
pub(super) struct Calls {
    listener: UnixListener,
    name: String,
}

/// One conversation.
struct Call(UnixStream);

impl Calls {
    /// Makes the socket, with a name that is this process's.
    pub(super) fn new() -> io::Result<Self> {
        let name = format!("uldma-run-{}", std::process::id());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        Ok(Self { listener, name })
    }

    /// Returns the name, for the program.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Answers calls, each by a thread of its own, until this process ends.
    pub(super) fn answer(&self, sockets: &Arc<Sockets>) {
        loop {
            let call = match self.listener.accept() {
                Ok((call, _)) => call,
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => continue,
                Err(_) => return,
            };
            // Any process can connect, but only those of this user use its device.
            let peer = getsockopt(&call, sockopt::PeerCredentials);
            if peer.is_ok_and(|peer| peer.uid() == geteuid().as_raw()) {
                let sockets = Arc::clone(sockets);
                thread::spawn(move || Call(call).serve(&sockets));
            }
        }
    }
}

impl Call {
    fn serve(mut self, sockets: &Arc<Sockets>) -> Option<()> {
        self.0.set_read_timeout(Some(PATIENCE)).ok()?;
        match self.next()? {
            Request::Open(to) => match sockets.nodes.find(*to.ip()) {
                Some(node) => self.open(sockets, node, to.port()),
                None => self.say(Answer::Pass),
            },
            Request::Listen(at) if sockets.nodes.reach(at) => {
                self.say(match sockets.listen(at.port()) {
                    Ok(()) => Answer::Done,
                    Err(errno) => refuse(sockets, errno),
                })
            }
            Request::Listen(_) => self.say(Answer::Pass),
            Request::From(_) => None,
        }
    }

    fn open(mut self, sockets: &Arc<Sockets>, node: u32, port: u16) -> Option<()> {
        let opened = sockets.open(node, port).and_then(|open: Open| {
            let to = open.address()?;
            Ok((open, to))
        });
        let (open, to) = match opened {
            Ok(opened) => opened,
            Err(errno) => return self.say(refuse(sockets, errno)),
        };
        let own = sockets.nodes.own();
        self.say(Answer::Via { own, to })?;
        let Request::From(from) = self.next()? else {
            return None;
        };
        self.say(Answer::Done)?;
        drop(self);
        sockets.join(open, from);
        Some(())
    }

    fn next(&mut self) -> Option<Request> {
        let mut packet = [0; SIZE];
        self.0.read_exact(&mut packet).ok()?;
        Request::decode(&packet)
    }

    fn say(&mut self, answer: Answer) -> Option<()> {
        self.0.write_all(&answer.encode()).ok()
    }
}

fn refuse(sockets: &Sockets, errno: Errno) -> Answer {
    sockets.totals.refused();
    Answer::Fail(errno as i32)
}
