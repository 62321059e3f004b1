// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;
use proptest::prelude::*;

const SIZE: u64 = 64;
const FAIL: Reply = Reply::Code(REPEATED_FAIL);
const OK1: Reply = Reply::Code(REPEATED_OK1);
const OK2: Reply = Reply::Code(REPEATED_OK2);

fn page(name: char) -> ShadowRef {
    let entry = u32::from(name);
    ShadowRef::of_page(entry, 0, u64::from(entry) << 12)
}

fn copy(source: char, destination: char) -> Reply {
    Reply::Start(Request::Copy(Arguments {
        source: page(source),
        destination: page(destination),
        word: SizeWord::unpack(SIZE),
    }))
}

/// An access by context 1: `'+'` stores, `'-'` loads.
fn access(machine: &mut Repeated, (kind, name): (char, char)) -> Reply {
    match kind {
        '+' => machine.store(1, page(name), Some(SIZE)),
        _ => machine.load(1, page(name), true),
    }
}

/// Replays the accesses of a text such as "+B -A".
fn replay(machine: &mut Repeated, text: &str) -> Vec<Reply> {
    let pairs = text.split_whitespace().map(|access| {
        let mut letters = access.chars();
        (letters.next().unwrap(), letters.next().unwrap())
    });
    pairs.map(|pair| access(machine, pair)).collect()
}

/// The table of section 4.1, cell by cell (D-068, D-069): rows are the states, columns a store to
/// the destination and to another address, and loads from source, destination and another.
#[test]
fn every_cell_of_the_table() {
    let ways = ["", "+D", "+D -S", "+D -S +D", "+D -S +D -S"];
    let none = Reply::Nothing;
    let table = [
        [(none, 1), (none, 1), (FAIL, 0), (FAIL, 0), (FAIL, 0)],
        [(none, 0), (none, 0), (OK1, 2), (OK1, 2), (OK1, 2)],
        [(none, 3), (none, 0), (FAIL, 0), (FAIL, 0), (FAIL, 0)],
        [(none, 0), (none, 0), (OK2, 4), (FAIL, 0), (FAIL, 0)],
        [
            (none, 0),
            (none, 0),
            (FAIL, 0),
            (copy('S', 'D'), 0),
            (FAIL, 0),
        ],
    ];
    for (state, (way, row)) in ways.into_iter().zip(table).enumerate() {
        for (input, (reply, next)) in ["+D", "+X", "-S", "-D", "-X"].into_iter().zip(row) {
            let mut machine = Repeated::five(Compare::Full);
            replay(&mut machine, way);
            assert_eq!(machine.state(), state);
            assert_eq!(replay(&mut machine, input), [reply], "S{state} {input}");
            assert_eq!(machine.state(), next, "S{state} {input}");
        }
    }
}

#[test]
fn source_may_be_the_destination() {
    let mut machine = Repeated::five(Compare::Full);
    let replies = replay(&mut machine, "+D -D +D -D -D");
    assert_eq!(replies[3..], [OK2, copy('D', 'D')]);
}

/// D-064: both stores carry the size, and must agree.
#[test]
fn sizes_that_differ_reset() {
    for machine in [Repeated::four, Repeated::five] {
        let mut machine = machine(Compare::Full);
        replay(&mut machine, "+D -S");
        assert_eq!(machine.store(1, page('D'), Some(SIZE + 1)), Reply::Nothing);
        assert_eq!(machine.state(), 0);
    }
}

#[test]
fn malformed_accesses_reset() {
    let mut machine = Repeated::five(Compare::Full);
    replay(&mut machine, "+D");
    let bad = Reply::Refused(Status::BadAccess);
    assert_eq!(machine.load(1, page('S'), false), bad);
    assert_eq!(machine.state(), 0);
    replay(&mut machine, "+D -S");
    assert_eq!(machine.store(1, page('D'), None), bad);
    assert_eq!(machine.state(), 0);
}

/// D-053, figure 5.
#[test]
fn interleaving_a_starts_a_transfer_that_nobody_asked_for() {
    let mut machine = Repeated::three(Compare::Full);
    let replies = replay(&mut machine, "-A +F -F -C +B -C -A");
    let none = Reply::Nothing;
    assert_eq!(replies, [OK1, none, FAIL, OK1, none, copy('C', 'B'), OK1]);
}

