// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counters as the driver prints them in debugfs and fdinfo.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

/// Counters by name.
pub(crate) type Counters = BTreeMap<String, Value>;

/// Value of a counter of the driver.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Number(u64),
    /// A resource that open files share: the number in use, and the number of further open files
    /// that need one.
    Share {
        used: u64,
        of: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        wanted: Option<u64>,
    },
    Text(String),
    Nothing,
}

impl Value {
    /// Parses "3", "3 of 8", "3 of 8, wanted by 2 more" and "none"; anything else is text.
    fn parse(text: &str) -> Self {
        let words: Vec<&str> = text
            .split([' ', ','])
            .filter(|word| !word.is_empty())
            .collect();
        let number = |word: &str| word.parse().ok();
        let parsed = match words[..] {
            ["none"] => Some(Self::Nothing),
            [value] => number(value).map(Self::Number),
            [used, "of", of] => number(used).zip(number(of)).map(|(used, of)| Self::Share {
                used,
                of,
                wanted: None,
            }),
            [used, "of", of, "wanted", "by", more, "more"] => number(used)
                .zip(number(of))
                .zip(number(more))
                .map(|((used, of), more)| Self::Share {
                    used,
                    of,
                    wanted: Some(more),
                }),
            _ => None,
        };
        parsed.unwrap_or_else(|| Self::Text(text.to_owned()))
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Share { used, of, wanted } => {
                write!(f, "{used} of {of}")?;
                wanted.map_or(Ok(()), |wanted| write!(f, ", wanted by {wanted} more"))
            }
            Self::Text(text) => f.write_str(text),
            Self::Nothing => f.write_str("none"),
        }
    }
}

/// Parses "name: value" or "name value" or, for a file with one value, just that.
pub(crate) fn parse(text: &str) -> Counters {
    let pair = |line: &str| {
        let (name, value) = line
            .split_once(':')
            .or_else(|| line.split_once(char::is_whitespace))?;
        Some((name.trim().to_owned(), Value::parse(value.trim())))
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| pair(line).unwrap_or_else(|| ("value".to_owned(), Value::parse(line.trim()))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_come_in_three_shapes() {
        let parsed = parse("pinned:\t 4096\nregions 3\n\n17\n");
        assert_eq!(parsed["pinned"], Value::Number(4096));
        assert_eq!(parsed["regions"], Value::Number(3));
        assert_eq!(parsed["value"], Value::Number(17));
    }

    #[test]
    fn json_has_numbers_where_the_driver_has() {
        let text = "open_files 2\ncontexts 1 of 8, wanted by 3 more\npages 7 of 4096\n\
                    uldma-context:\tnone\nstate so so\n";
        let parsed = parse(text);
        let expected = serde_json::json!({
            "open_files": 2,
            "contexts": {"used": 1, "of": 8, "wanted": 3},
            "pages": {"used": 7, "of": 4096},
            "uldma-context": null,
            "state": "so so",
        });
        assert_eq!(serde_json::to_value(&parsed).unwrap(), expected);
        assert_eq!(parsed["contexts"].to_string(), "1 of 8, wanted by 3 more");
        assert_eq!(parsed["pages"].to_string(), "7 of 4096");
    }
}
