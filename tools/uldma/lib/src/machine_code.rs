// SPDX-License-Identifier: MIT OR Apache-2.0

//! Checks the machine code of the sequences: the compiler may neither merge, move nor leave out an
//! access (§4.2, fn 10: the paper's assembler replaced the last one by the value that was stored
//! before).

use std::hint::black_box;
use std::process::Command;

use crate::method::{extended_shadow, key, repeated};
use crate::mmio::RegisterAddress;
use crate::ring::{Inbound, Outbound};
use crate::window::{InboundSegment, OutboundSegment};

#[no_mangle]
#[inline(never)]
fn uldma_probe_extended_shadow(
    to: RegisterAddress<'_>,
    from: RegisterAddress<'_>,
    word: u64,
) -> i64 {
    extended_shadow::initiate(to, from, word)
}

#[no_mangle]
#[inline(never)]
fn uldma_probe_key(
    to: RegisterAddress<'_>,
    from: RegisterAddress<'_>,
    page: RegisterAddress<'_>,
    key: u64,
    word: u64,
) -> i64 {
    key::initiate(to, from, page, key, word)
}

#[no_mangle]
#[inline(never)]
fn uldma_probe_repeated_5(to: RegisterAddress<'_>, from: RegisterAddress<'_>, word: u64) -> u64 {
    repeated::five(to, from, word).unwrap_or(0)
}

/// Two stores whose order the peer relies on: a record, and then its index.
#[no_mangle]
#[inline(never)]
fn uldma_probe_publish(segment: &OutboundSegment, record: u64, index: u64) {
    segment.store(0x98, record);
    segment.publish(0x80, index);
    segment.store(0x90, record);
}

/// Two loads whose order this side relies on: an index, and then the record.
#[no_mangle]
#[inline(never)]
fn uldma_probe_acquire(segment: &InboundSegment) -> u64 {
    let index = segment.acquire(0x80);
    let record = segment.load(0x98);
    segment.fence();
    index ^ record
}

/// Accesses to memory that is not the stack, "st" or "ld" for each, and fences, in the order of the
/// code. In AT&T's syntax the last operand is the one that changes.
fn accesses(listing: &str) -> Vec<&'static str> {
    let mut found = Vec::new();
    for line in listing.lines() {
        // "  address:\tmnemonic operands"
        let Some((_, code)) = line.trim().split_once(":\t") else {
            continue;
        };
        let code = code.split('#').next().unwrap_or_default();
        let fences = ["sfence", "lfence", "mfence"];
        found.extend(fences.into_iter().filter(|fence| code.trim() == *fence));
        let Some((mnemonic, operands)) = code.trim().split_once(char::is_whitespace) else {
            continue;
        };
        let Some((before, rest)) = operands.split_once('(') else {
            continue;
        };
        let base = rest.split([')', ',']).next().unwrap_or_default();
        let nothing = mnemonic.starts_with("lea") || mnemonic.starts_with("nop");
        if nothing || ["%rsp", "%rbp", "%rip", ""].contains(&base) {
            continue;
        }
        // Comparisons have the memory as the last operand, too, and only load.
        let compares = mnemonic.starts_with("cmp") || mnemonic.starts_with("test");
        let stores = operands.trim().ends_with(')') && before.contains(',') && !compares;
        found.push(if stores { "st" } else { "ld" });
    }
    found
}

/// Returns the machine code of a function of this program.
fn disassemble(function: &str) -> String {
    let output = Command::new("objdump")
        .args(["--no-show-raw-insn", &format!("--disassemble={function}")])
        .arg(std::env::current_exe().unwrap())
        .output()
        .expect("this test needs objdump (binutils)");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains(&format!("<{function}>:")), "{text}");
    text
}

/// Checks that a function makes these accesses.
fn check(function: &str, expected: &[&str]) {
    let listing = disassemble(function);
    assert_eq!(accesses(&listing), expected, "{listing}");
}

#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "it is about optimised code: cargo test --release"
)]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "it is about code for x86-64")]
fn the_compiler_keeps_every_access() {
    black_box((
        uldma_probe_extended_shadow as usize,
        uldma_probe_key as usize,
        uldma_probe_repeated_5 as usize,
    ));
    check("uldma_probe_extended_shadow", &["st", "ld"]);
    check("uldma_probe_key", &["st", "st", "st", "ld"]);
    check("uldma_probe_repeated_5", &["st", "ld", "st", "ld", "ld"]);
}

/// The window is write-combining memory, which takes more than the order of plain accesses.
#[test]
#[cfg_attr(
    debug_assertions,
    ignore = "it is about optimised code: cargo test --release"
)]
#[cfg_attr(not(target_arch = "x86_64"), ignore = "it is about code for x86-64")]
fn what_is_published_and_acquired_is_fenced() {
    black_box((uldma_probe_publish as usize, uldma_probe_acquire as usize));
    let listing = disassemble("uldma_probe_publish");
    let found = accesses(&listing).into_iter();
    // Loads are those of the mapping's address.
    let order: Vec<_> = found.filter(|access| *access != "ld").collect();
    assert_eq!(order, ["st", "sfence", "st", "st"], "{listing}");
    let listing = disassemble("uldma_probe_acquire");
    let found = accesses(&listing);
    assert!(found.starts_with(&["ld", "ld", "lfence"]), "{listing}");
    assert!(found.ends_with(&["ld", "mfence"]), "{listing}");
}

#[test]
fn accesses_are_recognised() {
    let listing = "\
0000000000001000 <f>:
    1000:\tmov    %rdx,(%rdi)
    1003:\tmov    (%rsi),%rax
    1006:\tlea    0x8(%rdi),%rcx
    1007:\tmov    %rax,-0x8(%rsp)
    1008:\tcmpq   $0x3,(%rdi)
    1009:\tmovzwl 0x10(%rsi,%rax,8),%eax
    100a:\tmov    0x2f(%rip),%rax        # 1040 <x>
    100b:\tsfence
    100c:\tret
";
    assert_eq!(accesses(listing), ["st", "ld", "ld", "ld", "sfence"]);
}
