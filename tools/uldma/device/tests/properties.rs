// SPDX-License-Identifier: MIT OR Apache-2.0

//! Properties that hold for any actions of the hosts.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

mod common;

use common::rig::{Rig, OTHER_SPACE, OURS, SPACE, THEIRS};
use common::{pattern, Descriptor, Guest, ALL_RIGHTS, BASE, FREE, PAGE};
use proptest::prelude::*;
use uldma_device::abi::Method;
use uldma_device::layout::{
    ctx, ContextControl, DescriptorFlags, RegionEntry, Run, BAR_CONTEXT, BAR_CONTROL, BAR_SHADOW,
    OP_INVALIDATE,
};
use uldma_device::shadow::SizeWord;

/// One access by a guest that knows the locations of the registers.
#[derive(Clone, Debug)]
enum Access {
    Store(usize, u32, u64, usize, u64),
    Load(usize, u32, u64, usize),
    Config(usize, u64, u8),
    Method(usize, u32, usize),
    Privileged(usize, u32),
    Descriptor(usize, u32, u64, (u32, u32), [u64; 5]),
    Step,
    Poll,
}

const SRC_OF_PEER: u32 = DescriptorFlags::SRC_OF_PEER.bits();
const DST_OF_PEER: u32 = DescriptorFlags::DST_OF_PEER.bits();
fn place() -> impl Strategy<Value = (u32, u64)> {
    prop_oneof![
        3 => (0u64..0x300).prop_map(|offset| (BAR_CONTROL, offset & !3)),
        2 => (0u64..0x200).prop_map(|offset| (BAR_CONTROL, 0x1000 + (offset & !3))),
        1 => (0u64..0x2_0000).prop_map(|offset| (BAR_CONTROL, offset)),
        1 => (0u64..0x6000).prop_map(|offset| (BAR_CONTEXT, offset)),
        6 => (0u32..5, prop_oneof![Just(10u32), Just(500), Just(1000), 0u32..70_000], 0u64..4096)
            .prop_map(|(context, entry, offset)| {
                (BAR_SHADOW, Rig::shadow(context, entry, offset & !7))
            }),
        1 => (0u32..9, any::<u64>()),
    ]
}

fn value() -> impl Strategy<Value = u64> {
    prop_oneof![
        2 => 0u64..20,
        1 => any::<u64>(),
        3 => (1u32..9000, 0u32..6, 0u32..6).prop_map(|(bytes, src_region, dst_region)| SizeWord {
            bytes,
            src_region,
            dst_region,
            ..SizeWord::default()
        }
        .pack()),
        1 => (1u64..4, 0u64..8).prop_map(|(kind, index)| (kind << 56) | index),
        1 => (0u64..2, 0u64..4).prop_map(|(cpu, context)| (cpu << 32) | context),
        1 => (0u32..3).prop_map(Rig::key),
    ]
}

/// Operation and flags of a descriptor.
fn asked() -> impl Strategy<Value = (u32, u32)> {
    let op = prop_oneof![3 => 0u32..6, 1 => Just(OP_INVALIDATE), 1 => any::<u32>()];
    let flags = prop_oneof![
        2 => 0u32..6,
        1 => Just(SRC_OF_PEER),
        1 => Just(DST_OF_PEER),
        1 => any::<u32>(),
    ];
    (op, flags)
}

