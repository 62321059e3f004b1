# SPDX-License-Identifier: GPL-2.0
"""nodes test: host tests, then kselftest and our own cases on two nodes, one closing line."""

import argparse
import io
import os
import re
import subprocess
import time
import unittest
from collections.abc import Callable, Sequence
from pathlib import Path

from .. import cases, leaks
from ..agent import Result
from ..cases.registry import CASES, Skip, name_of
from ..errors import NodesError
from ..kernel import DEBUG, SUFFIX, patience
from ..pair import Pair, say
from ..paths import BUILD, LOGS, REPO, SELFTESTS
from ..qemu import Config
from ..tally import Tally
from . import kunit

TOP = str(REPO / "scripts")
HOST_TIMEOUT = 900
# kselftest ends a program that takes longer than its settings allow; the debug kernel needs more.
# The second limit bounds the runner.
DEBUG_LIMIT = f"-o {patience(180):.0f}" if DEBUG else ""
PROGRAM_TIMEOUT = 300.0
SERVER_TIMEOUT = 20.0
PROGRAMS_WITH_PEER = ("uldma:uldma_peer",)
# Where allocations are made to fail, DMA-API debugging ends with them.
LAST_PROGRAM = "uldma:uldma_fail_nth"


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


class NodeTests:
    """Tests on a pair of nodes, which is booted anew when a test has brought one down."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._pair: Pair | None = None
        self._boots = 0

    def stop(self) -> None:
        """End the pair; the next test gets a new one, whose logs get a new name."""
        if self._pair:
            self._pair.stop()
            self._pair = None

    def _running(self) -> Pair:
        if self._pair is None:
            self._boots += 1
            name = f"test{SUFFIX}" if self._boots == 1 else f"test{SUFFIX}-{self._boots}"
            self._pair = Pair(name, Config(debug=True)).__enter__()
        return self._pair

    def _guarded(self, name: str, body: Callable[[Pair], int]) -> None:
        """Run a test and read the kernel logs after it. The body counts its own results."""
        pair = self._running()
        began = time.monotonic()
        count = 1
        troubles = []
        try:
            count = body(pair)
        except Skip as why:
            self._tally.add_skip(name, str(why))
        except NodesError as error:
            self._tally.add_fail(name)
            troubles.append(error)
        try:
            pair.check_logs()
        except NodesError as error:
            self._tally.add_fail(f"{name}: kernel log")
            troubles.append(error)
        for trouble in troubles:
            print(f"{name}: {trouble}", flush=True)
        if troubles:
            # Whatever state the nodes are in, the next test shall not suffer from it.
            self.stop()
        say(f"{name}: {count} results in {time.monotonic() - began:.1f} s")

    def program(self, name: str) -> None:
        """Run one kselftest program by kselftest's own runner."""

        def body(pair: Pair) -> int:
            command = f"cd /kselftest && ./run_kselftest.sh {DEBUG_LIMIT} -t {name}"
            return self._count(name, pair.a.run(command, PROGRAM_TIMEOUT))

        self._guarded(name, body)

    def program_with_peer(self, name: str) -> None:
        """Run a program of both nodes: "serve" on B, "run" on A. kselftest's runner has but one."""
        path = f"/kselftest/{name.replace(':', '/')}"

        def body(pair: Pair) -> int:
            server = pair.b.spawn(f"{path} serve")
            try:
                server.wait_output("ready", SERVER_TIMEOUT)
                return self._count(name, pair.a.run(f"{path} run", PROGRAM_TIMEOUT))
            finally:
                if server.running:
                    server.kill()
                    server.wait(SERVER_TIMEOUT)

        self._guarded(name, body)

    def _count(self, name: str, result: Result) -> int:
        text = result.stdout + result.stderr
        (LOGS / f"kselftest-{name.replace(':', '-')}.log").write_text(text)
        failures = len(self._tally.failed)
        count = self._tally.add_ktap(name, text)
        if (result.rc and len(self._tally.failed) == failures) or not count:
            self._tally.add_fail(f"{name}: exit {result.rc} with {count} results")
        if len(self._tally.failed) > failures:
            print(text, flush=True)
        return count

    def unit_tests(self) -> None:
        """Count what KUnit has found when the module was loaded."""
        self._guarded("kunit", lambda pair: kunit.collect(pair.a, self._tally))

    def leaks(self) -> None:
        """Look for lost memory; nothing can run on these nodes afterwards."""
        self.case("nodes:leaks", leaks.check)
        self.stop()

    def case(self, name: str, function: Callable[[Pair], None]) -> None:
        """Run one of our own cases."""

        def body(pair: Pair) -> int:
            function(pair)
            self._tally.add_pass()
            return 1

        self._guarded(name, body)


def run_nodes(tally: Tally, only: re.Pattern[str]) -> None:
    """Every kselftest program, then every case."""
    cases.load()
    listing = SELFTESTS / "kselftest-list.txt"
    tests = NodeTests(tally)
    try:
        if DEBUG and only.search("kunit"):
            tests.unit_tests()
        programs = listing.read_text().split()
        for program in programs:
            if program != LAST_PROGRAM and only.search(program):
                tests.program(program)
        for program in PROGRAMS_WITH_PEER:
            if only.search(program):
                tests.program_with_peer(program)
        for function in CASES:
            if only.search(name_of(function)):
                tests.case(name_of(function), function)
        if LAST_PROGRAM in programs and only.search(LAST_PROGRAM):
            tests.program(LAST_PROGRAM)
        if DEBUG:
            tests.leaks()
    finally:
        tests.stop()


def main(arguments: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(prog=f"make test{SUFFIX}")
    parser.add_argument("--host", action="store_true", help="only the host's tests")
    parser.add_argument("--nodes", action="store_true", help="only the nodes' tests")
    parser.add_argument("--only", default="", metavar="REGEX", help="only node tests of this name")
    options = parser.parse_args(arguments)
    tally = Tally()
    began = time.monotonic()
    if not options.nodes and not options.only:
        run_own(tally)
        run_cargo(tally)
        run_loom(tally)
    if not options.host:
        try:
            run_nodes(tally, re.compile(options.only))
        except (NodesError, OSError) as error:
            print(error, flush=True)
            tally.add_fail("the nodes did not come up")
    for name, why in tally.skipped:
        print(f"skipped: {name}: {why}")
    for name in tally.failed:
        print(f"FAILED: {name}")
    if tally.failed:
        print(f"The logs are in build/logs; one test again: make test{SUFFIX} ONLY=name")
    print(f"nodes: {tally.total} tests in {time.monotonic() - began:.0f} s")
    print(tally.closing_line(), flush=True)
    return 1 if tally.failed or not tally.total else 0
