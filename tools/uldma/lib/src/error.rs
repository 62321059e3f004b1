// SPDX-License-Identifier: MIT OR Apache-2.0

//! What can go wrong, and what to do about it.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::errno::Errno;

use crate::memlock::Memlock;
use crate::ring::Violation;
use crate::{uapi, Method, Name};

/// Result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why an operation failed. The text says what failed; [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such device file.
    #[error("no device: {}", .0.display())]
    NoDevice(PathBuf),
    /// The device file is there and may not be opened.
    #[error("no permission to open {}", .0.display())]
    Permission(PathBuf),
    /// The kernel module speaks another version of the interface than this library.
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
        /// What was to be done, with its arguments.
        action: String,
        /// The kernel's answer.
        errno: Errno,
        /// What to do about it, when known.
        hint: Option<String>,
    },
    /// The call names a peer that cannot be, or none where there are several.
    #[error("{reason}")]
    NoPeer {
        /// What is wrong with it.
        reason: String,
        /// Which peers there are.
        hint: String,
    },
    /// The device refused to start a transfer.
    #[error("the device refused the transfer: {0}")]
    Refused(#[from] Refusal),
    /// A transfer started and failed.
    #[error("transfer {ticket} failed after {bytes} bytes: {status}")]
    Transfer {
        /// Which one.
        ticket: u64,
        /// Bytes moved before.
        bytes: u64,
        /// Why.
        status: Refusal,
    },
    /// The method needs something that this system does not have.
    #[error("the method {method} cannot be used here: {why}")]
    Method {
        /// Which one.
        method: Method,
        /// What is missing.
        why: &'static str,
    },
    /// The record of a transfer's end was overwritten by later ones before anybody looked.
    #[error("the completion record of transfer {0} was overwritten")]
    RecordLost(u64),
    /// Something did not happen in time.
    #[error("no {what} within {after:?}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// For how long.
        after: Duration,
    },
    /// An offset or length leaves the object that it is about.
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
    /// The two sides of a connection carry data in different ways.
    #[error("this side of the connection is {here}, the other side is {there}")]
    OtherKind {
        /// What this side is.
        here: &'static str,
        /// What the other side is.
        there: &'static str,
    },
    /// The link to the peer went down.
    #[error("the link to the peer is down")]
    LinkDown,
    /// A message is longer than the ring or the buffer has room for.
    #[error("a message of {length} bytes is longer than {limit} bytes")]
    TooLong {
        /// Bytes of the message.
        length: usize,
        /// Bytes that there is room for.
        limit: usize,
    },
}

impl Error {
    /// An error of a system call, with the advice that fits it.
    pub(crate) fn system(action: impl Into<String>, errno: Errno) -> Self {
        Self::System {
            action: action.into(),
            errno,
            hint: hint(errno).map(str::to_owned),
        }
    }

    /// An error of a registration: where memory ran out, says whose limit it was.
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

    /// An error of mlock() or shmctl(), which have a limit of their own.
    pub(crate) fn locking(action: impl Into<String>, errno: Errno) -> Self {
        let hint = matches!(errno, Errno::ENOMEM | Errno::EPERM | Errno::EAGAIN)
            .then(|| Memlock::read().locking_advice());
        Self::System {
            action: action.into(),
            errno,
            hint,
        }
    }

    /// An error of a call that is about a connection.
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

    /// An error of looking up something at the peer.
    pub(crate) fn lookup(what: &str, name: Name, timeout: Duration, errno: Errno) -> Self {
        let hint = match errno {
            Errno::ENOENT => Some(format!("the peer has no {what} of that name (yet)")),
            Errno::ETIMEDOUT => Some(format!(
                "no answer within {timeout:?}: is the peer's driver loaded, and does the other \
                 side offer its {what} under that name?"
            )),
            Errno::EACCES => Some("the peer's offer gives fewer rights than asked for".into()),
            _ => hint(errno).map(str::to_owned),
        };
        Self::System {
            action: format!("find {what} {name} at the peer"),
            errno,
            hint,
        }
    }

    /// An error of taking a context for a method.
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