/// D-054.
#[test]
fn three_accesses_leak() {
    let mut machine = Repeated::three(Compare::Full);
    let replies = replay(&mut machine, "-A +B -C -A +C -A");
    assert_eq!(replies.last(), Some(&copy('A', 'C')));
}

/// D-056, figure 6: the fourth access is another process's, with its own entry for the same page.
#[test]
fn interleaving_b_misinforms() {
    let mut machine = Repeated::four(Compare::Full);
    let replies = replay(&mut machine, "+B -A +B");
    assert_eq!(replies[1], OK1);
    let theirs = ShadowRef {
        entry: 9999,
        ..page('A')
    };
    assert_eq!(machine.load(2, theirs, true), copy('A', 'B'));
    assert_eq!(replay(&mut machine, "-A"), [FAIL], "the owner reads FAIL");
}

/// The run of section 4.4: two processes, switched after steps 4 and 8.
#[test]
fn interleaving_c_costs_two_initiations() {
    let mut machine = Repeated::five(Compare::Full);
    let first = replay(&mut machine, "+A -B +A -B");
    assert_eq!((first[1], first[3]), (OK1, OK2));
    assert_eq!(replay(&mut machine, "+C -D")[1], FAIL);
    let whole = replay(&mut machine, "+C -D +C -D -C");
    assert_eq!(whole[4], copy('D', 'C'));
    assert_eq!(replay(&mut machine, "+C -A")[1], OK1, "OK3 was due");
    assert_eq!(replay(&mut machine, "+A -B")[1], FAIL, "OK1 was due");
    assert_eq!(replay(&mut machine, "+A -B +A -B -A")[4], copy('B', 'A'));
}

/// D-062: a process that may read the destination can take the success away.
#[test]
fn five_accesses_misinform_if_the_destination_is_shared() {
    let mut machine = Repeated::five(Compare::Full);
    replay(&mut machine, "+B -A +B -A");
    assert_eq!(machine.load(2, page('B'), true), copy('A', 'B'));
    assert_eq!(replay(&mut machine, "-B"), [FAIL]);
}

/// D-074: the prototype sees pages that are 8 MiB apart as one.
#[test]
fn prototype_takes_aliases_for_equal() {
    let alias = ShadowRef {
        address: page('B').address + (8 << 20),
        ..page('X')
    };
    for (compare, expected) in [(Compare::Full, FAIL), (Compare::Prototype, copy('A', 'B'))] {
        let mut machine = Repeated::five(compare);
        replay(&mut machine, "+B -A +B -A");
        assert_eq!(machine.load(1, alias, true), expected, "{compare:?}");
    }
    let mut machine = Repeated::five(Compare::Prototype);
    replay(&mut machine, "+B -A +B -A");
    let near = ShadowRef {
        address: page('B').address + 2048,
        ..page('B')
    };
    assert_eq!(machine.load(1, near, true), FAIL, "2 KiB are distinguished");
}

#[test]
fn a_context_that_is_off_is_forgotten() {
    let mut machine = Repeated::five(Compare::Full);
    replay(&mut machine, "+B");
    machine.load(2, page('A'), true);
    machine.forget(3);
    assert_eq!(machine.state(), 2);
    machine.forget(1);
    assert_eq!(machine, Repeated::five(Compare::Full));
}

#[test]
fn the_last_load_carries_the_ticket() {
    let machine = Repeated::five(Compare::Full);
    assert_eq!(machine.started(5), 0x5003);
}

/// D-071: addresses are kept by the first two accesses and compared by the others; only loads see
/// a status.
#[test]
fn signals_of_one_good_sequence() {
    use Operand::{Destination, Source};
    let mut machine = Repeated::five(Compare::Full);
    let mut seen = Vec::new();
    for (load, name) in [
        (false, 'D'),
        (true, 'S'),
        (false, 'D'),
        (true, 'S'),
        (true, 'D'),
    ] {
        let observe = &mut |signal| seen.push(signal);
        if load {
            machine.observed_load(1, page(name), true, observe);
        } else {
            machine.observed_store(1, page(name), Some(SIZE), observe);
        }
    }
    let equal = |with| Signal::Compared { with, equal: true };
    let (load, store) = (
        Signal::Selected { load: true },
        Signal::Selected { load: false },
    );
    let expected = [
        vec![store, Signal::Latched(Destination)],
        vec![load, Signal::Latched(Source), Signal::Status(REPEATED_OK1)],
        vec![store, equal(Destination)],
        vec![load, equal(Source), Signal::Status(REPEATED_OK2)],
        vec![load, equal(Destination), Signal::Status(REPEATED_OK3)],
    ];
    let expected: Vec<_> = expected
        .into_iter()
        .flat_map(|mut access| {
            access.push(Signal::Ready);
            access
        })
        .collect();
    assert_eq!(seen, expected);
}

