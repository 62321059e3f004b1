// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory of every kind that can be registered, and some kinds that cannot.

pub(crate) mod buffer;
pub(crate) mod shared_lock;

use std::ffi::CString;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;

use nix::errno::Errno;
use nix::sys::memfd::{memfd_create, MFdFlags};
use nix::sys::mman::ProtFlags;

use crate::error::{Error, Result};
use crate::sys;
use crate::sys::{Mapping, ShmId};

pub use shared_lock::SharedGuard;

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// This process's own.
    Private,
    /// Shared with the children that it will have.
    Shared,
    /// A file without a name, see memfd_create().
    Memfd,
    /// Anonymous shared memory of huge pages.
    Huge,
    /// A System V shared memory segment, see shmget().
    SysV,
}

/// Mapped memory that the device, other processes or the kernel may change at any time.
///
/// So it is never lent as a slice, only copied from and to. It may be registered in parts, several
/// times, and unmapped (dropped) or discarded while it is registered: the regions keep the pages.
/// [`crate::Buffer`] is the simpler choice for memory of one region.
#[derive(Debug)]
pub struct Memory {
    mapping: Mapping,
    length: u64,
    shared: bool,
    writable: bool,
    shm: Option<ShmId>,
}

impl Memory {
    /// New memory of `length` zero bytes; with [`Kind::Huge`], rounded up to huge pages.
    ///
    /// A System V segment is removed with its last mapping.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL for no bytes, ENOMEM; for huge pages also when none are set aside.
    pub fn new(kind: Kind, length: u64) -> Result<Self> {
        let failed = |errno| {
            let hint = (kind == Kind::Huge)
                .then(|| "set huge pages aside: sysctl vm.nr_hugepages=64".to_owned());
            Error::System {
                action: format!("map {length} bytes"),
                errno,
                hint,
            }
        };
        match kind {
            Kind::Private => Mapping::anonymous(length).map(|map| Self::own(map, length, false)),
            Kind::Shared => {
                Mapping::anonymous_shared(length).map(|map| Self::own(map, length, true))
            }
            Kind::Memfd => memfd(length, MFdFlags::MFD_CLOEXEC),
            Kind::Huge => memfd(length, MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_HUGETLB),
            Kind::SysV => sysv(length),
        }
        .map_err(failed)
    }

    /// Maps the first `length` bytes of a file, shared with all other users of the file.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EACCES when the file is not open for that; [`Error::Range`] when it is
    /// shorter. (If the file becomes shorter later, accesses beyond its end raise SIGBUS.)
    pub fn of_file(file: &File, length: u64, writable: bool) -> Result<Self> {
        let action = || format!("map {length} bytes of a file");
        let metadata = file.metadata().map_err(|error| {
            let errno = error.raw_os_error().map_or(Errno::EIO, Errno::from_raw);
            Error::system(action(), errno)
        })?;
        // Fails for files that cannot be mapped, of which some say that they are empty.
        let mapping = Mapping::shared(file, 0, length, protection(writable))
            .map_err(|errno| Error::system(action(), errno))?;
        // Other files than these have no size.
        if metadata.is_file() && length > metadata.len() {
            return Err(Error::Range {
                offset: 0,
                length,
                size: metadata.len(),
            });
        }
        let mut memory = Self::own(mapping, length, true);
        memory.writable = writable;
        Ok(memory)
    }

    /// The System V segment of that number, see [`Memory::segment_id`].
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EINVAL when there is no such segment, EACCES when it belongs to another
    /// user.
    pub fn attach(segment_id: i32, writable: bool) -> Result<Self> {
        let id = ShmId(segment_id);
        let attach = || {
            let length = id.length()?;
            let mut memory = Self::own(id.attach(writable)?, length, true);
            memory.writable = writable;
            memory.shm = Some(id);
            Ok(memory)
        };
        attach().map_err(|errno| Error::system(format!("attach segment {segment_id}"), errno))
    }

    fn own(mapping: Mapping, length: u64, shared: bool) -> Self {
        Self {
            mapping,
            length,
            shared,
            writable: true,
            shm: None,
        }
    }

    /// Returns the address of the first byte.
    pub fn address(&self) -> u64 {
        self.mapping.base().as_ptr() as u64
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if other processes may see the same bytes.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns true if it is mapped for writing.
    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Returns the number of the System V segment, for [`Memory::attach`] in any process of this
    /// user; none for other kinds.
    pub fn segment_id(&self) -> Option<i32> {
        self.shm.map(|id| id.0)
    }

    /// Copies from the memory at `offset` into `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn read(&self, offset: u64, target: &mut [u8]) -> Result<()> {
        let offset = self.check(offset, target.len())?;
        self.mapping.read(offset, target);
        Ok(())
    }

