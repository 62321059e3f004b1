// SPDX-License-Identifier: MIT OR Apache-2.0

//! The tables of registers in the programming manual are those that `layout` declares.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

use uldma_device::layout::{
    Access, ContextRegister, ControlRegister, Declaration, PageRegister, CONTEXT_BLOCKS,
    MSIX_PBA_OFFSET, MSIX_TABLE_OFFSET,
};

const MANUAL: &str = include_str!("../../../../Documentation/uldma/device.rst");

/// A line of a table: offset, name, size with the number of registers, and access.
type Row = (String, String, String, String);

/// The lines of the first table after a heading that name a register.
fn table(heading: &str) -> Vec<Row> {
    let text = MANUAL.split_once(&format!("\n{heading}\n")).unwrap().1;
    let rows = text
        .lines()
        .skip_while(|line| !line.starts_with("======  "))
        .take_while(|line| !line.is_empty());
    rows.filter(|line| line.starts_with("0x") && line.contains("  ``"))
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut next = || words.next().unwrap().replace("``", "");
            (next(), next(), next(), next())
        })
        .collect()
}

/// The line that the manual should have for a declaration.
fn row(declaration: &Declaration, digits: usize) -> Row {
    let Declaration {
        name,
        offset,
        width,
        count,
        access,
    } = *declaration;
    let size = match count {
        1 => width.to_string(),
        _ => format!("{count}x{width}"),
    };
    let access = match access {
        Access::ReadOnly => "ro",
        Access::WriteOnly => "wo",
        Access::ReadWrite => "rw",
        Access::WriteOneToClear => "w1c",
    };
    let offset = format!("{offset:#0width$x}", width = digits + 2);
    (offset, name.into(), size, access.into())
}

fn compare(heading: &str, declared: &[Declaration], digits: usize) {
    let declared: Vec<_> = declared.iter().map(|line| row(line, digits)).collect();
    assert_eq!(table(heading), declared, "{heading}");
}

#[test]
fn registers_are_those_of_the_manual() {
    compare("Control registers (BAR0)", ControlRegister::ALL, 3);
    compare("Context blocks", ContextRegister::ALL, 2);
    compare("Context pages (BAR1)", PageRegister::ALL, 2);
}

#[test]
fn parts_of_the_control_bar_are_those_of_the_manual() {
    for line in [
        format!("{:#x}  context blocks ", CONTEXT_BLOCKS.offset()),
        format!("{MSIX_TABLE_OFFSET:#x}  MSI-X table, {MSIX_PBA_OFFSET:#x} PBA "),
    ] {
        assert!(MANUAL.contains(&format!("\n{line}")), "{line}");
    }
}
