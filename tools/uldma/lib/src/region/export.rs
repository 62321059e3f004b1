// SPDX-License-Identifier: MIT OR Apache-2.0

//! Exports of regions to a peer, and imports of a peer's regions.

use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use nix::errno::Errno;

use crate::device::Device;
use crate::error::name::Name;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::region::entry::{Access, Entry};
use crate::region::sealed::Registered as _;
use crate::region::{sealed, Borrowed, Region, Registered};
use crate::sys;
use crate::sys::uapi;
use crate::wait::deadline::nanoseconds;
use crate::wait::retry::Backoff;

/// An export of a region to the peer, which ends on drop.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use uldma::{Access, Buffer, Device, Export, Name};
///
/// let device = Device::open(0)?;
/// let region = device.register(Buffer::new(4096)?, Access::Read)?;
/// // The peer can read the region until this ends; no other process of it finds it without the name.
/// let export: Export = region.export(Name::random()?, Access::Read)?;
/// println!("import {}", export.name());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Export<'region> {
    region: &'region Entry,
    name: Name,
}

impl<'region> Export<'region> {
    /// `peer` is that field of the argument; zero for all peers.
    fn new(region: &'region Entry, peer: u32, name: Name, access: Access) -> Result<Self> {
        export(region, peer, name, access)?;
        Ok(Self { region, name })
    }

    /// Returns the name by which the peer imports the region.
    pub fn name(&self) -> Name {
        self.name
    }
}

/// Exports a region to the peer of that field of the argument, or to all.
fn export(region: &Entry, peer: u32, name: Name, access: Access) -> Result<()> {
    let argument = uapi::uldma_region_export {
        flags: access.flags(),
        handle: region.handle,
        peer,
        name: name.get(),
        ..Default::default()
    };
    sys::region_export(region.device.as_fd(), argument)
        .map_err(|errno| Error::system(format!("export a region as {name}"), errno))?;
    Ok(())
}

impl Region {
    /// Exports the region to one peer under a name, for as long as it is registered.
    pub(crate) fn export_for_life(&self, peer: Peer, name: Name, access: Access) -> Result<()> {
        export(self.entry(), peer.field(), name, access)
    }

    /// Exports the region to the peer under a name, until the result is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EEXIST when the name is taken, EACCES when the region allows less,
    /// ENOTCONN when there is no peer.
    pub fn export(&self, name: Name, access: Access) -> Result<Export<'_>> {
        Export::new(self.entry(), 0, name, access)
    }

    /// Exports the region to one peer under a name, until the result is dropped. Other peers find no
    /// export of that name.
    ///
    /// # Errors
    ///
    /// Those of [`Region::export`].
    pub fn export_to(&self, peer: Peer, name: Name, access: Access) -> Result<Export<'_>> {
        Export::new(self.entry(), peer.field(), name, access)
    }
}

impl Borrowed {
    /// Exports the region to the peer, see [`Region::export`].
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EEXIST when the name is taken, EACCES when the region allows less,
    /// ENOTCONN when there is no peer.
    pub fn export(&self, name: Name, access: Access) -> Result<Export<'_>> {
        Export::new(self.entry(), 0, name, access)
    }
}

impl Drop for Export<'_> {
    fn drop(&mut self) {
        // This fails only after the region has ended or the device has been removed, which ends the
        // export.
        let _ = sys::region_unexport(self.region.device.as_fd(), sys::handle(self.region.handle));
    }
}

/// A peer's region, which transfers of this process can name.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Access, Buffer, Device, Import, Name, Spin};
///
/// let device = Device::open(0)?;
/// let timeout = Duration::from_secs(1);
/// let import: Import = device.import(Name::of_word("frames"), Access::Read, timeout)?;
/// let local = device.register(Buffer::new(4096)?, Access::Write)?;
/// let context = device.context()?;
/// // Memory of the peer, named as if it were here.
/// let (from, to) = (context.shadow(&import)?, context.shadow(&local)?);
/// let ticket = context.initiate(from.at(0)?, to.at(0)?, 4096)?;
/// context.wait(ticket, Spin::Adaptive, timeout)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Import {
    entry: Entry,
}