    /// What to do about it, in one sentence, when known.
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
            Self::Method { .. } => Some("choose another method: `uldma info` lists them"),
            Self::RecordLost(_) => Some("wait for at most 64 transfers behind the newest"),
            Self::Timeout { .. } => Some("is the other side running, under the same name or port?"),
            Self::Violation(_) => Some("the programs on both nodes must be of the same release"),
            Self::Closed => Some("look at the other side's messages"),
            Self::OtherKind { .. } => Some(
                "use a ring on both sides (`uldma listen` and `connect` have --ring), or on none",
            ),
            Self::LinkDown => Some("the driver must be loaded on both nodes"),
            Self::Range { .. } | Self::TooLong { .. } => None,
        }
    }

    /// The connection was reset: by the peer, or as the link went down.
    pub fn is_reset(&self) -> bool {
        self.errno() == Some(Errno::ECONNRESET)
    }

    /// The errno behind it, for what system calls refuse.
    pub fn errno(&self) -> Option<Errno> {
        match self {
            Self::System { errno, .. } => Some(*errno),
            Self::NoPeer { .. } => Some(Errno::EINVAL),
            _ => None,
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

/// Advice that depends on nothing but the errno; the meanings are those of the uAPI header.
fn hint(errno: Errno) -> Option<&'static str> {
    Some(match errno {
        Errno::ENOTTY => "the file is not a uldma device, or the module is older than this program",
        Errno::EPERM => {
            "the device was opened by another process (or before fork()): open it again here"
        }
        Errno::EACCES => "the region was not registered or exported with the right that is needed",
        Errno::ENOSPC => "a table is full: close other users, or see `uldma info` for the limits",
        Errno::EDQUOT => {
            "this user has as much of the device as one can have (`uldma info`): end some, or raise \
             what the module's user_* parameters allow"
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
        Errno::ESTALE => "the link went down meanwhile: import or attach again",
        Errno::EPROTO => "module versions of the two nodes differ?",
        Errno::ECONNREFUSED => {
            "nobody listens at that port of the peer, or too many wait there to be accepted"
        }
        Errno::ECONNRESET => {
            "the link to the peer went down, or one of the two sides was killed or broke the rules"
        }
        Errno::EPIPE => "the connection was disconnected: nothing can be sent any more",
        Errno::EISCONN => "this file has a connection, or listens, already: open the device anew",
        Errno::EADDRINUSE => "somebody listens at that port of this node already: choose another",
        Errno::EAGAIN => "nothing is ready: wait by poll(), or without O_NONBLOCK",
        Errno::ENODEV => "the device is gone (driver unbound or module removed)",
        _ => return None,
    })
}

/// Why the device did not start a transfer, or ended it early.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A load came without a store before it; also what a device that is gone answers.
    #[error("no arguments were passed (or the device is gone)")]
    NoArgs,
    /// Zero bytes, or more than one initiation can move.
    #[error("the size is out of range")]
    BadSize,
    /// The access was not aligned or not of eight bytes.
    #[error("the access was not an aligned one of eight bytes")]
    BadAccess,
    /// No such page or region.
    #[error("no such page or region")]
    NotValid,
    /// The page or region belongs to somebody else.
    #[error("the page or region belongs to another process")]
    NotOwner,
    /// Source not readable or destination not writable.
    #[error("the source is not readable or the destination not writable")]
    NoRight,
    /// The transfer would leave the region.
    #[error("the transfer would leave the region")]
    Bounds,
    /// Too many transfers of this context are waiting.
    #[error("the context's queue is full")]
    QueueFull,
    /// The context or the device is off.
    #[error("the context or the device is disabled")]
    Disabled,
    /// The peer is not reachable, or the import is stale.
    #[error("the link is down or the import is stale")]
    LinkDown,
    /// The peer's table does not allow the access.
    #[error("the peer does not allow the access")]
    Remote,
    /// Stopped by unregistration, reset or close.
    #[error("aborted by unregistration, reset or close")]
    Aborted,
    /// A bus address did not answer.
    #[error("a bus address did not answer")]
    BusError,
    /// The method needs to know who runs, and the device was not told that this context does.
    #[error("the device was not told that this context runs")]
    NotRunning,
    /// The arguments came from different contexts.
    #[error("another process passed arguments in between")]
    Mixed,
    /// Too many wrong keys were stored.
    #[error("too many wrong keys were stored")]
    BadKey,
    /// The method cannot carry this address or length.
    #[error("the method cannot carry this address or length")]
    NotAligned,
    /// The method stores to the source's shadow page, which is mapped for loads only.
    #[error("the method passes the source by a store, and the source is not writable")]
    SourceNotWritable,
    /// The method loads from the destination's shadow page, which is mapped for stores only.
    #[error(
        "the method loads from the destination's address, and the destination is not readable"
    )]
    DestinationNotReadable,
    /// The source's page is not mapped out to this destination.
    #[error("the source's page is not mapped out to this destination")]
    NotMappedOut,
    /// The initiation was begun anew as often as it may be, and was disturbed each time.
    #[error("every attempt was disturbed by others")]
    Contended,
    /// There is no context: transfers are started by the kernel.
    #[error("there is no register context")]
    NoContext,
    /// The context's method starts no transfers, or cannot do this operation.
    #[error("the context's method cannot do this")]
    OtherMethod,
    /// A value that this library does not know.
    #[error("unknown status {0}")]
    Unknown(i64),
}

