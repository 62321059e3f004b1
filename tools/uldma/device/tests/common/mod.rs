// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host's memory with tables in it, as a driver would fill them.

// Each test program uses its own part of this.
#![allow(dead_code)]
// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

pub(crate) mod endpoint;
pub(crate) mod host;
pub(crate) mod methods;
pub(crate) mod raw;
pub(crate) mod rig;

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags};
use uldma_device::abi::{descriptor, status_page, Op, STATUS_RECORDS};
use uldma_device::layout::{
    EndpointEntry, PageEntry, PageWord, RegionEntry, RegionFlags, Run, TABLE_BLOCK_SIZE,
};
use uldma_device::memory::GuestMemory;

/// Bus address of the first byte of a guest's memory.
pub(crate) const BASE: u64 = 0x10_0000;
pub(crate) const PAGE: u64 = 4096;

const PAGE_DIRECTORY: u64 = BASE + 0x1000;
const REGION_DIRECTORY: u64 = BASE + 0x2000;
const STATUS_PAGES: u64 = BASE + 0x4000;
const DESCRIPTORS: u64 = BASE + 0x1_0000;
const REGION_BLOCKS: u64 = BASE + 0x2_0000;
pub(crate) const PAGE_BLOCKS: u64 = BASE + 0x4_0000;
const ENDPOINT_DIRECTORY: u64 = BASE + 0x9_0000;
const ENDPOINT_BLOCK: u64 = BASE + 0x9_1000;
const RECEIVE_RING: u64 = BASE + 0x9_2000;
const RECEIVE_STATUS: u64 = BASE + 0x9_3000;
/// First bus address that tables do not use.
pub(crate) const FREE: u64 = BASE + 0x10_0000;

/// Entries that both tables have room for here.
pub(crate) const PAGES: u32 = 16 * 1024;
pub(crate) const REGIONS: u32 = 1024;

pub(crate) const ALL_RIGHTS: RegionFlags = RegionFlags::VALID
    .union(RegionFlags::READ)
    .union(RegionFlags::WRITE)
    .union(RegionFlags::EXPORT_READ)
    .union(RegionFlags::EXPORT_WRITE);
pub(crate) const PAGE_RIGHTS: PageWord =
    PageWord::VALID.union(PageWord::READ).union(PageWord::WRITE);

/// One descriptor of a queue.
#[derive(Clone, Copy)]
pub(crate) struct Descriptor {
    pub(crate) op: u32,
    pub(crate) flags: u32,
    /// Region and first byte.
    pub(crate) source: (u32, u64),
    pub(crate) destination: (u32, u64),
    pub(crate) length: u64,
    pub(crate) operand: u64,
    pub(crate) compare: u64,
}

impl Descriptor {
    pub(crate) const NOP: Self = Self {
        op: Op::Nop as u32,
        flags: 0,
        source: (0, 0),
        destination: (0, 0),
        length: 0,
        operand: 0,
        compare: 0,
    };

    pub(crate) fn copy(source: (u32, u64), destination: (u32, u64), length: u64) -> Self {
        Self {
            op: Op::Copy as u32,
            source,
            destination,
            length,
            ..Self::NOP
        }
    }

    pub(crate) fn add(destination: (u32, u64), operand: u64) -> Self {
        Self {
            op: Op::FetchAdd as u32,
            destination,
            operand,
            ..Self::NOP
        }
    }

    pub(crate) fn swap(destination: (u32, u64), compare: u64, operand: u64) -> Self {
        Self {
            op: Op::CompareSwap as u32,
            destination,
            operand,
            compare,
            ..Self::NOP
        }
    }

    pub(crate) fn flags(self, flags: u32) -> Self {
        Self { flags, ..self }
    }
}

/// The flags of an import from a node, with all rights.
pub(crate) fn import_from(node: u32) -> RegionFlags {
    let flags = RegionFlags::VALID | RegionFlags::READ | RegionFlags::WRITE | RegionFlags::REMOTE;
    flags.try_with(RegionFlags::NODE, node).unwrap()
}

/// Zeroed memory behind a file that cannot be cut short.
pub(crate) fn memfd(size: u64) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(rustix::fs::memfd_create("test", flags).unwrap());
    file.set_len(size).unwrap();
    rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
    file
}

/// The memory of one host, from [`BASE`] on.
pub(crate) struct Guest {
    pub(crate) file: File,
    pub(crate) size: u64,
}

