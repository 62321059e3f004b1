#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Creates a crate of your own in a new directory, builds it in the toolchain
# root, and runs it on a node. To be run from the top of the tree:
#
#	make build && samples/uldma/own-program.sh DIRECTORY

set -eu

mkdir -p "$1/src"
crate=$(realpath "$1")
enter=${ENTER:-scripts/root enter --bind-rw $crate}
shell=${NODE_SHELL:-scripts/shell}

# The crate, with the versions of other crates that uldma is tested with.
cp tools/uldma/Cargo.lock "$crate"
cat >"$crate/Cargo.toml" <<EOF
[package]
name = "own-program"
version = "0.1.0"
edition = "2021"

[dependencies]
uldma = { path = "$PWD/tools/uldma/lib" }
EOF
cat >"$crate/src/main.rs" <<'EOF'
fn main() -> uldma::Result<()> {
    let query = uldma::Device::open(0)?.query()?;
    println!("this is node {} of {}", query.node, query.nodes);
    Ok(())
}
EOF

# The root contains this tree, and other directories only if they are named.
$enter cargo build --release --manifest-path "$crate/Cargo.toml" --target-dir "$crate/target"

# A node has the files that are named here in /files.
echo /files/own-program | $shell b "$crate/target/release/own-program"
