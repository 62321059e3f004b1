// SPDX-License-Identifier: GPL-2.0

//! The receiver's side of the engine: the endpoint to which one peer sends packets, and the pages that
//! are posted there.
//!
//! A posted buffer takes one message. The device writes it before it reports the reception, and never
//! again, so the peer cannot change what the network stack reads. Pages that are posted return to their
//! pool only when the device has confirmed the end of the endpoint; otherwise they are leaked.

use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

use super::frame;
use crate::{
    dma::{
        descriptor,
        endpoint::{
            Endpoint,
            EndpointSetup,
            Endpoints,
            NewEndpoint,
            PeerEndpoint,
            Released, //
        }, //
    },
    hw::{
        layout::{
            DescriptorFlags,
            Segment,
            MAX_SEGMENTS, //
        },
        lists::Lists,
        Hw, //
    },
    kernel_ext::{
        errno::eproto,
        net::{
            page_pool::{
                max_pages_of_packet,
                PagePool,
                PoolPage, //
            },
            skb::SkBuff, //
        }, //
    },
    link::{
        message::NetworkEndpoint,
        window_range::WindowRange, //
    },
    uapi::{
        self,
        uldma_descriptor, //
    }, //
};

/// The kernel's space.
const SPACE: u32 = 0;

/// Number and size of the buffers of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Buffers {
    count: u32,
    /// Pages of each.
    pages: u32,
}

impl Buffers {
    /// Plans buffers for packets of up to `max_frame` bytes: as much memory as the range of the peer
    /// has, and two at least.
    fn new(range_bytes: usize, max_frame: u32, max_pages: u32) -> Result<Self> {
        let page = u32::try_from(PAGE_SIZE)?;
        let bytes = max_frame.saturating_sub(frame::SPLIT);
        let pages = bytes.div_ceil(page).clamp(1, max_pages.min(MAX_SEGMENTS));
        let each = usize::try_from(pages)? * PAGE_SIZE;
        let count = range_bytes.checked_div(each).unwrap_or(0);
        let count = u32::try_from(count)?;
        Ok(Self {
            count: count.clamp(2, uapi::ULDMA_STATUS_RECORDS),
            pages,
        })
    }

    /// Returns the bytes of each.
    fn bytes(self) -> u32 {
        // At most the pages of a packet.
        self.pages * PAGE_SIZE as u32
    }
}

/// Pages by buffer and place in it. They are leaked if they are dropped without [`Pages::free`].
struct Pages(KVec<Option<PoolPage>>);

impl Pages {
    fn new(buffers: Buffers) -> Result<Self> {
        let count = usize::try_from(buffers.count)? * usize::try_from(buffers.pages)?;
        let mut pages = KVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            pages.push(None, GFP_KERNEL)?;
        }
        Ok(Self(pages))
    }

    /// Frees all.
    fn free(mut self, _: &Released) {
        self.0.clear();
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.0
            .iter_mut()
            .map(Option::take)
            .for_each(core::mem::forget);
    }
}

/// The endpoint of one peer, to be ended by [`Reception::end`].
pub(super) struct Reception {
    endpoint: Endpoint,
    buffers: Buffers,
    /// By number of the descriptor modulo the number of buffers.
    lists: Lists,
    pages: Pages,
    pool: PagePool,
    /// Last descriptor that was posted.
    posted: u64,
    /// Last reception that was taken.
    taken: u64,
    /// The next one in a list of receptions that have ended.
    pub(super) next: Option<KBox<Reception>>,
}

impl Reception {
    /// Creates an endpoint for packets of up to `max_frame` bytes of the peer that writes `range`.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if the table of endpoints is full, `ENOMEM`, `EREMOTEIO` if the device cannot access its
    /// pages.
    pub(super) fn new(
        hw: Hw<'_>,
        endpoints: &Endpoints,
        range: WindowRange,
        max_frame: u32,
    ) -> Result<KBox<Self>> {
        let buffers = Buffers::new(range.length(), max_frame, max_pages_of_packet())?;
        let pool = PagePool::new(hw.dev(), buffers.count * buffers.pages)?;
        let lists = Lists::new(hw.dev(), usize::try_from(buffers.count)?, buffers.pages)?;
        let pages = Pages::new(buffers)?;
        let place = KBox::<Self>::new_uninit(GFP_KERNEL)?;
        let new = NewEndpoint::allocate()?;
        let setup = EndpointSetup {
            space: SPACE,
            // The peer says how many buffers it has posted.
            timeout_ms: 0,
            most_bytes: frame::LONGEST.into(),
            privileged: true,
            is_stream: false,
        };
        let endpoint = endpoints.create(hw.dev(), new, setup, None)?;
        Ok(KBox::write(
            place,
            Self {
                endpoint,
                buffers,
                lists,
                pages,
                pool,
                posted: 0,
                taken: 0,
                next: None,
            },
        ))
    }

    /// Returns the message by which the peer learns of the endpoint, for the ring `key`.
    pub(super) fn announcement(&self, key: u32) -> NetworkEndpoint {
        let (index, generation) = self.endpoint.name();
        NetworkEndpoint {
            key,
            index,
            generation,
            most_bytes: self.most_bytes(),
        }
    }

    /// Returns the index of the endpoint.
    pub(super) fn index(&self) -> u32 {
        self.endpoint.name().0
    }

    /// Returns the bytes of the largest message.
    pub(super) fn most_bytes(&self) -> u32 {
        self.buffers.bytes()
    }