impl Refusal {
    /// Translates `enum uldma_dma_status`; none for success.
    pub fn from_status(status: u32) -> Option<Self> {
        Some(match status {
            uapi::ULDMA_DMA_OK => return None,
            uapi::ULDMA_DMA_NO_ARGS => Self::NoArgs,
            uapi::ULDMA_DMA_BAD_SIZE => Self::BadSize,
            uapi::ULDMA_DMA_BAD_ACCESS => Self::BadAccess,
            uapi::ULDMA_DMA_NOT_VALID => Self::NotValid,
            uapi::ULDMA_DMA_NOT_OWNER => Self::NotOwner,
            uapi::ULDMA_DMA_NO_RIGHT => Self::NoRight,
            uapi::ULDMA_DMA_BOUNDS => Self::Bounds,
            uapi::ULDMA_DMA_QUEUE_FULL => Self::QueueFull,
            uapi::ULDMA_DMA_DISABLED => Self::Disabled,
            uapi::ULDMA_DMA_LINK_DOWN => Self::LinkDown,
            uapi::ULDMA_DMA_REMOTE => Self::Remote,
            uapi::ULDMA_DMA_ABORTED => Self::Aborted,
            uapi::ULDMA_DMA_BUS_ERROR => Self::BusError,
            uapi::ULDMA_DMA_NOT_RUNNING => Self::NotRunning,
            uapi::ULDMA_DMA_MIXED => Self::Mixed,
            uapi::ULDMA_DMA_BAD_KEY => Self::BadKey,
            uapi::ULDMA_DMA_NOT_ALIGNED => Self::NotAligned,
            other => Self::Unknown(other.into()),
        })
    }

    /// Translates what the initiating load returned, when it is not a ticket.
    pub(crate) fn from_answer(answer: i64) -> Self {
        let status = answer
            .checked_neg()
            .and_then(|status| u32::try_from(status).ok());
        status
            .and_then(Self::from_status)
            .unwrap_or(Self::Unknown(answer))
    }

    fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::QueueFull => "wait for earlier transfers first",
            Self::NoRight => "register with the access that the transfer needs",
            Self::LinkDown => "import again once the link is up",
            Self::Remote => "did the peer unregister or unexport the region?",
            Self::Disabled => "the driver was unbound or the context destroyed",
            Self::NotRunning => "start transfers in the process that took the context",
            Self::Mixed => "try again",
            Self::BadKey => "create the context anew",
            Self::NotAligned => {
                "atomic operations: multiples of eight; single-store: those, in the first 2 MiB of \
                 the source; shrimp-1: the start of a page, and a multiple of eight"
            }
            Self::SourceNotWritable => "register the source for reading and writing",
            Self::DestinationNotReadable => "register the destination for reading and writing",
            Self::NotMappedOut => "map it out first (Context::map_out), or use another method",
            Self::Contended => "allow more retries, or have the kernel start it (Context::dma)",
            Self::NoContext => "use Context::dma",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_translate_both_ways() {
        assert_eq!(Refusal::from_answer(-7), Refusal::Bounds);
        assert_eq!(Refusal::from_answer(-14), Refusal::NotRunning);
        assert_eq!(Refusal::from_answer(-15), Refusal::Mixed);
        assert_eq!(Refusal::from_answer(-16), Refusal::BadKey);
        assert_eq!(Refusal::from_answer(-17), Refusal::NotAligned);
        assert_eq!(Refusal::from_answer(0), Refusal::Unknown(0));
        assert_eq!(Refusal::from_answer(i64::MIN), Refusal::Unknown(i64::MIN));
        assert_eq!(Refusal::from_status(0), None);
        assert_eq!(Refusal::from_status(99), Some(Refusal::Unknown(99)));
    }

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
