// SPDX-License-Identifier: MIT OR Apache-2.0

//! `uldma stat`: the counters of a device, and of the processes that have it open, as far as this user
//! may read them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::Serialize;

use crate::args::Common;
use crate::counters::{self, Counters};
use crate::failure::Result;
use crate::info::DeviceInfo;
use crate::open_files::OpenFiles;
use crate::output;
use crate::schema::SCHEMA_VERSION;

/// Files of debugfs may be large; counters are not.
const LONGEST_FILE: u64 = 64 * 1024;

#[derive(Debug, Serialize)]
struct Stat {
    schema_version: u32,
    #[serde(flatten)]
    info: DeviceInfo,
    #[serde(flatten)]
    open_files: OpenFiles,
    /// Files of the device's debugfs directory; none when it cannot be read.
    debugfs: Option<BTreeMap<String, Counters>>,
}

/// Runs the verb.
pub(crate) fn run(common: &Common) -> Result<()> {
    let device = common.open()?;
    let name = device.path().file_name().unwrap_or_default().to_owned();
    let debugfs = Path::new("/sys/kernel/debug");
    let stat = Stat {
        schema_version: SCHEMA_VERSION,
        info: DeviceInfo::read(&device)?,
        open_files: OpenFiles::find(Path::new("/proc"), device.number()?, std::process::id()),
        debugfs: directory(&debugfs.join("uldma").join(&name))
            .or_else(|| directory(&debugfs.join(&name))),
    };
    output::print(common.json, &stat, words)
}

fn words(stat: &Stat) -> String {
    let mut text = stat.info.words();
    open_files(&mut text, &stat.open_files);
    let mut section = |title: &str, counters: &Counters| {
        let _ = writeln!(text, "{title}:");
        for (name, value) in counters {
            let _ = writeln!(text, "  {name:<24} {value}");
        }
    };
    match &stat.debugfs {
        Some(files) => files
            .iter()
            .for_each(|(name, counters)| section(name, counters)),
        None => text.push_str("(debugfs is not readable: mount it, or run as root, for more)\n"),
    }
    text
}

/// Appends one line for each open file.
fn open_files(text: &mut String, found: &OpenFiles) {
    let _ = writeln!(text, "open files, without this one:");
    for open_file in &found.open_files {
        let _ = write!(
            text,
            "  process {} ({}), file {}:",
            open_file.pid, open_file.command, open_file.fd
        );
        for (name, value) in &open_file.counters {
            let _ = write!(text, " {} {value},", name.replace('_', " "));
        }
        text.truncate(text.trim_end_matches([',', ':']).len());
        text.push('\n');
    }
    if found.open_files.is_empty() {
        text.push_str("  none\n");
    }
    if !found.all_files {
        text.push_str("  (those of other users are not visible: run as root for all)\n");
    }
}

/// Returns all small files of a directory; none when there is no such directory.
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
                counters::parse(&text),
            );
        }
    }
    Some(files)
}
