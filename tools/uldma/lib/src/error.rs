// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of the library, and hints for the user.

pub(crate) mod name;
pub(crate) mod peer;

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use crate::error::peer::Peer;
use crate::method::refusal::Refusal;
use crate::method::Method;
use crate::ring::{layout, RingError, Violation};
use crate::sys::memlock::Memlock;

pub use name::BadName;

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Reason for which an operation failed. The text describes the failure; [`Error::hint`] what to
/// do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device file.
    #[error("no device: {}", .0.display())]
    NoDevice(PathBuf),
    /// The device file exists and may not be opened.
    #[error("no permission to open {}", .0.display())]
    Permission(PathBuf),
    /// The kernel module has another version of the interface than this library.
    #[error("the kernel module has interface version {kernel}, this program has {library}")]
    Abi {
        /// Version of the kernel module.
        kernel: u32,
        /// Version of this library.
        library: u32,
    },
    /// A system call failed.
    #[error("{action}: {}", .errno.desc())]
    System {
        /// The operation and its arguments.
        action: String,
        /// The kernel's answer.
        errno: Errno,
        /// Advice for the user, when known.
        hint: Option<String>,
    },
    /// The call names a peer that cannot be addressed, or none where there are several.
    #[error("{reason}")]
    NoPeer {
        /// The reason for which it cannot be used.
        reason: String,
        /// The peers that exist.
        hint: String,
    },
    /// The device refused to start a transfer.
    #[error("the device refused the transfer: {0}")]
    Refused(#[from] Refusal),
    /// A transfer started and failed.
    #[error("transfer {ticket} failed after {bytes} bytes: {status}")]
    Transfer {
        /// Ticket of the transfer.
        ticket: u64,
        /// Bytes moved before.
        bytes: u64,
        /// Reason of the failure.
        status: Refusal,
    },
    /// The method needs a feature that this system does not have.
    #[error("the method {method} cannot be used here: {why}")]
    Method {
        /// The method.
        method: Method,
        /// The missing requirement.
        why: &'static str,
    },
    /// The technique cannot be used for this.
    #[error("{direction} by {technique}: {why}")]
    Technique {
        /// Sending or receiving.
        direction: &'static str,
        /// The technique.
        technique: &'static str,
        /// The reason.
        why: &'static str,
    },
    /// An earlier message was sent in part, so that no other one can follow it.
    #[error("an earlier message was sent in part: the connection can send no more")]
    Torn,
    /// The record of a transfer's end was overwritten by later ones before it was read.
    #[error("the completion record of transfer {0} was overwritten")]
    RecordLost(u64),
    /// An event did not happen in time.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// The event that was awaited.
        what: String,
        /// For how long.
        after: Duration,
    },
    /// An offset or length is outside of the object.
    #[error("{length} bytes at offset {offset} do not fit in {size} bytes")]
    Range {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Bytes that there are.
        size: u64,
    },
    /// The peer broke the rules of a ring; the ring cannot be used any more.
    #[error("the peer broke the rules of the ring: {0}")]
    Violation(#[from] Violation),
    /// The peer closed the channel.
    #[error("the peer closed the channel")]
    Closed,
    /// The process that listens expects another kind of connection, or another version of that kind.
    #[error(
        "the process that listens at port {port} of {peer} expects another {what} of connection"
    )]
    OtherKind {
        /// The node of the process that listens.
        peer: Peer,
        /// Its port.
        port: u32,
        /// `kind`, or `version of this kind`.
        what: &'static str,
    },
    /// The link to the peer went down.
    #[error("the link to the peer is down")]
    LinkDown,
    /// A message is longer than the ring or the buffer has room for.
    #[error("a message of {length} bytes is longer than {limit} bytes")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Largest number of bytes that fits.
        limit: usize,
    },
}

impl Error {
    /// Builds the error of a system call, with advice for the errno.
    pub(crate) fn system(action: impl Into<String>, errno: Errno) -> Self {
        Self::System {
            action: action.into(),
            errno,
            hint: hint(errno).map(str::to_owned),
        }
    }

    /// Builds the error for rings that cannot have that many bytes.
    pub(crate) fn capacity(bytes: u64) -> Self {
        Self::Range {
            offset: 0,
            length: bytes,
            size: layout::MAX_CAPACITY,
        }
    }