impl Device {
    /// Imports the region that the other node of a link of two exports under `name`.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT or ETIMEDOUT when the peer did not export it in time, EACCES when
    /// the export allows less than `access`, ENOTCONN when there is no peer; [`Error::NoPeer`]
    /// where the link has more than two nodes.
    pub fn import(&self, name: Name, access: Access, timeout: Duration) -> Result<Import> {
        self.import_from(Peer::OTHER, name, access, timeout)
    }

    /// Imports the region that a peer exports under `name`. While the peer has no export of that
    /// name, retries until `timeout` has passed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT or ETIMEDOUT when the peer did not export it in time, EACCES when
    /// the export allows less than `access`, ENOTCONN when there is no peer.
    pub fn import_from(
        &self,
        peer: Peer,
        name: Name,
        access: Access,
        timeout: Duration,
    ) -> Result<Import> {
        let ask = |timeout_ns| self.ask_for_region(peer, name, access, timeout_ns);
        let answer = retry_lookup("region", name, timeout, ask)
            .map_err(|error| self.about_peer(peer, error))?;
        Ok(self.imported(access, &answer))
    }

    /// Imports the region that a peer has exported under `name` before. None if it has not answered within
    /// `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT when the peer does not export it, EACCES when the export allows less than
    /// `access`, ENOTCONN when there is no peer.
    pub(crate) fn import_exported(
        &self,
        peer: Peer,
        name: Name,
        access: Access,
        timeout: Duration,
    ) -> Result<Option<Import>> {
        match self.ask_for_region(peer, name, access, nanoseconds(timeout)) {
            Ok(answer) => Ok(Some(self.imported(access, &answer))),
            Err(Errno::ETIMEDOUT | Errno::EINTR) => Ok(None),
            Err(errno) => Err(Error::lookup("region", name, timeout, errno)),
        }
    }

    fn ask_for_region(
        &self,
        peer: Peer,
        name: Name,
        access: Access,
        timeout_ns: u64,
    ) -> std::result::Result<uapi::uldma_region_import, Errno> {
        let argument = uapi::uldma_region_import {
            flags: access.flags(),
            name: name.get(),
            timeout_ns,
            peer: peer.field(),
            ..Default::default()
        };
        sys::region_import(self.as_fd(), argument)
    }

    fn imported(&self, access: Access, answer: &uapi::uldma_region_import) -> Import {
        Import {
            entry: Entry {
                device: self.clone(),
                handle: answer.out_handle,
                index: answer.out_index,
                access,
                length: answer.out_length,
                first: 0,
                shadow_offset: answer.out_shadow_offset,
                shadow_length: answer.out_shadow_length,
                ended: AtomicBool::new(false),
            },
        }
    }
}

impl sealed::Registered for Import {
    fn entry(&self) -> &Entry {
        &self.entry
    }
}

impl Registered for Import {}

/// Retries a look-up at the peer until it succeeds or the time is up.
pub(crate) fn retry_lookup<T>(
    what: &str,
    name: Name,
    timeout: Duration,
    mut ask: impl FnMut(u64) -> std::result::Result<T, Errno>,
) -> Result<T> {
    let backoff = Backoff::within(timeout);
    loop {
        let left = nanoseconds(backoff.left());
        let errno = match ask(left) {
            Ok(answer) => return Ok(answer),
            Err(errno) => errno,
        };
        let not_yet = matches!(errno, Errno::ENOENT | Errno::ENOTCONN | Errno::EINTR);
        if !not_yet || !backoff.pause() {
            return Err(Error::lookup(what, name, timeout, errno));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_yet_is_asked_for_again() {
        let mut answers = vec![Ok(5), Err(Errno::ENOENT), Err(Errno::ENOTCONN)];
        let name = Name::of_word("x");
        let answer = retry_lookup("region", name, Duration::from_secs(5), |_| {
            answers.pop().unwrap_or(Err(Errno::EIO))
        });
        assert_eq!(answer.unwrap(), 5);
    }

    #[test]
    fn other_errors_and_the_end_of_time_end_it() {
        let name = Name::of_word("x");
        let ask = |errno, timeout| {
            retry_lookup::<()>("region", name, timeout, |_| Err(errno)).unwrap_err()
        };
        let error = ask(Errno::EACCES, Duration::from_secs(5));
        assert_eq!(error.errno(), Some(Errno::EACCES));
        let error = ask(Errno::ENOENT, Duration::ZERO);
        assert!(error.hint().unwrap().contains("no region of that name"));
    }
}