fn access() -> impl Strategy<Value = Access> {
    let width = || prop_oneof![4 => Just(8usize), 2 => Just(4usize), 1 => 0usize..=8];
    prop_oneof![
        6 => (0usize..2, place(), width(), value()).prop_map(|(node, (bar, offset), width, value)| {
            Access::Store(node, bar, offset, width, value)
        }),
        5 => (0usize..2, place(), width())
            .prop_map(|(node, (bar, offset), width)| Access::Load(node, bar, offset, width)),
        1 => (0usize..2, 0u64..64, any::<u8>())
            .prop_map(|(node, offset, value)| Access::Config(node, offset, value)),
        1 => (0usize..2, 1u32..3, 0usize..15).prop_map(|(node, context, method)| {
            Access::Method(node, context, method)
        }),
        1 => (0usize..2, 1u32..3).prop_map(|(node, context)| Access::Privileged(node, context)),
        2 => (0usize..2, 1u32..3, 0u64..6, asked(), prop::array::uniform5(prop_oneof![
            3 => 0u64..6,
            1 => any::<u64>(),
        ]))
            .prop_map(|(node, context, ticket, asked, words)| {
                Access::Descriptor(node, context, ticket, asked, words)
            }),
        4 => Just(Access::Step),
        3 => Just(Access::Poll),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For any register accesses of two hosts, nothing panics, and memory that no table names keeps
    /// its contents.
    #[test]
    fn any_accesses_are_harmless(
        accesses in prop::collection::vec(access(), 1..120),
        garbage in prop::option::of((any::<u64>(), 0u64..0x8_0000)),
    ) {
        let mut rig = Rig::new();
        rig.regions(3 * PAGE);
        let secret = pattern(PAGE as usize, 6);
        let place = FREE + (7 << 20);
        for guest in &rig.guests {
            guest.put(place, &secret);
        }
        if let Some((seed, offset)) = garbage {
            // A faulty driver: random entries, of which none names the secret.
            let junk: Vec<u8> = pattern(4096, seed)
                .chunks(8)
                .flat_map(|word| {
                    let word = u64::from_le_bytes(word.try_into().unwrap());
                    let near = BASE + word % (16 << 20);
                    let word = if word >> 63 == 0 { near } else { word };
                    let secret = (place..place + PAGE).contains(&(word & !0xfff));
                    (if secret { 0 } else { word }).to_le_bytes()
                })
                .collect();
            for guest in &rig.guests {
                guest.put(BASE + 0x2_0000 + (offset & !7), &junk);
            }
        }
        for access in accesses {
            match access {
                Access::Store(node, bar, offset, width, value) => {
                    rig.store(node, bar, offset, width, value);
                }
                Access::Load(node, bar, offset, width) => {
                    rig.load(node, bar, offset, width);
                }
                Access::Config(node, offset, value) => rig.model.config_store(node, offset, &[value]),
                Access::Method(node, context, method) => {
                    let method = Method::all().nth(method).unwrap();
                    rig.set_method(node, context, method);
                }
                Access::Privileged(node, context) => {
                    rig.set_method(node, context, Method::Queue);
                    rig.set_ctx(node, context, ctx::CONTROL, ContextControl::NONE);
                    let control = ContextControl::ENABLE | ContextControl::PRIVILEGED;
                    rig.set_ctx(node, context, ctx::CONTROL, control);
                }
                Access::Descriptor(node, context, ticket, (op, flags), words) => {
                    let [source, destination, length, operand, link] = words;
                    let asked = Descriptor {
                        op,
                        flags,
                        source: (source as u32, operand),
                        destination: (destination as u32, operand),
                        length,
                        operand,
                        compare: link | ((1 - node as u64) << 32),
                    };
                    rig.guests[node].submit(context, ticket, &asked);
                }
                Access::Step => {
                    rig.step();
                }
                Access::Poll => {
                    rig.poll();
                }
            }
        }
        rig.run();
        for guest in &rig.guests {
            prop_assert_eq!(&guest.get(place, PAGE as usize), &secret);
        }
    }

    /// Two contexts with interleaved accesses never use each other's arguments.
    #[test]
    fn interleaved_contexts_never_mix(order in prop::collection::vec(any::<bool>(), 2..40)) {
        let mut rig = Rig::new();
        rig.guests[0].register(1, SPACE, 10, FREE, 2 * PAGE);
        rig.guests[0].register(2, OTHER_SPACE, 20, FREE + 2 * PAGE, 2 * PAGE);
        rig.guests[0].put(FREE, &[1; 64]);
        rig.guests[0].put(FREE + 2 * PAGE, &[2; 64]);
        let mut stored = [false; 2];
        for second in order {
            let (context, region, entry) = if second { (THEIRS, 2, 20) } else { (OURS, 1, 10) };
            let passed = &mut stored[usize::from(second)];
            if *passed {
                let from = Rig::shadow(context, entry, 0);
                prop_assert!(rig.load(0, BAR_SHADOW, from, 8) as i64 > 0);
            } else {
                let word = SizeWord {
                    bytes: 64,
                    src_region: region,
                    dst_region: region,
                    ..SizeWord::default()
                };
                let to = Rig::shadow(context, entry + 1, 0);
                rig.store(0, BAR_SHADOW, to, 8, word.pack());
            }
            *passed = !*passed;
        }
        rig.run();
        for (address, byte) in [(FREE + PAGE, 1), (FREE + 3 * PAGE, 2)] {
            let data = rig.guests[0].get(address, 64);
            prop_assert!(data == [0; 64] || data == [byte; 64]);
        }
        prop_assert_eq!(rig.get_ctx(0, OURS, ctx::REFUSED), 0);
    }

    /// A page of a region of many runs is found in both directions, as a linear search finds it.
    #[test]
    fn runs_are_found_as_by_a_linear_search(
        counts in prop::collection::vec(1u32..5, 1..12),
        gaps in prop::collection::vec(0u32..4, 12),
        probes in prop::collection::vec(0u32..120, 1..30),
    ) {
        use uldma_device::tpt::{Tables, View};
        let guest = Guest::new(16 << 20);
        let memory = guest.memory();
        // Runs in descending order of their entries, so that nothing but `page` is sorted.
        let (mut page, mut first) = (0, 110);
        let mut runs = Vec::new();
        for (count, gap) in counts.iter().zip(&gaps) {
            first -= count + gap;
            runs.push(Run { page, first, count: *count, reserved: 0 });
            page += count;
        }
        guest.put_runs(FREE, &runs);
        let region = RegionEntry {
            flags: ALL_RIGHTS,
            length: u64::from(page) * PAGE,
            run_count: runs.len() as u32,
            first_page: runs[0].first,
            runs: FREE,
            ..RegionEntry::default()
        };
        let tables = Tables { page_shift: 12, ..Tables::default() };
        let view = View::new(&tables, &memory);
        for probe in probes {
            let owner = runs.iter().find(|run| (run.first..run.first + run.count).contains(&probe));
            let number = owner.map(|run| u64::from(run.page + probe - run.first));
            prop_assert_eq!(view.page_of_entry(&region, probe).ok(), number);
            let owner = runs.iter().find(|run| (run.page..run.page + run.count).contains(&probe));
            let entry = owner.map(|run| run.first + probe - run.page);
            if probe < page {
                let found = view.entries_of_page(&region, u64::from(probe)).ok();
                prop_assert_eq!(found.map(|stretch| stretch.entry), entry);
            }
        }
    }
}
