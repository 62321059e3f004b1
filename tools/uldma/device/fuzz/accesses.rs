// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two guests that make any accesses: registers, shadow space, tables, descriptors, resets, in any
//! order, on a device with any faults.

use clap::ValueEnum;
use uldma_device::abi::{Method, Op};
use uldma_device::fault::Fault;
use uldma_device::layout::{
    ctx, reg, ContextControl, Control, DescriptorFlags, Invalidation, PageEntry, PageWord,
    RegionEntry, RegionFlags, Word, BAR_CONTEXT, BAR_CONTROL, BAR_SHADOW, BAR_WINDOW,
    CONTEXT_BLOCKS, CONTEXT_STRIDE, OP_INVALIDATE,
};
use uldma_device::memory::GuestMemory;
use uldma_device::shadow::SizeWord;

use crate::common::rig::{at, Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use crate::common::{
    import_from, memfd, pattern, Descriptor, ALL_RIGHTS, BASE, FREE, PAGE, PAGE_RIGHTS,
};
use crate::input::Input;

/// Memory of a guest that no table names, and that is far from all addresses in inputs.
const SECRET: u64 = 0x5ec7_3700_0000;
/// Chunks that the engine may need for all that an input has queued.
const ENOUGH: usize = 100_000;

const REGISTERS: [usize; 22] = [
    reg::ID.offset(),
    reg::PAGE_SHIFT.offset(),
    reg::CONTROL.offset(),
    reg::STATUS.offset(),
    reg::EVENT.offset(),
    reg::PAGE_DIRECTORY.offset(),
    reg::REGION_DIRECTORY.offset(),
    reg::PAGE_CAPACITY.offset(),
    reg::REGION_CAPACITY.offset(),
    reg::INVALIDATE.offset(),
    reg::INVALIDATE_PENDING.offset(),
    reg::DMA_SOURCE.offset(),
    reg::DMA_DESTINATION.offset(),
    reg::DMA_SIZE.offset(),
    reg::DMA_STATUS.offset(),
    reg::RUNNING.offset(),
    reg::WINDOW_SIZE.offset(),
    reg::DOORBELL.offset(),
    reg::DOORBELL_MASK.offset(),
    reg::SCRATCHPAD.offset(),
    reg::PEER_DOORBELL.offset(),
    reg::PEER_SCRATCHPAD.offset(),
];
const OF_CONTEXT: [usize; 10] = [
    ctx::CONTROL.offset(),
    ctx::SPACE.offset(),
    ctx::STATUS_PAGE.offset(),
    ctx::METHODS.offset(),
    ctx::KEY.offset(),
    ctx::ARM.offset(),
    ctx::QUEUE.offset(),
    ctx::TICKET.offset(),
    ctx::BAD_KEYS.offset(),
    ctx::BYTES.offset(),
];

/// Numbers that mean something to the device.
fn known(rig: &Rig) -> Vec<u64> {
    let guest = &rig.guests[0];
    let word = |bytes, src_region, dst_region| {
        SizeWord {
            bytes,
            src_region,
            dst_region,
            ..SizeWord::default()
        }
        .pack()
    };
    vec![
        BASE,
        FREE,
        FREE + (4 << 20),
        guest.page_directory(),
        guest.region_directory(),
        guest.status_page(OURS),
        guest.descriptors(OURS),
        Rig::key(OURS),
        Rig::key(THEIRS),
        SPACE.into(),
        OTHER_SPACE.into(),
        ContextControl::ENABLE.to_raw(),
        (ContextControl::ENABLE | ContextControl::PRIVILEGED).to_raw(),
        (ContextControl::ENABLE | ContextControl::NO_DATA).to_raw(),
        Control::ENABLE.to_raw(),
        Control::RESET.to_raw(),
        Invalidation::new(Invalidation::ALL, 0).bits(),
        Invalidation::new(Invalidation::SPACE, SPACE).bits(),
        Invalidation::new(Invalidation::REGION, 1).bits(),
        word(64, 1, 2),
        word(4096, 1, 4),
        word(64, 4, 1),
        word(8, 0, 0),
        10 * PAGE + 0x123,
        500 * PAGE + 0x456,
        1000 * PAGE,
    ]
}

/// Byte offset in BAR0 of a byte in a context's block.
fn in_block(context: u32, offset: usize) -> u64 {
    (CONTEXT_BLOCKS.offset() + context as usize * CONTEXT_STRIDE + offset) as u64
}

struct Guests {
    rig: Rig,
    known: Vec<u64>,
}

impl Guests {
    fn place(&mut self, input: &mut Input<'_>) -> (u32, u64) {
        let context = input.below(4) as u32;
        match input.byte() % 16 {
            0..=4 => (BAR_CONTROL, input.one_of(&REGISTERS) as u64),
            5..=7 => (BAR_CONTROL, in_block(context, input.one_of(&OF_CONTEXT))),
            8..=12 => {
                let entry = input.one_of(&[10, 11, 500, 501, 1000, 0, 77, 0xffff]);
                let offset = input.one_of(&[0x120, 0x458, 0, 8, 0xff8]);
                (BAR_SHADOW, Rig::shadow(context, entry, offset))
            }
            13 => (
                BAR_CONTEXT,
                u64::from(context) * PAGE + 8 * input.below(8) as u64,
            ),
            14 => (BAR_WINDOW, input.number(&[])),
            _ => (input.below(8) as u32, input.number(&self.known)),
        }
    }

    fn page(&mut self, input: &mut Input<'_>, node: usize) {
        let index = input.one_of(&[10, 11, 500, 501, 77, 1000, 1001]);
        let known = [FREE, FREE + PAGE, 0].map(|address| PAGE_RIGHTS.with_address(address).bits());
        let entry = PageEntry {
            word: PageWord::from_bits(input.number(&known)),
            space: input.number(&[SPACE.into(), OTHER_SPACE.into()]) as u16,
            region: input.below(6) as u32,
            ..PageEntry::default()
        };
        self.rig.guests[node].put_page(index, &entry);
    }

    fn region(&mut self, input: &mut Input<'_>, node: usize) {
        let index = 1 + input.below(5) as u32;
        let entry = RegionEntry {
            flags: RegionFlags::from_raw(input.number(&[ALL_RIGHTS.to_raw()])),
            space: input.number(&[SPACE.into(), OTHER_SPACE.into()]) as u32,
            offset: input.number(&[0x123]),
            length: input.number(&[PAGE, 1 << 20]),
            generation: input.number(&[1]),
            run_count: input.number(&[1]) as u32,
            first_page: input.number(&[10, 500]) as u32,
            runs: input.number(&[FREE]),
            peer_region: input.number(&[3]) as u32,
            link_generation: input.number(&[1]) as u32,
            peer_generation: input.number(&[1]),
        };
        self.rig.guests[node].put_region(index, &entry);
    }

    /// Writes any bytes anywhere below the memory that programs use.
    fn write(&mut self, input: &mut Input<'_>, node: usize) {
        let guest = &self.rig.guests[node];
        let places = [
            guest.page_directory(),
            guest.region_directory(),
            guest.status_page(OURS),
            guest.status_page(THEIRS),
            guest.descriptors(OURS),
            FREE,
        ];
        let place = input.one_of(&places) + input.below(512) as u64 * 8;
        let word = input.number(&self.known);
        guest.put64(place, word);
    }

    fn descriptor(&mut self, input: &mut Input<'_>, node: usize) {
        let ops = [
            Op::Copy as u32,
            Op::FetchAdd as u32,
            Op::CompareSwap as u32,
            Op::Nop as u32,
            OP_INVALIDATE,
            99,
        ];
        let flags = [
            0,
            0,
            1,
            2,
            DescriptorFlags::SRC_OF_PEER.bits(),
            DescriptorFlags::DST_OF_PEER.bits(),
            1 << 31,
        ];
        let side = |input: &mut Input<'_>| {
            let region = input.below(6) as u32;
            (region, input.number(&[0, 8, 64, PAGE]))
        };
        let asked = Descriptor {
            op: input.one_of(&ops),
            flags: input.one_of(&flags),
            source: side(input),
            destination: side(input),
            length: input.number(&[8, 64, PAGE]),
            operand: input.number(&[1]),
            compare: input.number(&[(1 << 32) | 1]),
        };
        let context = input.one_of(&[OURS, THEIRS]);
        let block = self.rig.get_ctx(node, context, ctx::TICKET);
        let ticket = match input.byte() % 4 {
            0 => input.number(&[1, 2, 64]),
            more => block.wrapping_add(u64::from(more)),
        };
        self.rig.guests[node].submit(context, ticket, &asked);
    }

    fn map(&mut self, input: &mut Input<'_>, node: usize) {
        let address = input.number(&[BASE, FREE, BASE + (16 << 20)]);
        if address >> 40 == SECRET >> 40 {
            return;
        }
        let (size, rights) = (input.number(&[PAGE, 16 << 20]), input.byte());
        let memory = &mut self.rig.memories[node];
        if input.flag() {
            let file = input.flag().then(|| (memfd(PAGE), 0));
            let _ = memory.map(address, size, file, rights & 1 != 0, rights & 2 != 0);
        } else if address.checked_add(size).is_some_and(|end| end < SECRET) {
            memory.unmap(address, size);
        }
    }

    fn run_some(&mut self) {
        for _ in 0..16 {
            if !self.rig.step() {
                return;
            }
        }
    }

    fn reset(&mut self, node: usize) {
        let memories: Vec<_> = self.rig.memories.iter().collect();
        self.rig.model.reset_function(node, &memories);
    }

    fn leave_and_come(&mut self, node: usize) {
        let memories: Vec<_> = self.rig.memories.iter().collect();
        self.rig.model.detach(node, &memories);
        self.rig.model.attach(node);
    }

    fn act(&mut self, input: &mut Input<'_>) {
        let node = usize::from(input.flag());
        match input.byte() % 40 {
            0..=9 => {
                let (bar, offset) = self.place(input);
                let width = input.one_of(&[8, 8, 8, 4, 4, 0, 1, 2, 3]);
                let value = input.number(&self.known);
                self.rig.store(node, bar, offset, width, value);
            }
            10..=17 => {
                let (bar, offset) = self.place(input);
                let width = input.one_of(&[8, 8, 8, 4, 4, 0, 1, 2, 3]);
                self.rig.load(node, bar, offset, width);
            }
            18 => {
                let offset = input.number(&[4, 0x10, 0x40]);
                let count = 1 + usize::from(input.flag()) * 3;
                let data = input.take(count);
                self.rig.model.config_store(node, offset, data);
            }
            19 => self.rig.model.config_store(node, 4, &[0x06, 0]),
            20 => self.page(input, node),
            21 => self.region(input, node),
            22 | 23 => self.write(input, node),
            24..=26 => self.descriptor(input, node),
            27 | 28 => {
                self.rig.step();
            }
            29 => self.run_some(),
            30..=32 => {
                self.rig.poll();
            }
            33 => {
                let fault = input.one_of(Fault::value_variants());
                self.rig.fault(node, fault, input.flag());
            }
            34 => self.rig.hold(node, input.below(4) as u32, input.flag()),
            35 => self.rig.set_link(0, 1, input.flag()),
            36 => match input.byte() % 4 {
                0 => self.leave_and_come(node),
                1 => self.reset(node),
                _ => self.rig.probe(node),
            },
            37 => self.map(input, node),
            _ => {
                let methods: Vec<_> = Method::all().collect();
                let method = input.one_of(&methods);
                self.rig
                    .set_method(node, input.one_of(&[OURS, THEIRS]), method);
            }
        }
    }

    /// Expects that all queued work ends, and that both nodes work as after a reset.
    fn expect_well(mut self) {
        for node in 0..2 {
            for fault in Fault::value_variants() {
                self.rig.fault(node, *fault, false);
            }
        }
        let mut steps = 0;
        while self.rig.step() {
            steps += 1;
            assert!(steps < ENOUGH, "the engine does not end");
        }
        self.rig.plug(true);
        self.rig.set_link(0, 1, true);
        for node in 0..2 {
            self.reset(node);
            self.rig.model.config_store(node, 4, &[0x06, 0]);
            self.rig.memories[node] = self.rig.guests[node].memory();
            for context in 0..4 {
                self.rig.guests[node].put(self.rig.guests[node].status_page(context), &[0; 4096]);
            }
        }
        // Restores the state that accesses may have overwritten.
        let fresh = Rig::new();
        for (old, new) in self.rig.guests.iter_mut().zip(fresh.guests) {
            *old = new;
        }
        for node in 0..2 {
            self.rig.memories[node] = self.rig.guests[node].memory();
            self.rig.probe(node);
            assert_eq!(self.rig.get(node, reg::INVALIDATE_PENDING), 0);
        }
        self.rig.regions(3 * PAGE);
        let generation = self.rig.get(0, reg::LINK_GENERATION.at(1).unwrap());
        self.import_of(generation);
        let data = pattern(2 * PAGE as usize, 3);
        self.rig.guests[0].put(FREE + 0x123, &data);
        for (region, node, address) in [(2, 0, FREE + (4 << 20) + 0x456), (4, 1, FREE + 0x789)] {
            let bytes = data.len() as u32;
            let ticket = self.rig.initiate(0, OURS, at(1, 0), at(region, 0), bytes);
            assert!(ticket > 0, "refused: {ticket}");
            self.rig.run();
            assert_eq!(self.rig.guests[node].get(address, data.len()), data);
        }
    }

    fn import_of(&mut self, link_generation: u32) {
        let guest = &self.rig.guests[0];
        guest.put_region(
            4,
            &RegionEntry {
                flags: ALL_RIGHTS | import_from(1),
                space: SPACE,
                length: 3 * PAGE,
                generation: 7,
                run_count: 1,
                first_page: 1000,
                peer_region: 3,
                link_generation,
                peer_generation: 1,
                ..RegionEntry::default()
            },
        );
    }
}

