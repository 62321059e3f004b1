// SPDX-License-Identifier: MIT OR Apache-2.0

//! Finds the segment of a range in `/proc/self/maps`.
//!
//! The kernel splits a mapping where only a part of it is locked, so one segment may be several
//! lines there: those of the same file that are consecutive in the addresses and in the file.

use nix::errno::Errno;

use uldma::measure::count_call;
use uldma::Result;

use crate::failure::system;

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub length: u64,
}

/// A mapping of a file, of shared memory, or of private memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    span: Span,
    key: Key,
    shared: bool,
    shm: Option<i32>,
}

/// Identifies an attached segment, even when one is unmapped and another is mapped at its
/// addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    start: u64,
    file: FileId,
}

/// Identifies a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    device: String,
    inode: u64,
}

impl Segment {
    /// Finds the segment that contains a range of this process's addresses. Private memory counts
    /// as one segment.
    ///
    /// # Errors
    ///
    /// [`uldma::Error::System`]: EFAULT when a part of the range is not mapped, EINVAL when it is shared
    /// memory of more than one segment.
    pub fn containing(start: u64, length: u64) -> Result<Self> {
        let failed = |errno| system(format!("find the mapping of {length} bytes"), errno);
        count_call();
        let maps = std::fs::read_to_string("/proc/self/maps")
            .map_err(|error| failed(error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)))?;
        find(&maps, Span { start, length }).map_err(failed)
    }

    /// Its addresses.
    pub fn span(&self) -> Span {
        self.span
    }

    /// Returns true if other processes may map it.
    pub fn shared(&self) -> bool {
        self.shared
    }

    /// Returns the *shmid* of a System V segment. In the paper it "is not known anymore" to a
    /// library that has only an address (§4.1.2); Linux reports it as the inode's number.
    pub fn shm_id(&self) -> Option<i32> {
        self.shm
    }

    pub(crate) fn key(&self) -> Key {
        self.key.clone()
    }
}

/// One line of the file.
#[derive(Debug)]
struct Line {
    start: u64,
    end: u64,
    shared: bool,
    offset: u64,
    file: FileId,
    shm: Option<i32>,
}

impl Line {
    fn parse(text: &str) -> Option<Self> {
        let (range, rest) = text.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let mut words = rest.split_ascii_whitespace();
        let rights = words.next()?;
        let offset = words.next()?;
        let device = words.next()?;
        let inode: u64 = words.next()?.parse().ok()?;
        let name = words.next().unwrap_or_default();
        // The kernel's own mount has no hardware behind it.
        let system_v = device.starts_with("00:") && name.starts_with("/SYSV");
        let start = u64::from_str_radix(start, 16).ok()?;
        let end = u64::from_str_radix(end, 16).ok()?;
        if end <= start {
            return None;
        }
        Some(Self {
            start,
            end,
            shared: rights.ends_with('s'),
            offset: u64::from_str_radix(offset, 16).ok()?,
            file: FileId {
                device: device.to_owned(),
                inode,
            },
            shm: i32::try_from(inode).ok().filter(|_| system_v),
        })
    }

    /// Returns true if `next` continues this line in the same segment.
    fn continues_with(&self, next: &Self) -> bool {
        self.end == next.start
            && self.shared
            && next.shared
            && self.file == next.file
            && self.offset.checked_add(self.end - self.start) == Some(next.offset)
    }
}

fn lines(maps: &str) -> impl Iterator<Item = Line> + '_ {
    maps.lines().filter_map(Line::parse)
}

