// SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0

//! Types of words that consist of flags and fields, and the macro that declares them.

use core::marker::PhantomData;

/// A value of a register, of an entry of a table, or of a field of such a value.
pub trait Word: Copy {
    /// Returns the value of these bits. Bits beyond those of the type are ignored.
    fn from_raw(raw: u64) -> Self;

    /// Returns the bits of the value.
    fn to_raw(self) -> u64;
}

macro_rules! integer_words {
    ($($integer:ty),*) => {
        $(
            impl Word for $integer {
                #[inline(always)]
                fn from_raw(raw: u64) -> Self {
                    // CAST: The documented meaning of the method.
                    raw as Self
                }

                #[inline(always)]
                fn to_raw(self) -> u64 {
                    u64::from(self)
                }
            }
        )*
    };
}

integer_words!(u8, u16, u32, u64);

impl Word for i64 {
    #[inline(always)]
    fn from_raw(raw: u64) -> Self {
        // CAST: The same bits, as a signed number.
        raw as Self
    }

    #[inline(always)]
    fn to_raw(self) -> u64 {
        // CAST: The same bits.
        self as u64
    }
}

/// A field of `W` that holds a `V`: bits `HIGH` to `LOW`, both included.
#[derive(Clone, Copy, Debug)]
pub struct Field<W, V, const HIGH: u32, const LOW: u32>(PhantomData<(W, V)>);

impl<W: Word, V: Word, const HIGH: u32, const LOW: u32> Field<W, V, HIGH, LOW> {
    /// The largest value of the field.
    pub const MAX: u64 = {
        assert!(LOW <= HIGH && HIGH < u64::BITS, "the bits are in no order");
        assert!(HIGH < 8 * size_of::<W>() as u32, "the word has fewer bits");
        assert!(
            HIGH - LOW < 8 * size_of::<V>() as u32,
            "the type has fewer bits"
        );
        u64::MAX >> (u64::BITS - 1 - (HIGH - LOW))
    };

    /// The bits of the field in the word.
    pub const MASK: u64 = Self::MAX << LOW;

    /// True if the field has as many bits as its type, so that every value fits.
    const IS_EXACT: bool = HIGH - LOW + 1 == 8 * size_of::<V>() as u32;

    /// The field.
    pub const DECLARED: Self = Self(PhantomData);

    /// Returns the largest value of the field.
    pub const fn max(self) -> u64 {
        Self::MAX
    }

    /// Returns the number of the field's lowest bit in the word.
    pub const fn shift(self) -> u32 {
        LOW
    }

    /// Returns the bits of the field in the word.
    pub const fn mask(self) -> u64 {
        Self::MASK
    }

    /// Returns the value of the field in `word`.
    #[inline(always)]
    pub fn get(self, word: W) -> V {
        V::from_raw((word.to_raw() & Self::MASK) >> LOW)
    }

    /// Returns `word` with `value` in the field, which has as many bits as its type.
    #[inline(always)]
    pub fn set(self, word: W, value: V) -> W {
        const { assert!(Self::IS_EXACT, "not every value fits") };
        W::from_raw(word.to_raw() & !Self::MASK | (value.to_raw() << LOW))
    }

    /// Returns `word` with the low bits of `value` in the field; the others are discarded.
    #[inline(always)]
    pub fn set_low_bits(self, word: W, value: V) -> W {
        let value = value.to_raw() & Self::MAX;
        W::from_raw(word.to_raw() & !Self::MASK | (value << LOW))
    }

    /// Returns `word` with `value` in the field, or `None` if the value does not fit.
    #[inline(always)]
    pub fn try_set(self, word: W, value: V) -> Option<W> {
        let value = value.to_raw();
        if value > Self::MAX {
            return None;
        }
        Some(W::from_raw(word.to_raw() & !Self::MASK | (value << LOW)))
    }
}

