// SPDX-License-Identifier: MIT OR Apache-2.0

//! Words of flags and fields: each field keeps to its own bits.

// To panic is how a test fails.
#![allow(clippy::unwrap_used)]

use std::mem::offset_of;

use proptest::prelude::*;
use uldma_device::layout::{
    ContextControl, EventCauses, Field, Invalidation, KernelAddress, Key, PageRequest, PageWord,
    RegionFlags, SizeWord, Version, Word, VERSION,
};

/// Puts a value into a field of a word, and checks what is in the field and beside it.
fn check<W, V, const HIGH: u32, const LOW: u32>(
    raw: u64,
    value: u64,
    field: Field<W, V, HIGH, LOW>,
) -> Result<(), TestCaseError>
where
    W: Word + PartialEq,
    V: Word + PartialEq + std::fmt::Debug,
{
    let word = W::from_raw(raw);
    let value = V::from_raw(value);
    let beside = |word: W| word.to_raw() & !field.mask();
    match field.try_set(word, value) {
        Some(new) => {
            prop_assert!(value.to_raw() <= field.max());
            prop_assert_eq!(field.get(new), value);
            prop_assert_eq!(beside(new), beside(word));
            prop_assert!(new == field.set_low_bits(word, value));
        }
        None => prop_assert!(value.to_raw() > field.max()),
    }
    let cut = field.set_low_bits(word, value);
    prop_assert_eq!(field.get(cut).to_raw(), value.to_raw() & field.max());
    prop_assert_eq!(beside(cut), beside(word));
    Ok(())
}

proptest! {
    #[test]
    fn fields_keep_to_their_bits(raw: u64, value: u64, shift in 0u32..64) {
        let value = value >> shift;
        check(raw, value, SizeWord::BYTES)?;
        check(raw, value, SizeWord::SRC_LOW)?;
        check(raw, value, SizeWord::DST_LOW)?;
        check(raw, value, SizeWord::SRC_REGION)?;
        check(raw, value, SizeWord::DST_REGION)?;
        check(raw, value, KernelAddress::OFFSET)?;
        check(raw, value, Invalidation::KIND)?;
        check(raw, value, RegionFlags::NODE)?;
        check(raw, value, Key::SECRET)?;
        check(raw, value, Version::MAJOR)?;
    }

    #[test]
    fn a_page_word_is_an_address_and_flags(raw: u64, address: u64) {
        let word = PageWord::from_bits(raw).with_address(address);
        prop_assert_eq!(word.address(), address & !0xfff);
        prop_assert_eq!(word.bits() & 0xfff, raw & 0xfff);
    }
}

#[test]
fn flags() {
    let both = ContextControl::ENABLE | ContextControl::BUSY;
    assert_eq!(both.bits(), 0b101);
    assert!(both.contains(ContextControl::BUSY) && both.contains(both));
    assert!(!ContextControl::BUSY.contains(both) && ContextControl::BUSY.intersects(both));
    assert_eq!(both.without(ContextControl::BUSY), ContextControl::ENABLE);
    assert_eq!(ContextControl::BUSY.when(false), ContextControl::NONE);
    assert!(ContextControl::NONE.is_empty() && !both.is_empty());
}

#[test]
fn exact_fields() {
    let what = Invalidation::new(Invalidation::SPACE, u32::MAX);
    assert_eq!(what.bits(), 0x0200_0000_ffff_ffff);
    assert_eq!(
        (VERSION.get(Version::MAJOR), VERSION.get(Version::MINOR)),
        (3, 0)
    );
    let key = Key::from_bits(u64::MAX).try_with(Key::CONTEXT, 5).unwrap();
    assert_eq!(key.bits(), u64::MAX - 10);
    assert_eq!(key.try_with(Key::CONTEXT, 16), None);
}

#[test]
fn a_page_request_has_its_fields_where_the_manual_has_them() {
    let manual = include_str!("../../../../Documentation/uldma/device.rst");
    let found = [
        ("number", offset_of!(PageRequest, number)),
        ("index", offset_of!(PageRequest, index)),
        ("count", offset_of!(PageRequest, count)),
        ("need", offset_of!(PageRequest, need)),
        ("kind", offset_of!(PageRequest, kind)),
        ("node", offset_of!(PageRequest, node)),
        ("context", offset_of!(PageRequest, context)),
        ("filled", offset_of!(PageRequest, filled)),
        ("status", offset_of!(PageRequest, status)),
        ("answered", offset_of!(PageRequest, answered)),
    ];
    let (_, section) = manual.split_once("\nPage requests\n").unwrap();
    for (name, offset) in found {
        let line = format!("\n{offset:<7}  ``{name}``");
        assert!(section.contains(&line), "{name} {offset}");
    }
    assert_eq!(EventCauses::PAGE.bits(), 1 << 5);
    assert_eq!((PageRequest::READ, PageRequest::WRITE), (1, 2));
}