    /// Builds the error of a registration; for ENOMEM it names the limit that was exceeded.
    pub(crate) fn registration(
        length: u64,
        needed: u64,
        pinned: Option<u64>,
        errno: Errno,
    ) -> Self {
        let hint = match errno {
            Errno::ENOMEM | Errno::EPERM => Some(Memlock::read().advice(needed, pinned)),
            Errno::EFAULT => Some(
                "all of the memory must be mapped, and writable if the device is to write it"
                    .to_owned(),
            ),
            Errno::EOPNOTSUPP => Some(
                "memory of this kind cannot be pinned: a device's, DAX, or a file's that is mapped \
                 shared for writing; use anonymous memory, a memfd or shared memory"
                    .to_owned(),
            ),
            Errno::ENOSPC => Some(
                "a table of the device is full (`uldma info`), or this open file has as many regions \
                 as the module's max_file_regions allows (`uldma lmm`)"
                    .to_owned(),
            ),
            _ => hint(errno).map(str::to_owned),
        };
        Self::System {
            action: format!("register {length} bytes"),
            errno,
            hint,
        }
    }

    /// Builds the error of a connection's call.
    pub(crate) fn connection(action: impl Into<String>, errno: Errno) -> Self {
        let hint = match errno {
            Errno::ENOTCONN => {
                Some("the link to the peer is down, or there is no connection (any more)")
            }
            Errno::ENOSPC => Some(
                "too many buffers are given and not got back, or a table of the device is full",
            ),
            Errno::EOPNOTSUPP => {
                Some("without an engine, and through the window, receivers cannot move the data")
            }
            Errno::EPERM => Some(
                "the file was opened in another process, or memory may not be locked at all \
                 (`ulimit -l`)",
            ),
            Errno::ENOMEM => Some("RLIMIT_MEMLOCK would be exceeded: `uldma lmm`"),
            Errno::EINVAL => Some("ports, lengths and backlogs are not zero"),
            Errno::ENOENT => Some("there is no listener at that port any more"),
            Errno::ETIMEDOUT => Some("the peer did not answer in time: is its driver loaded?"),
            _ => hint(errno),
        };
        Self::System {
            action: action.into(),
            errno,
            hint: hint.map(str::to_owned),
        }
    }

    /// Builds the error of a look-up at the peer.
    pub(crate) fn lookup(
        what: &str,
        name: impl fmt::Display,
        timeout: Duration,
        errno: Errno,
    ) -> Self {
        let hint = match errno {
            Errno::ENOENT => Some(format!("the peer has no {what} of that name (yet)")),
            Errno::ETIMEDOUT => Some(format!(
                "no answer within {timeout:?}: is the peer's driver loaded, and does the other \
                 side offer its {what} under that name?"
            )),
            Errno::EACCES => Some("the peer's export allows fewer rights than requested".into()),
            _ => hint(errno).map(str::to_owned),
        };
        Self::System {
            action: format!("find {what} {name} at the peer"),
            errno,
            hint,
        }
    }

    /// Builds the error of creating a context.
    pub(crate) fn context(method: Method, errno: Errno) -> Self {
        let hint = match errno {
            Errno::EPERM if !method.is_secure() => Some(format!(
                "{method} lets other processes interfere, and is there for comparison: load the \
                 module with insecure_methods=1"
            )),
            Errno::EOPNOTSUPP => Some(format!(
                "the device, or the kernel, has no {method}: see `uldma info`"
            )),
            _ => hint(errno).map(str::to_owned),
        };
        Self::System {
            action: format!("create a register context for {method}"),
            errno,
            hint,
        }
    }

    /// Returns advice for the user in one sentence, when known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::NoDevice(_) => Some(
                "load the module (modprobe uldma, or insmod uldma.ko) and check that the PCI \
                 device is there (lspci -d 1b36:00f7)",
            ),
            Self::Permission(_) => {
                Some("run as root, or give this user access to the device file (a udev rule)")
            }
            Self::Abi { .. } => Some("install module and tools from the same release"),
            Self::System { hint, .. } => hint.as_deref(),
            Self::NoPeer { hint, .. } => Some(hint),
            Self::Refused(why) | Self::Transfer { status: why, .. } => why.hint(),
            Self::Technique { .. } => Some("choose another technique: copy-dma always works"),
            Self::Method { .. } => Some("choose another method: `uldma info` lists them"),
            Self::RecordLost(_) => Some("wait for at most 64 transfers behind the newest"),
            Self::Timeout { .. } => Some("is the other side running, under the same name or port?"),
            Self::Violation(_) => Some("the programs on both nodes must be of the same release"),
            Self::Closed => Some("check the messages of the program on the other node"),
            Self::OtherKind { .. } => Some(
                "use the same program of the same release, with --ring on both sides or on none",
            ),
            Self::LinkDown => Some("the driver must be loaded on both nodes"),
            Self::Torn => Some("make a new connection, and allow more time for long messages"),
            Self::Range { .. } | Self::TooLong { .. } => None,
        }
    }

    /// Returns true if the connection was reset: by the peer, or because the link went down.
    pub fn is_reset(&self) -> bool {
        self.errno() == Some(Errno::ECONNRESET)
    }

    /// Returns true if a peer that has broken the rules, or has left, is the reason.
    pub(crate) fn is_of_peer(&self) -> bool {
        match self {
            Self::Violation(_) | Self::Closed | Self::LinkDown => true,
            other => matches!(other.errno(), Some(Errno::ENOTCONN | Errno::ECONNRESET)),
        }
    }

    /// Returns the errno of a failed system call.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            Self::NoPeer { .. } => Some(Errno::EINVAL),
            _ => None,
        }
    }
}