/// Panics if two of the masks have a bit in common.
pub const fn check_masks(masks: &[u64]) {
    let mut index = 0;
    let mut used = 0;
    while index < masks.len() {
        assert!(
            masks[index] != 0,
            "a flag or a field is outside of its word"
        );
        assert!(used & masks[index] == 0, "flags or fields overlap");
        used |= masks[index];
        index += 1;
    }
}

/// Declares a word: a type over `u32` or `u64` with a constant for each flag and each field.
///
/// A flag is `NAME = bit;`, a field is `NAME: Type = high, low;`.
macro_rules! word {
    (
        $(#[$word_doc:meta])*
        $visibility:vis struct $word:ident($bits:ty);
        $(flags {
            $(
                $(#[$flag_doc:meta])*
                $flag:ident = $bit:literal;
            )*
        })?
        $(fields {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $value:ty = $high:literal, $low:literal;
            )*
        })?
    ) => {
        $(#[$word_doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        $visibility struct $word(pub(super) $bits);

        #[allow(dead_code, reason = "not every word needs every method")]
        impl $word {
            /// The word with all bits clear.
            $visibility const NONE: Self = Self(0);

            $($(
                $(#[$flag_doc])*
                $visibility const $flag: Self = Self(1 << $bit);
            )*)?

            $($(
                $(#[$field_doc])*
                $visibility const $field: Field<Self, $value, $high, $low> = Field::DECLARED;
            )*)?

            /// Returns the word with these bits.
            #[inline(always)]
            $visibility const fn from_bits(bits: $bits) -> Self {
                Self(bits)
            }

            /// Returns the bits of the word.
            #[inline(always)]
            $visibility const fn bits(self) -> $bits {
                self.0
            }

            /// Returns the bits that are set in either word.
            #[inline(always)]
            $visibility const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns the bits that are set here and not in `other`.
            #[inline(always)]
            $visibility const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// Returns these bits if `condition` is true, and none otherwise.
            #[inline(always)]
            $visibility const fn when(self, condition: bool) -> Self {
                if condition {
                    self
                } else {
                    Self::NONE
                }
            }

            /// Returns true if all bits of `other` are set.
            #[inline(always)]
            $visibility const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns true if some bit of `other` is set.
            #[inline(always)]
            $visibility const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns true if no bit is set.
            #[inline(always)]
            $visibility const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Returns the value of `field`.
            #[inline(always)]
            $visibility fn get<V: Word, const HIGH: u32, const LOW: u32>(
                self,
                field: Field<Self, V, HIGH, LOW>,
            ) -> V {
                field.get(self)
            }

            /// Returns the word with `value` in `field`, which has as many bits as its type.
            #[inline(always)]
            #[must_use]
            $visibility fn with<V: Word, const HIGH: u32, const LOW: u32>(
                self,
                field: Field<Self, V, HIGH, LOW>,
                value: V,
            ) -> Self {
                field.set(self, value)
            }

            /// Returns the word with `value` in `field`, or `None` if the value does not fit.
            #[inline(always)]
            #[must_use]
            $visibility fn try_with<V: Word, const HIGH: u32, const LOW: u32>(
                self,
                field: Field<Self, V, HIGH, LOW>,
                value: V,
            ) -> Option<Self> {
                field.try_set(self, value)
            }
        }

        impl Word for $word {
            #[inline(always)]
            fn from_raw(raw: u64) -> Self {
                Self(Word::from_raw(raw))
            }

            #[inline(always)]
            fn to_raw(self) -> u64 {
                self.0.to_raw()
            }
        }

        impl core::ops::BitOr for $word {
            type Output = Self;

            #[inline(always)]
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl core::ops::BitOrAssign for $word {
            #[inline(always)]
            fn bitor_assign(&mut self, other: Self) {
                *self = self.union(other);
            }
        }

        impl core::ops::BitAnd for $word {
            type Output = Self;

            #[inline(always)]
            fn bitand(self, other: Self) -> Self {
                Self(self.0 & other.0)
            }
        }

        const _: () = check_masks(&[
            $($($word::$flag.0 as u64,)*)?
            $($($word::$field.mask(),)*)?
        ]);
    };
}
pub(crate) use word;
