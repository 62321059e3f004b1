// SPDX-License-Identifier: MIT OR Apache-2.0

//! The texts of the command line: help, usage errors, and a machine without a device.
//!
//! `UPDATE_GOLDEN=1 cargo test -p uldma-cli` updates the golden files.

#![allow(clippy::unwrap_used)]

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{self, Stdio};

use assert_cmd::Command;
use nix::fcntl::{fcntl, FcntlArg, OFlag};

const SPDX: &str = "# SPDX-License-Identifier: MIT OR Apache-2.0\n";
/// No machine has so many devices.
const NO_DEVICE: [&str; 2] = ["--device", "4000000000"];

fn uldma() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uldma"));
    command.env("COLUMNS", "100").env_remove("CLICOLOR_FORCE");
    command
}

fn output(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = uldma().args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn golden(name: &str, arguments: &[&str]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name);
    let (code, stdout, stderr) = output(arguments);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let is = format!("{SPDX}{stdout}");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &is).unwrap();
    }
    assert_eq!(
        is,
        std::fs::read_to_string(&path).unwrap(),
        "{}",
        path.display()
    );
}

#[test]
fn help_is_as_documented() {
    golden("help.txt", &["--help"]);
}

#[test]
fn every_verb_has_help() {
    for verb in [
        "info",
        "stat",
        "lmm",
        "charge",
        "register",
        "dma",
        "export",
        "atomic",
        "send-file",
        "send",
        "recv",
        "recv-file",
        "ping",
        "peers",
        "listen",
        "connect",
        "net",
        "calibrate",
    ] {
        golden(&format!("{verb}.txt"), &[verb, "--help"]);
    }
}

#[test]
fn without_a_device_everybody_says_so() {
    let verbs: [&[&str]; 19] = [
        &["info"],
        &["stat"],
        &["lmm"],
        &["charge"],
        &["register", "--kind", "sysv", "--then", "unmap"],
        &["dma"],
        &["dma", "--method", "repeated-5"],
        &["export", "x", "--size", "1K"],
        &["atomic", "x", "--add", "1"],
        &["recv-file", "--port", "7"],
        &["recv", "7"],
        &["send", "1", "7"],
        &["ping"],
        &["peers"],
        &["listen", "7"],
        &["listen", "7", "--once"],
        &["connect", "1", "7"],
        &["net"],
        &["calibrate"],
    ];
    for verb in verbs {
        let (code, stdout, stderr) = output(&[&NO_DEVICE, verb].concat());
        assert_eq!((code, stdout.as_str()), (Some(3), ""), "{verb:?}");
        assert!(
            stderr.starts_with("uldma: no device: /dev/uldma4000000000\n"),
            "{stderr}"
        );
        assert!(stderr.contains("hint: load the module"), "{stderr}");
    }
}

#[test]
fn errors_are_json_when_asked_for() {
    let (code, stdout, stderr) = output(&[&["info", "--json"][..], &NO_DEVICE].concat());
    assert_eq!((code, stdout.as_str()), (Some(3), ""));
    let report: serde_json::Value = serde_json::from_str(&stderr).unwrap();
    assert_eq!(report["schema_version"], 2);
    assert_eq!(report["error"]["kind"], "no-device");
    assert_eq!(
        report["error"]["message"],
        "no device: /dev/uldma4000000000"
    );
    assert!(report["error"]["hint"]
        .as_str()
        .unwrap()
        .contains("load the module"));
}

#[test]
fn wrong_usage_ends_with_two() {
    let usages: [&[&str]; 36] = [
        &[],
        &["frobnicate"],
        &["dma", "--size", "1X"],
        &["dma", "--size", "0"],
        &["dma", "--count", "0"],
        &["dma", "--method", "magic"],
        &["dma", "--method", "fetch-add"],
        &["atomic", "x"],
        &["atomic", "x", "--swap", "1"],
        &["atomic", "x", "--add", "1", "--swap", "1", "--expect", "0"],
        &["charge", "--kind", "magic"],
        &["charge", "--size", "0"],
        &["charge", "--kind", "sysv", "--file", "file"],
        &["register", "--size", "0"],
        &["register", "--times", "0"],
        &["register", "--blocks", "--pages"],
        &["register", "--cache", "--then", "unmap"],
        &["export", "x"],
        &["export", "x", "--size", "0"],
        &["export", "x", "file", "--size", "1"],
        &["send-file", "file"],
        &["recv-file", "--port", "0"],
        &["info", "--timeout", "-1"],
        &["ping", "--node", "x"],
        &["ping", "--serve", "--node", "1"],
        &["listen"],
        &["listen", "0"],
        &["listen", "7", "--buffers", "65"],
        &["connect", "1"],
        &["connect", "1", "7", "--buffer", "0"],
        &["connect", "1", "7", "--ring", "--pull"],
        &["connect", "1", "7", "--ring", "--matched"],
        &["connect", "1", "7", "--pull", "--matched"],
        &["listen", "7", "--ring", "--matched"],
        &["listen", "7", "--capacity", "64K"],
        &["net", "name"],
    ];
    for usage in usages {
        let (code, stdout, stderr) = output(usage);
        assert_eq!(
            (code, stdout.as_str()),
            (Some(2), ""),
            "{usage:?}: {stderr}"
        );
        assert!(!stderr.is_empty());
    }
}

