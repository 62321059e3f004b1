# SPDX-License-Identifier: GPL-2.0
"""The tests that need no node: of the runner, the device model, the tools and the ring."""

import io
import os
import subprocess
import unittest
from collections.abc import Mapping, Sequence
from pathlib import Path

from .bodies import Body
from .cluster import Cluster
from .console import say
from .outcome import Outcome
from .paths import BUILD, LOGS, REPO
from .plan import Test
from .topologies import HOST

TOP = str(REPO / "scripts")
HOST_TIMEOUT = 1800
LAST_CHARACTERS = 6000


def tests(cores: int) -> list[Test]:
    """All of them, each of which uses that many processors."""
    ring = ("-p", "uldma", "--test", "loom_ring")
    loom = {"RUSTFLAGS": "--cfg loom"}
    return [
        Test(HOST, "runner", _own),
        # The device model, the library and the tools.
        Test(HOST, "cargo", _cargo(("--workspace",), BUILD / "cargo", {}, cores)),
        # The ring under all interleavings that the memory model allows; a build of its own.
        Test(HOST, "ring-model", _cargo(ring, BUILD / "loom", loom, cores)),
    ]


def _own(_: Cluster, outcome: Outcome) -> None:
    """The tests of this runner."""
    suite = unittest.TestLoader().discover(str(REPO / "scripts/nodes/tests"), top_level_dir=TOP)
    result = unittest.TextTestRunner(verbosity=0, stream=io.StringIO()).run(suite)
    for test, trace in [*result.failures, *result.errors]:
        outcome.fail(str(test), trace)
    for _passed in range(result.testsRun - len(result.failures) - len(result.errors)):
        outcome.counts.add_pass()


def _cargo(
    selection: Sequence[str], target: Path, variables: Mapping[str, str], cores: int
) -> Body:
    """Run cargo test, and count its results."""
    command = [
        *("cargo", "test", "--manifest-path", str(REPO / "tools/uldma/Cargo.toml"), *selection),
        *("--release", "--locked", "--no-fail-fast", "--target-dir", str(target)),
        *("--jobs", str(cores), "--", "--test-threads", str(cores)),
    ]

    def body(_: Cluster, outcome: Outcome) -> None:
        say(f"{outcome.name}: cargo test ...")
        log = LOGS / f"cargo-test-{target.name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            done = subprocess.run(
                command,
                stdout=output,
                stderr=subprocess.STDOUT,
                timeout=HOST_TIMEOUT,
                check=False,
                env={**os.environ, **variables},
            )
        text = log.read_text(errors="replace")
        outcome.counts.add_libtest(text)
        if done.returncode and not outcome.counts.failed:
            outcome.counts.add_fail(f"{outcome.name}: it did not build, or ended early")
        if done.returncode:
            outcome.add_text(text[-LAST_CHARACTERS:])
            outcome.add_text(f"the whole log is {log.relative_to(REPO)}; again: make test-host")

    return body