/// Executes an input. Returns marks of the device's reactions.
pub(crate) fn run(bytes: &[u8]) -> Vec<String> {
    let mut rig = Rig::new();
    rig.regions(3 * PAGE);
    let secret = pattern(PAGE as usize, 6);
    let secrets: Vec<_> = rig.memories.iter_mut().map(hide).collect();
    for file in &secrets {
        std::os::unix::fs::FileExt::write_all_at(file, &secret, 0).unwrap();
    }
    let known = known(&rig);
    let mut guests = Guests { rig, known };
    let mut input = Input::new(bytes);
    while !input.is_empty() {
        guests.act(&mut input);
    }
    let marks = marks(&guests.rig);
    guests.expect_well();
    for file in &secrets {
        let mut found = vec![0; secret.len()];
        std::os::unix::fs::FileExt::read_exact_at(file, &mut found, 0).unwrap();
        assert_eq!(found, secret, "memory that no table names was written");
    }
    marks
}

fn hide(memory: &mut GuestMemory) -> std::fs::File {
    let file = memfd(PAGE);
    let copy = file.try_clone().unwrap();
    memory
        .map(SECRET, PAGE, Some((copy, 0)), true, true)
        .unwrap();
    file
}

/// Returns the counters, by powers of four: an input that has a new mark is worth changing.
fn marks(rig: &Rig) -> Vec<String> {
    let report = serde_json::to_value(rig.model.report()).unwrap();
    let mut marks = Vec::new();
    collect("", &report["nodes"], &mut marks);
    marks
}

fn collect(path: &str, value: &serde_json::Value, marks: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(fields) => {
            for (name, field) in fields {
                collect(&format!("{path}.{name}"), field, marks);
            }
        }
        serde_json::Value::Array(fields) => {
            for (index, field) in fields.iter().enumerate() {
                collect(&format!("{path}.{index}"), field, marks);
            }
        }
        serde_json::Value::Number(number) => {
            let magnitude = number.as_u64().unwrap_or(0).checked_ilog2();
            if let Some(magnitude) = magnitude {
                marks.push(format!("{path}:{}", magnitude / 2));
            }
        }
        other => marks.push(format!("{path}={other}")),
    }
}
