// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names by which the two nodes find each other's regions and segments.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::{sys, Error, Result};

/// A name of an exported region or a window segment: a number other than zero.
///
/// People write words: a word is hashed (FNV-1a, 64 bits), `0x` and hexadecimal digits are
/// taken as the number itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(NonZeroU64);

impl Name {
    /// The name with this number; none for zero.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The name that the word stands for.
    pub fn of_word(word: &str) -> Self {
        let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN))
    }

    /// A name that nobody can guess.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the kernel has no random numbers to give.
    pub fn random() -> Result<Self> {
        let number = sys::random().map_err(|errno| Error::system("get a random name", errno))?;
        Ok(Self(NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN)))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The text is not a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name is a word, or 0x and one to sixteen hexadecimal digits, and not zero")]
pub struct BadName;

impl FromStr for Name {
    type Err = BadName;

    fn from_str(text: &str) -> std::result::Result<Self, BadName> {
        match text.strip_prefix("0x") {
            Some(digits) if digits.bytes().all(|digit| digit.is_ascii_hexdigit()) => {
                u64::from_str_radix(digits, 16)
                    .ok()
                    .and_then(Self::new)
                    .ok_or(BadName)
            }
            _ if text.is_empty() => Err(BadName),
            _ => Ok(Self::of_word(text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_hashed_and_hex_is_taken_literally() {
        assert_eq!("0xBeef".parse::<Name>().unwrap().get(), 0xbeef);
        assert_eq!("a".parse::<Name>().unwrap().get(), 0xaf63_dc4c_8601_ec8c);
        assert_ne!("file".parse::<Name>(), "ping".parse::<Name>());
        // A word that merely starts like a number is a word.
        assert_eq!(
            "0xylophone".parse::<Name>().unwrap(),
            Name::of_word("0xylophone")
        );
    }

    #[test]
    fn zero_and_nothing_are_no_names() {
        assert_eq!("".parse::<Name>(), Err(BadName));
        assert_eq!("0x0".parse::<Name>(), Err(BadName));
        assert_eq!("0x".parse::<Name>(), Err(BadName));
        assert_eq!("0x11112222333344445".parse::<Name>(), Err(BadName));
    }

    #[test]
    fn names_print_as_they_parse() {
        let name = Name::of_word("x");
        assert_eq!(name.to_string().parse::<Name>(), Ok(name));
    }
}