impl From<RingError> for Error {
    fn from(error: RingError) -> Self {
        match error {
            RingError::Violation(violation) => Self::Violation(violation),
            RingError::Closed => Self::Closed,
            RingError::TooLong { length, limit } => Self::TooLong { length, limit },
        }
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match &error {
            Error::Timeout { .. } => io::ErrorKind::TimedOut,
            Error::Closed | Error::LinkDown => io::ErrorKind::BrokenPipe,
            other => other.errno().map_or(io::ErrorKind::Other, |errno| {
                io::Error::from_raw_os_error(errno as i32).kind()
            }),
        };
        io::Error::new(kind, error)
    }
}

/// Returns advice for an errno of the user interface.
fn hint(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ENOTTY => "the file is not a uldma device, or the module is older than this program",
        Errno::EPERM => {
            "the device was opened by another process (or before fork()): open it again here"
        }
        Errno::EACCES => "the region was not registered or exported with the right that is needed",
        Errno::ENOSPC => {
            "a table is full: end other users of the device, or see `uldma info` for the limits"
        }
        Errno::EDQUOT => {
            "this user's share of the device is used up (`uldma info`): free some of it, or raise \
             the module's user_* parameters"
        }
        Errno::EBADF => "the device was opened for reading only: open it for reading and writing",
        Errno::EEXIST => "the name is taken on this node: choose another",
        Errno::EBUSY => "all register contexts are taken, or the queue is full: see `uldma info`",
        Errno::ENXIO => "create a register context first",
        Errno::EREMOTEIO => {
            "the device cannot reach this memory directly: it lies beyond the device's address \
             bits and no IOMMU translates, or the IOMMU has no addresses left"
        }
        Errno::ENOTCONN => "the link is down: the driver must be loaded on both nodes",
        Errno::ETIMEDOUT => "the peer or the device did not answer in time",
        Errno::ESTALE => "the link went down: import or attach again",
        Errno::EPROTO => "module versions of the two nodes differ?",
        Errno::ECONNREFUSED => {
            "no process listens at that port of the peer, or its backlog is full"
        }
        Errno::ECONNRESET => {
            "the link to the peer went down, or one of the two sides was killed or broke the rules"
        }
        Errno::EPIPE => "the connection was disconnected: nothing can be sent any more",
        Errno::EISCONN => {
            "this open file has a connection, or listens, already: open the device again"
        }
        Errno::EADDRINUSE => "a process listens at that port of this node already: choose another",
        Errno::EAGAIN => "nothing is ready: wait by poll(), or without O_NONBLOCK",
        Errno::ENODEV => "the device was removed (driver unbound or module unloaded)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_insecure_method_names_the_modules_parameter() {
        let hint = |method, errno| {
            let error = Error::context(method, errno);
            error.hint().unwrap_or_default().to_owned()
        };
        assert!(hint(Method::Repeated3, Errno::EPERM).contains("insecure_methods=1"));
        assert!(!hint(Method::Repeated5, Errno::EPERM).contains("insecure_methods"));
        assert!(hint(Method::Flash, Errno::EOPNOTSUPP).contains("no flash"));
    }

    #[test]
    fn running_out_of_memlock_names_the_limit() {
        let error = Error::registration(1 << 20, 1 << 20, Some(4096), Errno::ENOMEM);
        let hint = error.hint().unwrap();
        assert!(hint.contains("RLIMIT_MEMLOCK"), "{hint}");
    }
}