impl Guest {
    pub(crate) fn new(size: u64) -> Self {
        let guest = Self {
            file: memfd(size),
            size,
        };
        let entry = size_of::<PageEntry>() as u32;
        for block in 0..u64::from(PAGES / (TABLE_BLOCK_SIZE as u32 / entry)) {
            let address = PAGE_BLOCKS + block * TABLE_BLOCK_SIZE as u64;
            guest.put64(PAGE_DIRECTORY + block * 8, address);
        }
        let entry = size_of::<RegionEntry>() as u32;
        for block in 0..u64::from(REGIONS / (TABLE_BLOCK_SIZE as u32 / entry)) {
            let address = REGION_BLOCKS + block * TABLE_BLOCK_SIZE as u64;
            guest.put64(REGION_DIRECTORY + block * 8, address);
        }
        guest.put64(ENDPOINT_DIRECTORY, ENDPOINT_BLOCK);
        guest
    }

    /// This memory as the device sees it.
    pub(crate) fn memory(&self) -> GuestMemory {
        let mut memory = GuestMemory::default();
        let file = self.file.try_clone().unwrap();
        memory
            .map(BASE, self.size, Some((file, 0)), true, true)
            .unwrap();
        memory
    }

    pub(crate) fn page_directory(&self) -> u64 {
        PAGE_DIRECTORY
    }

    pub(crate) fn region_directory(&self) -> u64 {
        REGION_DIRECTORY
    }

    /// Bus address of a context's status page.
    pub(crate) fn status_page(&self, context: u32) -> u64 {
        STATUS_PAGES + u64::from(context) * PAGE
    }

    /// Bus address of a context's descriptors.
    pub(crate) fn descriptors(&self, context: u32) -> u64 {
        DESCRIPTORS + u64::from(context) * PAGE
    }

    pub(crate) fn endpoint_directory(&self) -> u64 {
        ENDPOINT_DIRECTORY
    }

    pub(crate) fn receive_ring(&self) -> u64 {
        RECEIVE_RING
    }

    pub(crate) fn receive_status(&self) -> u64 {
        RECEIVE_STATUS
    }

    /// Writes a descriptor to a context's queue.
    pub(crate) fn submit(&self, context: u32, ticket: u64, asked: &Descriptor) {
        self.put_descriptor(self.descriptors(context), ticket, asked);
    }

    /// Writes a descriptor to the receive ring.
    pub(crate) fn post(&self, ticket: u64, asked: &Descriptor) {
        self.put_descriptor(RECEIVE_RING, ticket, asked);
    }

    fn put_descriptor(&self, page: u64, ticket: u64, asked: &Descriptor) {
        let place = page + ticket % STATUS_RECORDS * descriptor::SIZE;
        let two = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
        for (offset, word) in [
            (descriptor::OP, two(asked.op, asked.flags)),
            (
                descriptor::REGIONS,
                two(asked.source.0, asked.destination.0),
            ),
            (descriptor::SRC_OFFSET, asked.source.1),
            (descriptor::DST_OFFSET, asked.destination.1),
            (descriptor::LENGTH, asked.length),
            (descriptor::OPERAND, asked.operand),
            (descriptor::COMPARE, asked.compare),
            (descriptor::TICKET, ticket),
        ] {
            self.put64(place + offset, word);
        }
    }

    /// Returns the flag that asks for a wake-up of the device for a context's queue.
    pub(crate) fn wakeup(&self, context: u32) -> u64 {
        self.get64(self.status_page(context) + status_page::WAKEUP)
    }

    /// Returns the number of a context's initiations that got no ticket.
    pub(crate) fn refused(&self, context: u32) -> u64 {
        self.get64(self.status_page(context) + status_page::REFUSED)
    }

    pub(crate) fn put(&self, address: u64, data: &[u8]) {
        self.file.write_all_at(data, address - BASE).unwrap();
    }

    pub(crate) fn put64(&self, address: u64, value: u64) {
        self.put(address, &value.to_le_bytes());
    }

    pub(crate) fn get(&self, address: u64, length: usize) -> Vec<u8> {
        let mut data = vec![0; length];
        self.file.read_exact_at(&mut data, address - BASE).unwrap();
        data
    }