fn find(maps: &str, given: Span) -> std::result::Result<Segment, Errno> {
    let end = given
        .start
        .checked_add(given.length)
        .ok_or(Errno::EOVERFLOW)?;
    // Joined, so that a segment is one line even if parts of it are locked.
    let mut joined: Vec<Line> = Vec::new();
    for line in lines(maps) {
        match joined.last_mut() {
            Some(last) if last.continues_with(&line) => last.end = line.end,
            _ => joined.push(line),
        }
    }
    let touched = joined
        .iter()
        .filter(|line| line.start < end && given.start < line.end);
    let mut first = None;
    let mut reached = given.start;
    for line in touched {
        if line.start > reached {
            return Err(Errno::EFAULT);
        }
        reached = line.end;
        let first = first.get_or_insert(line);
        if (first.shared || line.shared) && !std::ptr::eq(*first, line) {
            return Err(Errno::EINVAL);
        }
    }
    let line = first.filter(|_| reached >= end).ok_or(Errno::EFAULT)?;
    Ok(Segment {
        span: Span {
            start: line.start,
            length: line.end - line.start,
        },
        key: Key {
            start: line.start,
            file: line.file.clone(),
        },
        shared: line.shared,
        shm: line.shm.filter(|_| line.shared),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use uldma::memory::Kind;
    use uldma::Memory;

    use super::super::mlock::mlock;
    use super::*;

    /// A shared segment of `pages` pages.
    pub(crate) fn shared(start: u64, pages: u64) -> Segment {
        let end = start + pages * 4096;
        let maps = format!("{start:x}-{end:x} rw-s 00000000 00:01 77   /SYSV00000000 (deleted)\n");
        find(&maps, Span { start, length: 1 }).unwrap()
    }

    /// A page of private memory.
    pub(crate) fn private(start: u64) -> Segment {
        let maps = format!("{start:x}-{:x} rw-p 00000000 00:00 0\n", start + 4096);
        find(&maps, Span { start, length: 1 }).unwrap()
    }

    const MAPS: &str = "\
        00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/x\n\
        01000000-01002000 rw-p 00000000 00:00 0           [heap]\n\
        01002000-01003000 rw-p 00000000 00:00 0 \n\
        02000000-02001000 rw-s 00000000 00:01 5           /SYSV0000002a (deleted)\n\
        02001000-02002000 rw-s 00001000 00:01 5           /SYSV0000002a (deleted)\n\
        02002000-02003000 rw-s 00002000 00:01 5           /SYSV0000002a (deleted)\n\
        02003000-02004000 rw-s 00000000 00:01 6           /memfd:x (deleted)\n\
        02004000-02005000 rw-s 00000000 00:01 6           /memfd:x (deleted)\n\
        nonsense\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";

    fn at(start: u64, length: u64) -> std::result::Result<Segment, Errno> {
        find(MAPS, Span { start, length })
    }

    #[test]
    fn a_segment_that_is_locked_in_part_is_found_whole() {
        let segment = at(0x200_1800, 16).unwrap();
        assert_eq!(segment.span().start, 0x200_0000);
        assert_eq!(segment.span().length, 0x3000);
        assert!(segment.shared());
        assert_eq!(segment.shm_id(), Some(5));
    }

    #[test]
    fn a_file_that_is_mapped_twice_is_two_segments() {
        let (first, second) = (at(0x200_3000, 1).unwrap(), at(0x200_4000, 1).unwrap());
        assert_eq!(first.span().length, 0x1000);
        assert_ne!(first.key(), second.key());
        assert_eq!(first.shm_id(), None);
        assert_eq!(at(0x200_3fff, 2), Err(Errno::EINVAL));
    }

    #[test]
    fn private_memory_may_consist_of_several_mappings() {
        assert!(!at(0x100_1fff, 2).unwrap().shared());
        assert_eq!(at(0x100_2fff, 2), Err(Errno::EFAULT));
        assert_eq!(at(0x3f_ffff, 2), Err(Errno::EFAULT));
        assert_eq!(at(u64::MAX, 2), Err(Errno::EOVERFLOW));
    }

    #[test]
    fn whatever_the_file_says_a_segment_has_what_was_asked_for() {
        let mut state = 1u64;
        let mut below = |limit: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % limit as u64) as usize
        };
        for _ in 0..20_000 {
            let mut maps = MAPS.as_bytes().to_vec();
            for _ in 0..below(8) {
                let at = below(maps.len());
                maps[at] = b"0123456789abcdef- \nsp:/"[below(23)];
            }
            let maps = String::from_utf8(maps).unwrap();
            let start = [0x200_1800, 0x100_1fff, 0x40_0000, u64::MAX - 9][below(4)];
            let length = 1 + below(0x2000) as u64;
            if let Ok(segment) = find(&maps, Span { start, length }) {
                let Span {
                    start: first,
                    length: bytes,
                } = segment.span();
                assert!(first <= start && bytes > 0, "{maps}");
            }
        }
    }

    #[test]
    fn the_kernel_tells_the_number_of_a_system_v_segment() {
        let memory = Memory::new(Kind::SysV, 3 * 4096).unwrap();
        let segment = Segment::containing(memory.address() + 5000, 10).unwrap();
        assert_eq!(segment.shm_id(), memory.segment_id());
        assert_eq!(segment.span().start, memory.address());
        assert_eq!(segment.span().length, 3 * 4096);
    }

    #[test]
    fn locking_a_part_does_not_hide_the_rest() {
        for kind in [Kind::Shared, Kind::Memfd, Kind::SysV] {
            let memory = Memory::new(kind, 3 * 4096).unwrap();
            let before = Segment::containing(memory.address(), 1).unwrap();
            mlock(memory.address() + 4096, 4096).unwrap();
            let after = Segment::containing(memory.address() + 4096, 1).unwrap();
            assert_eq!(before, after, "{kind:?}");
            assert!(after.shared());
        }
        let memory = Memory::new(Kind::Private, 4096).unwrap();
        assert!(!Segment::containing(memory.address(), 4096)
            .unwrap()
            .shared());
    }
}
