// SPDX-License-Identifier: MIT OR Apache-2.0

//! The device: opening it, querying it, and its link.

pub(crate) mod event;
pub(crate) mod heap;
pub(crate) mod peer;

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc;

use crate::device::event::Events;
use crate::device::heap::Heap;
use crate::error::{Error, Result};
use crate::method::Methods;
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::Deadline;
use crate::wait::spin::{Poller, Spin};
use crate::wait::{ticks, wakeup};

pub use event::Event;
pub use peer::PeerInfo;

/// An open device. Clones share the open file.
///
/// An open file belongs to the process that opened it: after fork(), open the device again.
#[derive(Clone, Debug)]
pub struct Device {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    // Mappings of the file end first.
    heap: Heap,
    file: File,
    path: PathBuf,
    /// Bytes that one shadow page covers.
    page_size: u64,
    /// Time that a sleep costs which an interrupt of the device ends; zero if the device has none.
    completion: Duration,
    events: Events,
}

impl Device {
    /// Opens `/dev/uldma<number>`.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::Permission`], [`Error::Abi`] when the kernel module is of
    /// another version, [`Error::System`] for other errors.
    pub fn open(number: u32) -> Result<Self> {
        Self::open_path(Self::path_of(number))
    }

    /// Returns the path of the device file of that number.
    pub fn path_of(number: u32) -> PathBuf {
        PathBuf::from(format!("/dev/uldma{number}"))
    }

    /// Returns the numbers of all devices of this machine, in ascending order.
    pub fn numbers() -> Vec<u32> {
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let mut numbers: Vec<u32> = entries
            .filter_map(|entry| {
                entry
                    .file_name()
                    .to_str()?
                    .strip_prefix("uldma")?
                    .parse()
                    .ok()
            })
            .collect();
        numbers.sort_unstable();
        numbers
    }

    /// Opens the device file at `path`.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::Permission`], [`Error::Abi`] when the kernel module is of
    /// another version, [`Error::System`] for other errors.
    pub fn open_path(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        sys::count_call();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(&path)
            .map_err(|error| match error.kind() {
                ErrorKind::NotFound => Error::NoDevice(path.clone()),
                ErrorKind::PermissionDenied => Error::Permission(path.clone()),
                _ => match error.raw_os_error() {
                    // A device node whose driver was removed.
                    Some(libc::ENXIO | libc::ENODEV) => Error::NoDevice(path.clone()),
                    errno => Error::system(
                        format!("open {}", path.display()),
                        errno.map_or(Errno::UnknownErrno, Errno::from_raw),
                    ),
                },
            })?;
        let query = ask(file.as_fd(), &path)?;
        if query.abi_version != uapi::ULDMA_ABI_VERSION {
            return Err(Error::Abi {
                kernel: query.abi_version,
                library: uapi::ULDMA_ABI_VERSION,
            });
        }
        Ok(Self {
            inner: Arc::new(Inner {
                heap: Heap::default(),
                file,
                path,
                page_size: query.page_size,
                completion: query.completion,
                events: Events::default(),
            }),
        })
    }

    /// Opens the same device again, as another open file.
    ///
    /// # Errors
    ///
    /// [`Error::NoDevice`], [`Error::Permission`], [`Error::Abi`] when the kernel module is of
    /// another version, [`Error::System`] for other errors.
    pub fn reopen(&self) -> Result<Self> {
        Self::open_path(self.path())
    }

    /// Opens a device that does not answer, for tests that need no answers.
    #[cfg(test)]
    pub(crate) fn mute() -> Self {
        Self::mute_after(Duration::ZERO)
    }

    /// The same, where a sleep costs that much which the device ends.
    #[cfg(test)]
    pub(crate) fn mute_after(completion: Duration) -> Self {
        Self {
            inner: Arc::new(Inner {
                heap: Heap::default(),
                file: File::open("/dev/null").expect("every system has it"),
                path: PathBuf::from("/dev/null"),
                page_size: 4096,
                completion,
                events: Events::default(),
            }),
        }
    }

    /// Returns the major and the minor number of the device, by which the kernel knows it under any path.
    ///
    /// # Errors
    ///
    /// [`Error::System`] of fstat().
    pub fn number(&self) -> Result<(u64, u64)> {
        let stat = nix::sys::stat::fstat(self.as_fd())
            .map_err(|errno| Error::system("query the device file", errno))?;
        let number = stat.st_rdev;
        Ok((nix::sys::stat::major(number), nix::sys::stat::minor(number)))
    }