#[test]
fn wrong_usage_is_json_when_asked_for() {
    let usages: [(&[&str], &str, &str); 3] = [
        (
            &["listen", "--json"],
            "the following required arguments were not provided: <PORT>",
            "Usage: uldma listen",
        ),
        (
            &["--json", "dma", "--size", "1X"],
            "invalid value '1X' for '--size <SIZE>': not a number of bytes",
            "",
        ),
        (&["--json"], "'uldma' requires a subcommand", "Usage: uldma"),
    ];
    for (usage, message, hint) in usages {
        let (code, stdout, stderr) = output(usage);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{usage:?}");
        let report: serde_json::Value = serde_json::from_str(&stderr).expect(&stderr);
        assert_eq!(report["schema_version"], 2);
        let error = &report["error"];
        assert_eq!(error["kind"], "usage");
        assert!(
            error["message"].as_str().unwrap().starts_with(message),
            "{error}"
        );
        assert!(
            error["hint"].as_str().unwrap_or_default().starts_with(hint),
            "{error}"
        );
    }
    // Arguments after "--" are no options.
    let (code, _, stderr) = output(&["frobnicate", "--", "--json"]);
    assert_eq!(code, Some(2));
    assert!(stderr.starts_with("error: "), "{stderr}");
}

#[test]
fn help_is_no_error_with_json_either() {
    let (code, stdout, stderr) = output(&["--json", "--help"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("Usage: uldma"), "{stdout}");
}

#[test]
fn the_version_is_told() {
    let (code, stdout, _) = output(&["--version"]);
    assert_eq!((code, stdout.as_str()), (Some(0), "uldma 0.1.0\n"));
}

/// What is printed without a device.
const TEXTS: [&[&str]; 5] = [
    &["--help"],
    &["--version"],
    &["--json", "--version"],
    &["help"],
    &["net", "--help"],
];

/// Makes a pipe of files.
fn pipe() -> std::io::Result<(File, File)> {
    let (reader, writer) = nix::unistd::pipe()?;
    Ok((reader.into(), writer.into()))
}

/// Runs the program with an output that cannot be written; what it says of that.
fn unwritable(arguments: &[&str], output: impl Into<Stdio>) -> String {
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_uldma"));
    let output = command.args(arguments).stdout(output).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn output_without_room_is_a_failure() {
    for text in TEXTS {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let said = unwritable(text, full);
        assert!(
            said.contains("standard output: No space left"),
            "{text:?}: {said}"
        );
    }
}

#[test]
fn closed_output_is_a_failure() {
    for text in TEXTS {
        let closed = "exec \"$0\" \"$@\" >&-";
        let program = env!("CARGO_BIN_EXE_uldma");
        let mut command = process::Command::new("sh");
        let output = command
            .args([&["-c", closed, program], text].concat())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text:?}: {said}");
        assert!(said.contains("standard output: "), "{text:?}: {said}");
    }
}

#[test]
fn a_reader_that_has_gone_is_a_silent_failure() {
    for text in TEXTS {
        let (reader, writer) = pipe().unwrap();
        drop(reader);
        let said = unwritable(text, writer);
        // Programs are told.
        assert_eq!(
            said.contains("closed-pipe"),
            text.contains(&"--json"),
            "{said}"
        );
        assert_eq!(said.is_empty(), !text.contains(&"--json"), "{said}");
    }
}

#[test]
fn unwritable_errors_change_no_exit_code() {
    for (arguments, code) in [
        (&["frobnicate"][..], 2),
        (&["info"], 3),
        (&["info", "--json"], 3),
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = process::Command::new(env!("CARGO_BIN_EXE_uldma"));
        let status = command
            .args(arguments)
            .args(NO_DEVICE)
            .stderr(full)
            .status();
        assert_eq!(status.unwrap().code(), Some(code), "{arguments:?}");
    }
}

#[test]
fn output_that_does_not_block_is_waited_for() {
    let (mut reader, mut writer) = pipe().unwrap();
    fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    let mut filled = 0;
    while let Ok(more) = writer.write(&[0; 4096]) {
        filled += more;
    }
    let mut command = process::Command::new(env!("CARGO_BIN_EXE_uldma"));
    let flags = fcntl(&writer, FcntlArg::F_GETFL).unwrap();
    let mut child = command
        .arg("--help")
        .stdout(writer.try_clone().unwrap())
        .spawn()
        .unwrap();
    drop(command);
    let mut filler = vec![0; filled];
    reader.read_exact(&mut filler).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(fcntl(&writer, FcntlArg::F_GETFL).unwrap(), flags);
    drop(writer);
    let mut text = String::new();
    reader.read_to_string(&mut text).unwrap();
    assert!(text.contains("Exit codes:"), "{text}");
}