    /// Copies `source` into the memory at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`]; [`Error::System`] EACCES when it was mapped for reading only.
    pub fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let offset = self.check(offset, source.len())?;
        if !self.writable {
            let action = "write to memory that is mapped for reading";
            return Err(Error::system(action, Errno::EACCES));
        }
        self.mapping.write(offset, source);
        Ok(())
    }

    /// Drops all pages: the next reads return zero. Regions keep the old pages.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EACCES or EOPNOTSUPP for a file that cannot have holes.
    pub fn discard(&self) -> Result<()> {
        self.mapping
            .discard(self.shared)
            .map_err(|errno| Error::system("discard memory", errno))
    }

    fn check(&self, offset: u64, length: usize) -> Result<usize> {
        let (_, _) = self.locate(&(offset..offset.saturating_add(length as u64)))?;
        usize::try_from(offset).map_err(|_| Error::Range {
            offset,
            length: length as u64,
            size: self.length,
        })
    }

    /// Returns address and length of a part.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] when the part does not exist.
    pub fn locate(&self, part: &Range<u64>) -> Result<(u64, u64)> {
        let length = part.end.checked_sub(part.start);
        match length.filter(|_| part.end <= self.length) {
            Some(length) => Ok((self.address() + part.start, length)),
            None => Err(Error::Range {
                offset: part.start,
                length: length.unwrap_or(0),
                size: self.length,
            }),
        }
    }
}

fn protection(writable: bool) -> ProtFlags {
    if writable {
        ProtFlags::PROT_READ | ProtFlags::PROT_WRITE
    } else {
        ProtFlags::PROT_READ
    }
}

fn memfd(length: u64, flags: MFdFlags) -> std::result::Result<Memory, Errno> {
    let name = CString::from(c"uldma");
    sys::count_call();
    let fd = memfd_create(name.as_c_str(), flags)?;
    // Of huge pages, a mapping has whole ones.
    sys::count_call();
    let page = u64::try_from(nix::sys::stat::fstat(fd.as_fd())?.st_blksize).unwrap_or(1);
    let length = length
        .checked_next_multiple_of(if flags.contains(MFdFlags::MFD_HUGETLB) {
            page
        } else {
            1
        })
        .ok_or(Errno::EOVERFLOW)?;
    sys::count_call();
    nix::unistd::ftruncate(
        fd.as_fd(),
        i64::try_from(length).map_err(|_| Errno::EOVERFLOW)?,
    )?;
    let mapping = Mapping::shared(fd, 0, length, protection(true))?;
    Ok(Memory::own(mapping, length, true))
}

fn sysv(length: u64) -> std::result::Result<Memory, Errno> {
    let id = ShmId::create(length)?;
    let mapping = id.attach(true);
    // From here on it exists, and can be attached, as long as a process maps it.
    id.remove()?;
    let mut memory = Memory::own(mapping?, length, true);
    memory.shm = Some(id);
    Ok(memory)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 4] = [Kind::Private, Kind::Shared, Kind::Memfd, Kind::SysV];

    #[test]
    fn memory_of_every_kind_is_zero_and_can_be_written_and_discarded() {
        for kind in KINDS {
            let memory = Memory::new(kind, 9000).unwrap();
            let mut byte = [1];
            memory.read(8999, &mut byte).unwrap();
            assert_eq!(byte, [0], "{kind:?}");
            memory.write(8999, b"x").unwrap();
            memory.read(8999, &mut byte).unwrap();
            assert_eq!(&byte, b"x", "{kind:?}");
            memory.discard().unwrap();
            memory.read(8999, &mut byte).unwrap();
            assert_eq!(byte, [0], "{kind:?}");
        }
    }

    #[test]
    fn nothing_outside_can_be_named() {
        let memory = Memory::new(Kind::Private, 4096).unwrap();
        for (offset, length) in [(4096, 1), (4095, 2), (u64::MAX, 1), (0, 4097)] {
            let error = memory.read(offset, &mut vec![0; length]).unwrap_err();
            assert!(matches!(error, Error::Range { .. }), "{offset} {length}");
        }
        assert!(memory.locate(&Range { start: 8, end: 4 }).is_err());
        assert_eq!(memory.locate(&(5..9)).unwrap(), (memory.address() + 5, 4));
    }

    #[test]
    fn no_memory_has_no_bytes() {
        for kind in KINDS {
            assert!(Memory::new(kind, 0).is_err(), "{kind:?}");
        }
    }

    #[test]
    fn a_segment_can_be_attached_by_its_number() {
        let memory = Memory::new(Kind::SysV, 4096).unwrap();
        let again = Memory::attach(memory.segment_id().unwrap(), false).unwrap();
        memory.write(0, b"both").unwrap();
        let mut bytes = [0; 4];
        again.read(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"both");
        assert_eq!(again.length(), 4096);
        assert_eq!(
            again.write(0, b"x").unwrap_err().errno(),
            Some(Errno::EACCES)
        );
        assert_ne!(again.address(), memory.address());
    }

    #[test]
    fn a_file_must_be_as_long_as_its_mapping() {
        let file = File::open("/proc/self/exe").unwrap();
        let memory = Memory::of_file(&file, 4, false).unwrap();
        let mut magic = [0; 4];
        memory.read(0, &mut magic).unwrap();
        assert_eq!(&magic, b"\x7fELF");
        let longer = file.metadata().unwrap().len() + 1;
        let error = Memory::of_file(&file, longer, false).unwrap_err();
        assert!(matches!(error, Error::Range { .. }), "{error}");
    }

    #[test]
    fn a_file_of_no_size_is_mapped_if_it_can_be() {
        let file = File::open("/dev/zero").unwrap();
        let mut byte = [1];
        let memory = Memory::of_file(&file, 4096, false).unwrap();
        memory.read(4095, &mut byte).unwrap();
        assert_eq!(byte, [0]);
        let file = File::open("/proc/cpuinfo").unwrap();
        let error = Memory::of_file(&file, 4096, false).unwrap_err();
        assert!(error.errno().is_some(), "{error}");
    }
}