    /// The device file's path.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    pub(crate) fn page_size(&self) -> u64 {
        self.inner.page_size
    }

    /// Returns the ticks that a thread loses by sleeping until the device interrupts: at least what
    /// any sleep costs, for the driver measures threads of the kernel.
    fn wakeup(&self) -> u64 {
        wakeup::cost().max(ticks::of(self.inner.completion))
    }

    /// Creates a poller for what the device does, which is otherwise slept for until it interrupts.
    pub(crate) fn poller(&self, spin: Spin) -> Poller {
        Poller::new(spin, self.wakeup())
    }

    pub(crate) fn events(&self) -> &Events {
        &self.inner.events
    }

    /// The exchangeable memory of the open file.
    pub(crate) fn heap(&self) -> &Heap {
        &self.inner.heap
    }

    /// Queries the properties of the device.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn query(&self) -> Result<Query> {
        ask(self.as_fd(), self.path())
    }

    /// Makes an ioctl without effect: the minimum cost of every ioctl.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn nop(&self) -> Result<()> {
        sys::nop(self.as_fd()).map_err(|errno| Error::system("enter the kernel", errno))
    }

    /// Waits until the link is up (or down).
    ///
    /// # Errors
    ///
    /// [`Error::Timeout`], or [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait_link(&self, up: bool, timeout: Duration) -> Result<Query> {
        let deadline = Deadline::after(timeout);
        loop {
            let seen = self.events().snapshot();
            let query = self.query()?;
            if query.link_up == up {
                return Ok(query);
            }
            let woken = self
                .events()
                .wait(self.as_fd(), deadline, |now| now.links != seen.links)?;
            if !woken {
                let state = if up { "up" } else { "down" };
                return Err(deadline.missed(format!("link that is {state}")));
            }
        }
    }

    /// Sleeps until events are pending and returns them; none when `timeout` has passed.
    ///
    /// The crate's other waiting functions see these events, too.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait_events(&self, timeout: Duration) -> Result<Vec<Event>> {
        self.events().next(self.as_fd(), Deadline::after(timeout))
    }

    /// Makes the kernel signal `eventfd` whenever an event becomes pending; none stops it.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL when it is not an eventfd.
    pub fn signal_eventfd(&self, eventfd: Option<BorrowedFd<'_>>) -> Result<()> {
        use std::os::fd::AsRawFd;
        let fd = eventfd.map_or(-1, |eventfd| eventfd.as_raw_fd());
        sys::eventfd(
            self.as_fd(),
            uapi::uldma_eventfd {
                fd,
                ..Default::default()
            },
        )
        .map(drop)
        .map_err(|errno| Error::system("set the eventfd", errno))
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.file.as_fd()
    }
}

fn ask(fd: BorrowedFd<'_>, path: &Path) -> Result<Query> {
    sys::query(fd, Default::default())
        .map(|raw| Query::from_raw(&raw))
        .map_err(|errno| Error::system(format!("query {}", path.display()), errno))
}

/// The properties of a device, see `struct uldma_query`.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// let query: uldma::Query = uldma::Device::open(0)?.query()?;
/// let peers: Vec<u32> = query.reachable().collect();
/// println!("node {} of {}, which reaches {peers:?}", query.node, query.nodes);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Query {
    /// Version of the user interface.
    pub abi_version: u32,
    /// Number of this node on its link.
    pub node: u32,
    /// True if the link to a peer is up.
    pub link_up: bool,
    /// Number of times that a link to a peer came up.
    pub link_generation: u32,
    /// Register contexts that open files can share.
    pub contexts: u32,
    /// Number of these that are in use.
    pub contexts_used: u32,
    /// Bytes of the page that one shadow page stands for.
    pub page_size: u64,
    /// Log2 of the bytes of shadow space per context.
    pub shadow_window_shift: u32,
    /// Bytes that one initiation can move.
    pub max_transfer: u64,
    /// Regions that the device can hold.
    pub max_regions: u32,
    /// Regions in use, of all open files.
    pub regions: u32,
    /// Pages that the translation table can hold.
    pub max_pages: u32,
    /// Pages in use, of all open files.
    pub pages: u32,
    /// Bytes of the inbound half of the window.
    pub window_size: u64,
    /// Bytes of the window that segments use.
    pub window_used: u64,
    /// Regions and imports of this open file.
    pub file_regions: u32,
    /// Bytes that this open file's address space has pinned here.
    pub mm_pinned: u64,
    /// Initiation methods that a context can have on this system.
    pub methods: Methods,
    /// Number of nodes of the link, including this one; they are numbered from zero.
    pub nodes: u32,
    /// Mask of the nodes that can be reached now.
    pub peers: u32,
    /// Transport between the nodes.
    pub backend: Backend,
    /// Connections of all open files.
    pub connections: u32,
    /// This user's shares of the resources that all users share.
    pub user: UserShares,
    /// Time that a thread loses by sleeping until a transfer completes; zero without an engine.
    pub completion: Duration,
}

/// One user's shares of a device's resources, each as a pair: used, and limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UserShares {
    /// Regions and imports.
    pub regions: (u32, u32),
    /// Pages of the translation table.
    pub pages: (u32, u32),
    /// Register contexts.
    pub contexts: (u32, u32),
    /// Number of exclusive contexts, which the driver cannot take back while they are idle.
    pub exclusive_contexts: (u32, u32),
    /// Connections, including those that peers opened.
    pub connections: (u32, u32),
    /// Ports that have a listener.
    pub listeners: (u32, u32),
    /// Bytes of this node's section of the window.
    pub window: (u64, u64),
    /// Requests that wait for an answer of a peer.
    pub requests: (u32, u32),
    /// Endpoints of message connections.
    pub endpoints: (u32, u32),
    /// Transfers through the kernel that have not ended.
    pub transfers: (u32, u32),
    /// Open files, their contexts, and segments.
    pub objects: (u32, u32),
}

