// SPDX-License-Identifier: MIT OR Apache-2.0

//! Window segments: shared memory between the nodes that the peer writes and the owner reads.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::device::event::Counts;
use crate::device::Device;
use crate::error::name::Name;
use crate::error::peer::Peer;
use crate::error::{Error, Result};
use crate::region::export::retry_lookup;
use crate::ring::{Inbound, Outbound};
use crate::sys::{uapi, Mapping};
use crate::wait::deadline::Deadline;
use crate::{mmio, sys};

/// A part of this node's inbound window: the peer writes it, this process reads it.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Device, InboundSegment, Name};
///
/// let device = Device::open(0)?;
/// let segment: InboundSegment = device.create_segment(Name::of_word("status"), 4096)?;
/// if segment.wait_doorbell(Duration::from_secs(1))? {
///     let mut word = [0; 8];
///     segment.read(0, &mut word)?;
///     println!("{}", u64::from_le_bytes(word));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct InboundSegment {
    mapping: Mapping,
    end: SegmentHandle,
    /// Doorbells that [`InboundSegment::wait_doorbell`] has reported.
    reported: AtomicU64,
}

/// A part of the peer's inbound window: this process writes it, the peer reads it.
///
/// There is no way to read it: a load would go across the link and wait for the answer.
///
/// ```no_run
/// # fn main() -> uldma::Result<()> {
/// use std::time::Duration;
/// use uldma::{Device, Name, OutboundSegment};
///
/// let device = Device::open(0)?;
/// let name = Name::of_word("status");
/// let segment: OutboundSegment = device.attach_segment(name, Duration::from_secs(1))?;
/// segment.write(0, &42u64.to_le_bytes())?;
/// segment.ring_doorbell()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct OutboundSegment {
    mapping: Mapping,
    end: SegmentHandle,
}

/// A segment's handle, ended on drop.
#[derive(Debug)]
struct SegmentHandle {
    device: Device,
    handle: u32,
}

impl Drop for SegmentHandle {
    fn drop(&mut self) {
        // This fails only after the device has been removed, and the segment with it.
        let _ = sys::segment_destroy(self.device.as_fd(), sys::handle(self.handle));
    }
}

impl SegmentHandle {
    fn map(&self, offset: u64, length: u64) -> Result<Mapping> {
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        Mapping::shared(self.device.as_fd(), offset, length, prot)
            .map_err(|errno| Error::system(format!("map {length} bytes of the window"), errno))
    }
}

impl Device {
    /// Allocates a segment that the other node of a link of two writes: `length` bytes, rounded up to
    /// pages, zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EEXIST when the name is taken, EINVAL for no bytes, ENOSPC when the window
    /// is full, EDQUOT when this user's share of it is used up; [`Error::NoPeer`] where the link has more
    /// than two nodes.
    pub fn create_segment(&self, name: Name, length: u64) -> Result<InboundSegment> {
        self.create_segment_for(Peer::OTHER, name, length)
    }

    /// Allocates a segment that a peer writes, and no other node can: `length` bytes, rounded up to pages,
    /// zeroed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: EEXIST when the name is taken, EINVAL for no bytes, ENOSPC when the peer's part
    /// of the window is full, EDQUOT when this user's share of the window is used up.
    pub fn create_segment_for(
        &self,
        peer: Peer,
        name: Name,
        length: u64,
    ) -> Result<InboundSegment> {
        let argument = uapi::uldma_segment_create {
            name: name.get(),
            length,
            peer: peer.field(),
            ..Default::default()
        };
        let answer = sys::segment_create(self.as_fd(), argument).map_err(|errno| {
            let what = format!("create segment {name} of {length} bytes");
            self.about_peer(peer, Error::system(what, errno))
        })?;
        let end = SegmentHandle {
            device: self.clone(),
            handle: answer.out_handle,
        };
        let mapping = end.map(answer.out_offset, answer.out_length)?;
        Ok(InboundSegment {
            mapping,
            end,
            reported: AtomicU64::new(0),
        })
    }

    /// Reaches the segment that the other node of a link of two created under `name`.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT or ETIMEDOUT when the peer never created it, ENOTCONN when there
    /// is no peer; [`Error::NoPeer`] where the link has more than two nodes.
    pub fn attach_segment(&self, name: Name, timeout: Duration) -> Result<OutboundSegment> {
        self.attach_segment_of(Peer::OTHER, name, timeout)
    }

    /// Attaches the segment that a peer created under `name`. While the peer has none of that name,
    /// retries until `timeout` has passed.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOENT or ETIMEDOUT when the peer never created it, ENOTCONN when there
    /// is no peer.
    pub fn attach_segment_of(
        &self,
        peer: Peer,
        name: Name,
        timeout: Duration,
    ) -> Result<OutboundSegment> {
        let answer = retry_lookup("segment", name, timeout, |timeout_ns| {
            self.ask_for_segment(peer, name, timeout_ns)
        })
        .map_err(|error| self.about_peer(peer, error))?;
        self.attached(&answer)
    }

    fn ask_for_segment(
        &self,
        peer: Peer,
        name: Name,
        timeout_ns: u64,
    ) -> std::result::Result<uapi::uldma_segment_attach, Errno> {
        let argument = uapi::uldma_segment_attach {
            name: name.get(),
            timeout_ns,
            peer: peer.field(),
            ..Default::default()
        };
        sys::segment_attach(self.as_fd(), argument)
    }

