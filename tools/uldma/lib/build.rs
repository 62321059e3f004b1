// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generates the constants and structures of the user interface from its only definition,
//! `include/uapi/linux/uldma.h`, with the same `bindgen` program that kernel builds use.

use std::path::PathBuf;
use std::process::{exit, Command};

fn main() {
    let Some(manifest) = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from) else {
        fail("CARGO_MANIFEST_DIR is not set: run this through cargo")
    };
    let Some(out) = std::env::var_os("OUT_DIR").map(PathBuf::from) else {
        fail("OUT_DIR is not set: run this through cargo")
    };
    let header = manifest.join("../../../include/uapi/linux/uldma.h");
    let bindgen = std::env::var("BINDGEN").unwrap_or_else(|_| "bindgen".into());
    println!("cargo::rerun-if-changed={}", header.display());
    println!("cargo::rerun-if-env-changed=BINDGEN");

    let status = Command::new(&bindgen)
        .arg(&header)
        .args(["--allowlist-var", "ULDMA_.*"])
        .args(["--allowlist-type", "uldma_.*"])
        .args(["--default-enum-style", "consts", "--no-prepend-enum-name"])
        .args(["--use-core", "--with-derive-default", "--no-doc-comments"])
        .arg("--output")
        .arg(out.join("uapi.rs"))
        .status();
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => fail(&format!("{bindgen} {}: {status}", header.display())),
        Err(error) => fail(&format!(
            "cannot run {bindgen}: {error}. Install it (Debian: apt install bindgen \
             linux-libc-dev) or name it in $BINDGEN; `make` has one in its toolchain root."
        )),
    }
}

fn fail(why: &str) -> ! {
    println!("cargo::error=uldma: {why}");
    exit(1)
}
