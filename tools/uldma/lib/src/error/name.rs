// SPDX-License-Identifier: MIT OR Apache-2.0

//! Names of exported regions and segments, which peers look up.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::sys;

/// Longest word, in bytes, that a name keeps.
const LONGEST_WORD: usize = 62;

/// The name of an exported region or a window segment: a number other than zero.
///
/// Users write words: a word is hashed (FNV-1a, 64 bits), `0x` and hexadecimal digits are the
/// number itself. Names are equal if their numbers are equal.
#[derive(Clone, Copy, Debug)]
pub struct Name {
    number: NonZeroU64,
    word: Option<Word>,
}

/// The word that a name was made from, for messages.
#[derive(Clone, Copy)]
struct Word {
    bytes: [u8; LONGEST_WORD],
    length: u8,
}

impl Word {
    /// Keeps a word; none if it is too long or not printable.
    fn new(word: &str) -> Option<Self> {
        let mut bytes = [0; LONGEST_WORD];
        bytes
            .get_mut(..word.len())?
            .copy_from_slice(word.as_bytes());
        let printable = !word.contains(|letter: char| letter.is_control() || letter == ' ');
        let length = u8::try_from(word.len()).ok()?;
        printable.then_some(Self { bytes, length })
    }

    fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..self.length.into());
        bytes
            .and_then(|bytes| std::str::from_utf8(bytes).ok())
            .unwrap_or_default()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

impl Name {
    /// Returns the name with this number; none for zero.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self::of_number)
    }

    fn of_number(number: NonZeroU64) -> Self {
        Self { number, word: None }
    }

    /// Returns the name for a word.
    pub fn of_word(word: &str) -> Self {
        let hash = word.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            number: NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN),
            word: Word::new(word),
        }
    }

    /// Returns an unguessable name.
    ///
    /// # Errors
    ///
    /// [`Error::System`] when the kernel's random number generator fails.
    pub fn random() -> Result<Self> {
        let number = sys::random().map_err(|errno| Error::system("get a random name", errno))?;
        let number = NonZeroU64::new(number).unwrap_or(NonZeroU64::MIN);
        Ok(Self::of_number(number))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.number.get()
    }
}

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}

/// Prints the word from which the name was made, otherwise the number.
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.word {
            Some(word) => f.write_str(word.as_str()),
            None => write!(f, "{:#x}", self.number),
        }
    }
}

/// The error for a text that is no name.
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
        let long = "x".repeat(LONGEST_WORD + 1);
        for text in ["x", "0xbeef", "0xylophone", "größe", "a b", "a\nb", &long] {
            let name: Name = text.parse().unwrap();
            assert_eq!(name.to_string().parse::<Name>(), Ok(name), "{text}");
        }
    }

    #[test]
    fn messages_have_the_word_that_people_wrote() {
        assert_eq!(Name::of_word("ping").to_string(), "ping");
        let longest = "x".repeat(LONGEST_WORD);
        assert_eq!(Name::of_word(&longest).to_string(), longest);
        assert_eq!(Name::new(0xbeef).unwrap().to_string(), "0xbeef");
        // Characters that would disturb a terminal, or a line of words, are replaced by the number.
        assert!(Name::of_word("a\x1b[2J").to_string().starts_with("0x"));
    }
}
