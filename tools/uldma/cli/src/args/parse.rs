// SPDX-License-Identifier: MIT OR Apache-2.0

//! Parsers of values of the command line.

use std::time::Duration;

/// Parses a time in seconds.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text
        .parse()
        .map_err(|_| "not a number of seconds".to_owned())?;
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| *duration <= Duration::from_secs(86_400))
        .ok_or_else(|| "between 0 and 86400 seconds".to_owned())
}

/// Parses the bytes of a connection's buffer.
pub(super) fn buffer(text: &str) -> Result<usize, String> {
    usize::try_from(size(text)?)
        .ok()
        .filter(|bytes| (1..=1 << 28).contains(bytes))
        .ok_or_else(|| "between 1 and 256M bytes".to_owned())
}

/// From which size on pages are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExchangeFrom {
    /// So many bytes.
    Bytes(usize),
    /// As many as are measured.
    Measured,
}

/// Parses a size from which on pages are exchanged.
pub(super) fn exchange_from(text: &str) -> Result<ExchangeFrom, String> {
    match text {
        "measured" => Ok(ExchangeFrom::Measured),
        bytes => buffer(bytes).map(ExchangeFrom::Bytes),
    }
}

/// Parses a number of bytes that must not be zero.
pub(super) fn at_least_one(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("at least one byte".to_owned()),
        bytes => Ok(bytes),
    }
}

/// Parses a number of bytes, which may have a unit.
pub(super) fn size(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']) {
        Some(digits) => (digits, text.chars().last().unwrap_or(' ')),
        None => (text, ' '),
    };
    let shift = match unit.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        _ => 0,
    };
    let number: u64 = digits
        .parse()
        .map_err(|_| "not a number of bytes".to_owned())?;
    number
        .checked_mul(1 << shift)
        .ok_or_else(|| "too many bytes".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(size("17"), Ok(17));
        assert_eq!(size("4k"), Ok(4096));
        assert_eq!(size("16M"), Ok(16 << 20));
        assert_eq!(size("1G"), Ok(1 << 30));
        assert!(size("").is_err());
        assert!(size("1T").is_err());
        assert!(size("99999999999G").is_err());
        assert!(size("-1").is_err());
    }

    #[test]
    fn buffers_are_bounded() {
        assert_eq!(buffer("256M"), Ok(1 << 28));
        for text in ["0", "257M", "x"] {
            assert!(buffer(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_threshold_can_be_measured() {
        assert_eq!(exchange_from("measured"), Ok(ExchangeFrom::Measured));
        assert_eq!(exchange_from("16K"), Ok(ExchangeFrom::Bytes(16384)));
        assert!(exchange_from("often").is_err());
    }

    #[test]
    fn times_are_bounded() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["-1", "inf", "NaN", "1e9", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