    /// Connects the endpoint to that of the peer.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if the link is down, `EISCONN` if it is connected.
    pub(super) fn connect(
        &mut self,
        hw: Hw<'_>,
        endpoints: &Endpoints,
        node: u32,
        theirs: &NetworkEndpoint,
    ) -> Result {
        let peer = PeerEndpoint {
            node,
            index: theirs.index,
            generation: theirs.generation,
        };
        endpoints.connect(hw, &mut self.endpoint, peer)
    }

    fn buffer_of(&self, number: u64) -> Result<usize> {
        let buffer = number.checked_rem(self.buffers.count.into());
        Ok(usize::try_from(buffer.ok_or(EINVAL)?)?)
    }

    /// Posts all buffers that are not posted, as far as there is memory. Returns how many were ever
    /// posted, modulo 2^32.
    pub(super) fn post(&mut self) -> u32 {
        while self.posted - self.taken < u64::from(self.buffers.count) {
            if self.post_one(self.posted + 1).is_err() {
                // The peer sends by the ring meanwhile.
                break;
            }
            self.posted += 1;
        }
        // The peer counts so, too.
        self.posted as u32
    }

    fn post_one(&mut self, number: u64) -> Result {
        let buffer = self.buffer_of(number)?;
        let each = usize::try_from(self.buffers.pages)?;
        let places = self.pages.0.iter_mut().skip(buffer * each).take(each);
        for (place, page) in places.enumerate() {
            if page.is_none() {
                *page = Some(self.pool.alloc()?);
            }
            if let Some(page) = page {
                let segment = Segment {
                    address: page.address(),
                    bytes: u64::try_from(PAGE_SIZE)?,
                };
                self.lists.write(buffer, place, segment)?;
            }
        }
        let posted = uldma_descriptor {
            ticket: number,
            op: uapi::ULDMA_OP_RECV,
            flags: DescriptorFlags::LIST.bits(),
            dst: self.buffers.pages,
            dst_offset: self.lists.address(buffer)?,
            length: self.buffers.bytes().into(),
            ..zerocopy::FromZeros::new_zeroed()
        };
        descriptor::write(self.endpoint.ring(), &posted)
    }

    /// Takes the next message, of `bytes` bytes, and appends it to `skb`, if there is one.
    ///
    /// # Errors
    ///
    /// `EPROTO` if there is no such message, or the next one has failed: no frame tells of that one, nor
    /// of any behind it.
    pub(super) fn take(&mut self, bytes: u32, mut skb: Option<&mut SkBuff>) -> Result {
        let number = self.taken + 1;
        let status = self.endpoint.status();
        // A device that reports wrong numbers cannot end what was not posted.
        if number > status.completed().min(self.posted) {
            return Err(eproto());
        }
        let outcome = status.record(number).ok_or_else(eproto)?;
        if outcome.check().is_err() || outcome.bytes != u64::from(bytes) {
            return Err(eproto());
        }
        self.taken = number;
        let Some(skb) = &mut skb else {
            return Ok(());
        };
        let each = usize::try_from(self.buffers.pages)?;
        let page_bytes = u32::try_from(PAGE_SIZE)?;
        let mut left = bytes;
        let buffer = self.buffer_of(number)?;
        for page in self.pages.0.iter_mut().skip(buffer * each).take(each) {
            if left == 0 {
                break;
            }
            let here = left.min(page_bytes);
            page.take().ok_or(EINVAL)?.append_to(skb, here)?;
            left -= here;
        }
        Ok(())
    }

    /// Ends the endpoint. May sleep.
    ///
    /// # Errors
    ///
    /// The reception if the device does not answer: it may write to the pages until it is quiet.
    pub(super) fn end(
        self: KBox<Self>,
        hw: Hw<'_>,
        endpoints: &Endpoints,
    ) -> Result<(), KBox<Self>> {
        match endpoints.release(hw, &self.endpoint) {
            Ok(released) => {
                self.free(&released);
                Ok(())
            }
            Err(_) => Err(self),
        }
    }

    /// Frees the pages. May sleep.
    pub(super) fn free(self: KBox<Self>, released: &Released) {
        // The pool ends after its pages.
        let Self {
            pages, pool: _pool, ..
        } = KBox::into_inner(self);
        pages.free(released);
    }
}

#[kunit_tests(uldma_net_reception)]
mod tests {
    use super::*;

    const PAGE: u32 = PAGE_SIZE as u32;

    #[test]
    fn buffers_hold_the_longest_packets() -> Result {
        for (range, max_frame) in [
            (1 << 20, frame::LONGEST),
            (64 << 10, 1514),
            (16 << 10, 8000),
        ] {
            let buffers = Buffers::new(range, max_frame, 17)?;
            assert!(buffers.bytes() + frame::SPLIT >= max_frame);
            assert!(buffers.bytes() < max_frame + PAGE);
            assert!((2..=64).contains(&buffers.count));
            let bytes = usize::try_from(buffers.bytes())? * usize::try_from(buffers.count)?;
            assert!(bytes <= range || buffers.count == 2);
        }
        Ok(())
    }

    #[test]
    fn buffers_are_no_larger_than_packets_can_be() -> Result {
        let buffers = Buffers::new(1 << 20, frame::LONGEST, 8)?;
        assert_eq!(buffers.bytes(), 8 * PAGE);
        assert_eq!(Buffers::new(0, 0, 17)?.bytes(), PAGE);
        Ok(())
    }
}
