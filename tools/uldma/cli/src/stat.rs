// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma stat`: the counters of a device, as far as this user may read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

use serde::Serialize;

use crate::args::Common;
use crate::failure::Result;
use crate::info::DeviceInfo;
use crate::output;

/// Files of debugfs may be large; counters are not.
const LONGEST_FILE: u64 = 64 * 1024;

type Counters = BTreeMap<String, String>;

#[derive(Debug, Serialize)]
struct Stat {
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
        Some((name.trim().to_owned(), value.trim().to_owned()))
    };
    text.lines()
        .filter(|line| !line.trim().is_empty())
        .map(|line| pair(line).unwrap_or_else(|| ("value".to_owned(), line.trim().to_owned())))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_come_in_three_shapes() {
        let parsed = counters("pinned:\t 4096\nregions 3\n\n17\n");
        assert_eq!(parsed["pinned"], "4096");
        assert_eq!(parsed["regions"], "3");
        assert_eq!(parsed["value"], "17");
    }
}