impl UserShares {
    fn from_raw(raw: &uapi::uldma_query) -> Self {
        Self {
            regions: (raw.out_user_regions, raw.out_user_max_regions),
            pages: (raw.out_user_pages, raw.out_user_max_pages),
            contexts: (raw.out_user_contexts, raw.out_user_max_contexts),
            exclusive_contexts: (
                raw.out_user_exclusive_contexts,
                raw.out_user_max_exclusive_contexts,
            ),
            connections: (raw.out_user_connections, raw.out_user_max_connections),
            listeners: (raw.out_user_listeners, raw.out_user_max_listeners),
            window: (raw.out_user_window, raw.out_user_max_window),
            requests: (raw.out_user_requests, raw.out_user_max_requests),
            endpoints: (raw.out_user_endpoints, raw.out_user_max_endpoints),
            transfers: (raw.out_user_transfers, raw.out_user_max_transfers),
            objects: (raw.out_user_objects, raw.out_user_max_objects),
        }
    }
}

impl Query {
    fn from_raw(raw: &uapi::uldma_query) -> Self {
        Self {
            abi_version: raw.out_abi_version,
            node: raw.out_node,
            link_up: raw.out_link & uapi::ULDMA_LINK_UP != 0,
            link_generation: raw.out_link_generation,
            contexts: raw.out_contexts,
            contexts_used: raw.out_contexts_used,
            page_size: 1u64.checked_shl(raw.out_page_shift).unwrap_or(0),
            shadow_window_shift: raw.out_shadow_window_shift,
            max_transfer: raw.out_max_transfer,
            max_regions: raw.out_max_regions,
            regions: raw.out_regions,
            max_pages: raw.out_max_pages,
            pages: raw.out_pages,
            window_size: raw.out_window_size,
            window_used: raw.out_window_used,
            file_regions: raw.out_file_regions,
            mm_pinned: raw.out_mm_pinned,
            methods: Methods::from_mask(raw.out_methods),
            nodes: raw.out_nodes,
            peers: raw.out_peers,
            backend: Backend::from_raw(raw.out_backend),
            connections: raw.out_connections,
            user: UserShares::from_raw(raw),
            completion: Duration::from_nanos(raw.out_completion_ns),
        }
    }

    /// Returns the numbers of the nodes that can be reached now, in ascending order.
    pub fn reachable(&self) -> impl Iterator<Item = u32> + '_ {
        (0..u32::BITS).filter(|node| self.peers & (1 << node) != 0)
    }
}

/// The transport between the nodes. Operations that need an engine fail with EOPNOTSUPP where there
/// is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Backend {
    /// The uldma adapter: window, doorbells and an engine.
    Adapter,
    /// ivshmem-doorbell of QEMU: window and doorbells.
    Ivshmem,
    /// Memory of this machine; the nodes are devices of the same kernel.
    Loopback,
    /// A transport that this library does not know.
    Other(u32),
}

impl Backend {
    fn from_raw(raw: u32) -> Self {
        match raw {
            uapi::ULDMA_BACKEND_ADAPTER => Self::Adapter,
            uapi::ULDMA_BACKEND_IVSHMEM => Self::Ivshmem,
            uapi::ULDMA_BACKEND_LOOPBACK => Self::Loopback,
            other => Self::Other(other),
        }
    }

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Adapter => "adapter",
            Self::Ivshmem => "ivshmem",
            Self::Loopback => "loopback",
            Self::Other(_) => "unknown",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_device_is_named() {
        let error = Device::open_path("/dev/uldma-none").unwrap_err();
        assert_eq!(error.to_string(), "no device: /dev/uldma-none");
        assert!(error.hint().unwrap().contains("load the module"));
    }

    #[test]
    fn reachable_nodes_are_those_of_the_mask() {
        let query = Query::from_raw(&uapi::uldma_query {
            out_peers: 0b1010_0001,
            out_backend: uapi::ULDMA_BACKEND_IVSHMEM,
            ..Default::default()
        });
        assert_eq!(query.reachable().collect::<Vec<_>>(), [0, 5, 7]);
        assert_eq!(query.backend.name(), "ivshmem");
    }

    #[test]
    fn a_sleep_costs_what_ends_it() {
        let adaptive = |device: Device| device.poller(Spin::Adaptive).limit();
        assert_eq!(adaptive(Device::mute()), wakeup::cost());
        // Longer than the limit of the other cost.
        let completion = Duration::from_secs(1);
        let device = Device::mute_after(completion);
        assert_eq!(adaptive(device), ticks::of(completion));
    }

    #[test]
    fn another_file_is_not_a_device() {
        let error = Device::open_path("/dev/null").unwrap_err();
        assert_eq!(error.errno(), Some(Errno::ENOTTY));
        assert!(error.hint().unwrap().contains("not a uldma device"));
    }
}