    /// Maps the rings of the open file's connection: that which the peer's program writes, and that which
    /// this one writes. None if the connection has no rings.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOTCONN without a connection, EBUSY when they are mapped already, EDQUOT.
    pub(crate) fn rings(&self) -> Result<Option<(InboundSegment, OutboundSegment)>> {
        let own = self.ring(0)?;
        let peer = self.ring(uapi::ULDMA_RING_PEER)?;
        Ok(own.zip(peer).map(|(own, peer)| {
            let (mapping, end) = own;
            let inbound = InboundSegment {
                mapping,
                end,
                reported: AtomicU64::new(0),
            };
            let (mapping, end) = peer;
            (inbound, OutboundSegment { mapping, end })
        }))
    }

    fn ring(&self, flags: u32) -> Result<Option<(Mapping, SegmentHandle)>> {
        let argument = uapi::uldma_conn_ring {
            flags,
            ..Default::default()
        };
        let answer = match sys::conn_ring(self.as_fd(), argument) {
            Err(Errno::ENOENT) => return Ok(None),
            other => other.map_err(|errno| Error::connection("map the rings", errno))?,
        };
        let end = SegmentHandle {
            device: self.clone(),
            handle: answer.out_handle,
        };
        let mapping = end.map(answer.out_offset, answer.out_length)?;
        Ok(Some((mapping, end)))
    }

    fn attached(&self, answer: &uapi::uldma_segment_attach) -> Result<OutboundSegment> {
        let end = SegmentHandle {
            device: self.clone(),
            handle: answer.out_handle,
        };
        Ok(OutboundSegment {
            mapping: end.map(answer.out_offset, answer.out_length)?,
            end,
        })
    }
}

impl InboundSegment {
    /// Bytes.
    pub fn length(&self) -> usize {
        self.mapping.length()
    }

    pub(crate) fn handle(&self) -> u32 {
        self.end.handle
    }

    /// Copies what the peer wrote at `offset` into `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn read(&self, offset: usize, target: &mut [u8]) -> Result<()> {
        check(self.length(), offset, target.len())?;
        self.mapping.read(offset, target);
        Ok(())
    }

    /// Sleeps until the peer has rung this segment's doorbell since the last call; false when
    /// `timeout` passes before. Segments share doorbells, so the ring may have been for another one.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENODEV when the device has been removed.
    pub fn wait_doorbell(&self, timeout: Duration) -> Result<bool> {
        let device = &self.end.device;
        let reported = self.reported.load(Ordering::Relaxed);
        let deadline = Deadline::after(timeout);
        let rung = |now: &Counts| now.doorbells(self.handle()) != reported;
        let rang = device.events().wait(device.as_fd(), deadline, rung)?;
        let now = device.events().snapshot().doorbells(self.handle());
        self.reported.store(now, Ordering::Relaxed);
        Ok(rang)
    }
}

impl OutboundSegment {
    /// Bytes.
    pub fn length(&self) -> usize {
        self.mapping.length()
    }

    /// Stores `source` into the peer's memory at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`].
    pub fn write(&self, offset: usize, source: &[u8]) -> Result<()> {
        check(self.length(), offset, source.len())?;
        self.mapping.write(offset, source);
        Ok(())
    }

    pub(crate) fn handle(&self) -> u32 {
        self.end.handle
    }

    /// Rings this segment's doorbell at the peer, which wakes its waiters. Takes one system call.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: ENOTCONN when the link is down.
    pub fn ring_doorbell(&self) -> Result<()> {
        sys::doorbell(self.end.device.as_fd(), sys::handle(self.end.handle))
            .map(drop)
            .map_err(|errno| Error::system("ring the doorbell", errno))
    }
}

fn check(size: usize, offset: usize, length: usize) -> Result<()> {
    if offset <= size && length <= size - offset {
        return Ok(());
    }
    Err(Error::Range {
        offset: offset as u64,
        length: length as u64,
        size: size as u64,
    })
}

impl Inbound for InboundSegment {
    #[inline]
    fn load(&self, offset: usize) -> u64 {
        u64::from_le(self.mapping.word(offset).load(Ordering::Acquire))
    }

    #[inline]
    fn acquire(&self, offset: usize) -> u64 {
        let word = self.load(offset);
        mmio::acquire_barrier();
        word
    }

    #[inline(always)]
    fn await_upper(&self, offset: usize, wanted: u64, looks: u32) -> u64 {
        let word = self.mapping.word(offset);
        let mut value = 0;
        for _ in 0..looks.max(1) {
            value = u64::from_le(word.load(Ordering::Acquire));
            if (value ^ wanted) >> 32 == 0 {
                // Not at each look: what is not there yet is not read.
                mmio::acquire_barrier();
                break;
            }
        }
        value
    }

    #[inline]
    fn read(&self, offset: usize, target: &mut [u8]) {
        self.mapping.read(offset, target);
    }

    #[inline]
    fn fence(&self) {
        mmio::full_barrier();
    }
}

impl Outbound for OutboundSegment {
    #[inline]
    fn store(&self, offset: usize, value: u64) {
        let word = self.mapping.word(offset);
        word.store(value.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn publish(&self, offset: usize, value: u64) {
        mmio::publish_barrier();
        let word = self.mapping.word(offset);
        word.store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn release(&self, offset: usize, value: u64) {
        mmio::release_barrier();
        let word = self.mapping.word(offset);
        word.store(value.to_le(), Ordering::Release);
    }

    #[inline]
    fn write(&self, offset: usize, source: &[u8]) {
        self.mapping.write(offset, source);
    }
}