/// Errors and FAILs per switch of `processes` that start one transfer after the other without a
/// pause, and are switched at random accesses (D-081).
fn per_switch(mut machine: Repeated, processes: usize) -> (f64, f64) {
    const SWITCHES: u32 = 20_000;
    let (mut errors, mut fails) = (0, 0);
    let mut at = vec![0; processes];
    let mut state: u64 = 88_172_645_463_325_252;
    for switch in 0..SWITCHES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let who = switch as usize % processes;
        // Long enough that a process completes many in its turn.
        for _ in 0..200 + state % 97 {
            let source = ShadowRef::of_entry(2 * who as u32, 0);
            let destination = ShadowRef::of_entry(2 * who as u32 + 1, 0);
            let step = FIVE[at[who]];
            let named = match step.operand {
                Operand::Destination => destination,
                Operand::Source => source,
            };
            if step.load {
                let reply = machine.load(who as u32, named, true);
                let right = match reply {
                    Reply::Start(_) => step.code == REPEATED_OK3,
                    _ => reply == Reply::Code(step.code),
                };
                if !right {
                    errors += 1;
                    fails += u32::from(reply == FAIL);
                    at[who] = 0;
                    continue;
                }
            } else {
                machine.store(who as u32, named, Some(SIZE));
            }
            at[who] = (at[who] + 1) % FIVE.len();
        }
    }
    let rate = |count: u32| f64::from(count) / f64::from(SWITCHES);
    (rate(errors), rate(fails))
}

/// D-079 to D-081: per switch, the paper's machine has the paper's error rates, and one that
/// accepts a store which does not fit as a first store does not.
#[test]
fn error_rates_are_those_of_the_paper() {
    for processes in 2..=4 {
        let (errors, fails) = per_switch(Repeated::five(Compare::Full), processes);
        assert!((1.09..1.16).contains(&errors), "{processes}: {errors}");
        assert!((0.93..0.98).contains(&fails), "{processes}: {fails}");
        let machine = Repeated::five(Compare::Full).rearming();
        let (errors, fails) = per_switch(machine, processes);
        assert!((1.0..1.06).contains(&errors), "{processes}: {errors}");
        assert!((0.44..0.52).contains(&fails), "{processes}: {fails}");
    }
}

proptest! {
    /// D-060: a transfer starts if and only if the accesses since the last point where the paper's
    /// machine is empty are the good sequence.
    #[test]
    fn random_accesses_agree_with_a_reference(
        accesses in prop::collection::vec((prop::bool::ANY, 0u8..3), 0..200),
    ) {
        for (machine, steps) in [
            (Repeated::three(Compare::Full), THREE),
            (Repeated::four(Compare::Full), FOUR),
            (Repeated::five(Compare::Full), FIVE),
        ] {
            let mut machine = machine;
            let mut open: Vec<(bool, char)> = Vec::new();
            for (load, letter) in &accesses {
                let name = char::from(b'A' + letter);
                let reply = access(&mut machine, (if *load { '-' } else { '+' }, name));
                open.push((*load, name));
                let first = |operand| steps.iter().zip(&open)
                    .find(|(step, _)| step.operand == operand)
                    .map(|(_, (_, name))| *name);
                let good = steps.iter().zip(&open)
                    .all(|(step, (load, name))| {
                        step.load == *load && first(step.operand) == Some(*name)
                    });
                if !good {
                    prop_assert_eq!(reply, if *load { FAIL } else { Reply::Nothing });
                    open.clear();
                } else if open.len() == steps.len() {
                    let source = first(Operand::Source).unwrap();
                    let destination = first(Operand::Destination).unwrap();
                    prop_assert_eq!(reply, copy(source, destination));
                    open.clear();
                } else {
                    let code = Reply::Code(steps[open.len() - 1].code);
                    prop_assert_eq!(reply, if *load { code } else { Reply::Nothing });
                }
                prop_assert_eq!(machine.state(), open.len());
            }
        }
    }
}
