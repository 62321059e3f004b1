# SPDX-License-Identifier: GPL-2.0
"""The tests that need no node: of the runner, the device model, the tools and the ring."""

import io
import os
import subprocess
import time
import unittest
from collections.abc import Sequence
from pathlib import Path

from .console import say
from .paths import BUILD, LOGS, REPO
from .tally import Tally

TOP = str(REPO / "scripts")
HOST_TIMEOUT = 900


def run(tally: Tally) -> None:
    """All of them."""
    run_own(tally)
    run_cargo(tally)
    run_loom(tally)


def run_own(tally: Tally) -> None:
    """The tests of this runner."""
    suite = unittest.TestLoader().discover(str(REPO / "scripts/nodes/tests"), top_level_dir=TOP)
    result = unittest.TextTestRunner(verbosity=0, stream=io.StringIO()).run(suite)
    for test, trace in [*result.failures, *result.errors]:
        print(trace)
        tally.add_fail(str(test))
    for _ in range(result.testsRun - len(result.failures) - len(result.errors)):
        tally.add_pass()
    say(f"tests of the runner: {result.testsRun} results")


def run_cargo(tally: Tally) -> None:
    """The tests of the device model, the library and the tools."""
    cargo_test(tally, "host tests", ["--workspace"], BUILD / "cargo", {})


def run_loom(tally: Tally) -> None:
    """The ring under all interleavings that the memory model allows; a build of its own."""
    ring = ["-p", "uldma", "--test", "loom_ring"]
    cargo_test(tally, "ring model", ring, BUILD / "loom", {"RUSTFLAGS": "--cfg loom"})


def cargo_test(
    tally: Tally, what: str, selection: Sequence[str], target: Path, variables: dict[str, str]
) -> None:
    """Run cargo test, and count its results."""
    say(f"{what}: cargo test ...")
    began = time.monotonic()
    log = LOGS / f"cargo-test-{target.name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [
        *("cargo", "test", "--manifest-path", str(REPO / "tools/uldma/Cargo.toml"), *selection),
        *("--release", "--locked", "--no-fail-fast", "--target-dir", str(target)),
    ]
    with log.open("wb") as output:
        done = subprocess.run(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=HOST_TIMEOUT,
            check=False,
            env=os.environ | variables,
        )
    text = log.read_text(errors="replace")
    failures = len(tally.failed)
    count = tally.add_libtest(text)
    if done.returncode and len(tally.failed) == failures:
        tally.add_fail(f"{what}: cargo test (it did not build, or ended early)")
    if done.returncode:
        print(text[-6000:])
        say(f"the whole log is {log.relative_to(REPO)}; again: make test-host")
    say(f"{what}: {count} results in {time.monotonic() - began:.0f} s")
