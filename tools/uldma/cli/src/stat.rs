// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma stat`: the counters of a device, as far as this user may read them.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use serde::Serialize;

use crate::args::Common;
use crate::failure::Result;
use crate::info::DeviceInfo;
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// Files of debugfs may be large; counters are not.
const LONGEST_FILE: u64 = 64 * 1024;

type Counters = BTreeMap<String, Value>;

/// What the driver says of one thing.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
enum Value {
    Number(u64),
    /// Of a number of things, how many are in use, and by how many more openers they are wanted.
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
    /// "3", "3 of 8", "3 of 8, wanted by 2 more" and "none"; the rest is text.
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

#[derive(Debug, Serialize)]
struct Stat {
    schema_version: u32,
    #[serde(flatten)]
    info: DeviceInfo,
    /// Lines of the open file's fdinfo that come from the driver.
    opener: Counters,
    /// Files of the device's debugfs directory; none when it cannot be read.
    debugfs: Option<BTreeMap<String, Counters>>,
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let device = common.open()?;
    let name = device.path().file_name().unwrap_or_default().to_owned();
    let fdinfo = format!("/proc/self/fdinfo/{}", device.as_fd().as_raw_fd());
    let mut opener = std::fs::read_to_string(fdinfo)
        .map(|text| counters(&text))
        .unwrap_or_default();
    for generic in ["pos", "flags", "mnt_id", "ino"] {
        opener.remove(generic);
    }
    let debugfs = Path::new("/sys/kernel/debug");
    let stat = Stat {
        schema_version: SCHEMA_VERSION,
        info: DeviceInfo::read(&device)?,
        opener,
        debugfs: directory(&debugfs.join("uldma").join(&name))
            .or_else(|| directory(&debugfs.join(&name))),
    };
    output::print(common.json, &stat, words)
}

fn words(stat: &Stat) -> String {
    let mut text = stat.info.words();
    let mut section = |title: &str, counters: &Counters| {
        let _ = writeln!(text, "{title}:");
        for (name, value) in counters {
            let _ = writeln!(text, "  {name:<24} {value}");
        }
    };
    section("this opener", &stat.opener);
    match &stat.debugfs {
        Some(files) => files
            .iter()
            .for_each(|(name, counters)| section(name, counters)),
        None => text.push_str("(debugfs is not readable: mount it, or run as root, for more)\n"),
    }
    text
}

/// All small files of a directory; none when there is no such directory.
fn directory(path: &Path) -> Option<BTreeMap<String, Counters>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(path).ok()?.flatten() {
        let Ok(file) = std::fs::File::open(entry.path()) else {
            continue;
        };
        let mut text = String::new();
        let mut limited = std::io::Read::take(file, LONGEST_FILE);
        if std::io::Read::read_to_string(&mut limited, &mut text).is_ok() {
            files.insert(
                entry.file_name().to_string_lossy().into_owned(),
                counters(&text),
            );
        }
    }
    Some(files)
}

/// "name: value" or "name value" or, for a file with one value, just that.
fn counters(text: &str) -> Counters {
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
        let parsed = counters("pinned:\t 4096\nregions 3\n\n17\n");
        assert_eq!(parsed["pinned"], Value::Number(4096));
        assert_eq!(parsed["regions"], Value::Number(3));
        assert_eq!(parsed["value"], Value::Number(17));
    }

    #[test]
    fn json_has_numbers_where_the_driver_has() {
        let text = "openers 2\ncontexts 1 of 8, wanted by 3 more\npages 7 of 4096\n\
                    uldma-context:\tnone\nstate so so\n";
        let parsed = counters(text);
        let expected = serde_json::json!({
            "openers": 2,
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
