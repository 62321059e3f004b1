// SPDX-License-Identifier: MIT OR Apache-2.0

//! Results, printed for people or for programs.

use std::fmt::Write as _;
use std::io::Write as _;

use serde::Serialize;

use crate::failure::{Failure, Result};
use crate::standard;

/// Prints a result to standard output: as one line of JSON, or as text.
pub(crate) fn print<T: Serialize>(
    json: bool,
    value: &T,
    words: impl FnOnce(&T) -> String,
) -> Result<()> {
    let text = if json { json_of(value)? } else { words(value) };
    let line = format!("{}\n", text.trim_end());
    standard::output()
        .and_then(|mut output| output.write_all(line.as_bytes()))
        .map_err(|error| Failure::output(&error))
}

/// Prints a result as one line of JSON to standard error, if it is requested: standard output has data.
pub(crate) fn print_beside_data<T: Serialize>(json: bool, value: &T) -> Result<()> {
    if !json {
        return Ok(());
    }
    standard::error_line(json_of(value)?).map_err(|error| Failure::io("standard error", &error))
}

fn json_of<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Failure::io("JSON", &error.into()))
}

/// Returns millions of bytes per second.
pub(crate) fn megabytes_per_second(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 {
        bytes as f64 / 1e6 / seconds
    } else {
        0.0
    }
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Returns a count as text, or a dash for none.
pub(crate) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