    pub(crate) fn get64(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.get(address, 8).try_into().unwrap())
    }

    pub(crate) fn put_page(&self, index: u32, entry: &PageEntry) {
        let place = PAGE_BLOCKS + u64::from(index) * 16;
        self.put64(place, entry.word.bits());
        self.put64(
            place + 8,
            u64::from(entry.space) | (u64::from(entry.region) << 32),
        );
    }

    pub(crate) fn put_region(&self, index: u32, entry: &RegionEntry) {
        let words = [
            u64::from(entry.flags.bits()) | (u64::from(entry.space) << 32),
            entry.offset,
            entry.length,
            entry.generation,
            u64::from(entry.run_count) | (u64::from(entry.first_page) << 32),
            entry.runs,
            u64::from(entry.peer_region) | (u64::from(entry.link_generation) << 32),
            entry.peer_generation,
        ];
        for (number, word) in words.into_iter().enumerate() {
            let place = REGION_BLOCKS + u64::from(index) * 64 + number as u64 * 8;
            self.put64(place, word);
        }
    }

    pub(crate) fn put_endpoint(&self, index: u32, entry: &EndpointEntry) {
        let two = |low: u32, high: u32| u64::from(low) | (u64::from(high) << 32);
        let words = [
            two(entry.flags.bits(), entry.space),
            entry.generation,
            entry.receive_ring,
            entry.receive_status,
            two(entry.timeout_ms, entry.peer_endpoint),
            entry.peer_generation,
            two(entry.link_generation, entry.reserved),
            entry.most_bytes,
        ];
        for (number, word) in words.into_iter().enumerate() {
            let place = ENDPOINT_BLOCK + u64::from(index) * 64 + number as u64 * 8;
            self.put64(place, word);
        }
    }

    pub(crate) fn put_runs(&self, address: u64, runs: &[Run]) {
        for (number, run) in runs.iter().enumerate() {
            let place = address + number as u64 * 16;
            self.put64(place, u64::from(run.page) | (u64::from(run.first) << 32));
            self.put64(place + 8, run.count.into());
        }
    }

    /// A region over consecutive page entries and consecutive memory.
    pub(crate) fn register(
        &self,
        index: u32,
        space: u32,
        first_page: u32,
        address: u64,
        length: u64,
    ) {
        let offset = address % PAGE;
        let pages = (offset + length).div_ceil(PAGE);
        for page in 0..pages {
            self.put_page(
                first_page + page as u32,
                &page_entry(
                    PAGE_RIGHTS.with_address(address - offset + page * PAGE),
                    space,
                    0,
                ),
            );
        }
        self.put_region(
            index,
            &RegionEntry {
                flags: ALL_RIGHTS,
                space,
                offset,
                length,
                generation: 1,
                run_count: 1,
                first_page,
                ..RegionEntry::default()
            },
        );
    }

    /// An import of the region of a node, over page entries from `first_page` on.
    pub(crate) fn import(
        &self,
        index: u32,
        space: u32,
        first_page: u32,
        (node, region): (u32, u32),
        length: u64,
    ) {
        for page in 0..length.div_ceil(PAGE) {
            self.put_page(
                first_page + page as u32,
                &page_entry(
                    (PAGE_RIGHTS | PageWord::REMOTE).with_address(page * PAGE),
                    space,
                    index,
                ),
            );
        }
        self.put_region(
            index,
            &RegionEntry {
                flags: import_from(node),
                space,
                length,
                generation: 7,
                run_count: 1,
                first_page,
                peer_region: region,
                link_generation: 1,
                peer_generation: 1,
                ..RegionEntry::default()
            },
        );
    }

    /// Highest ticket of a context that has ended, and how many ended badly.
    pub(crate) fn completed(&self, context: u32) -> (u64, u64) {
        let page = self.status_page(context);
        (
            self.get64(page + status_page::COMPLETED),
            self.get64(page + status_page::FAILED),
        )
    }

    /// Ticket, bytes and status of a completion record.
    pub(crate) fn record(&self, context: u32, ticket: u64) -> (u64, u64, u64) {
        self.record_at(self.status_page(context), ticket)
    }

    /// Ticket, bytes and status, with the flags above it, of a reception.
    pub(crate) fn reception(&self, ticket: u64) -> (u64, u64, u64) {
        self.record_at(RECEIVE_STATUS, ticket)
    }

    fn record_at(&self, page: u64, ticket: u64) -> (u64, u64, u64) {
        let place = page + status_page::RECORDS + ticket % 64 * status_page::RECORD_SIZE;
        (
            self.get64(place + status_page::RECORD_TICKET),
            self.get64(place + status_page::RECORD_BYTES),
            self.get64(place + status_page::RECORD_STATUS),
        )
    }
}

/// An entry of a page that was not accessed.
pub(crate) fn page_entry(word: PageWord, space: u32, region: u32) -> PageEntry {
    PageEntry::new(word, space, region).unwrap()
}

/// Bytes that do not repeat soon.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..length)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 24) as u8
        })
        .collect()
}
