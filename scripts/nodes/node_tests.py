# SPDX-License-Identifier: GPL-2.0
"""Running tests on nodes, one after the other, and counting what they say."""

import re
import time
from collections.abc import Callable

from . import ends, kunit, leaks, leftovers
from .agent import Result
from .cases.registry import CASES, Case, Skip, name_of
from .cluster import Cluster
from .console import say
from .errors import NodesError
from .flavours import Flavour
from .kernel import DEBUG, SUFFIX, patience
from .paths import LOGS
from .selection import Selection
from .tally import Tally

# How long a program may take, as its settings file has it; the second limit bounds the runner.
PROGRAM_LIMIT = 180.0
PROGRAM_TIMEOUT = 300.0
SERVER_TIMEOUT = 20.0


class NodeTests:
    """Tests on the nodes of a flavour, which are booted anew when a test has brought one down."""

    def __init__(
        self, tally: Tally, only: re.Pattern[str], flavour: Flavour, slowness: float = 1.0
    ) -> None:
        """The slowness is that of programs, compared with the usual nodes."""
        self._tally = tally
        self._selection = Selection(only, flavour.name)
        self._flavour = flavour
        self._slowness = slowness
        self._pair: Cluster | None = None
        self._boots = 0

    def stop(self) -> None:
        """End the pair; the next test gets a new one, whose logs get a new name."""
        if self._pair:
            self._pair.stop()
            self._pair = None

    def _running(self) -> Cluster:
        if self._pair is None:
            self._boots += 1
            again = str(self._boots) if self._boots > 1 else ""
            parts = ("test", self._flavour.name, SUFFIX.lstrip("-"), again)
            scenario = "-".join(filter(None, parts))
            nodes = Cluster(scenario, self._flavour.config, names=self._flavour.nodes)
            self._pair = nodes.__enter__()
        return self._pair

    def _guarded(self, name: str, body: Callable[[Cluster], int]) -> None:
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

    def _program_timeout(self) -> float:
        return self._slowness * PROGRAM_TIMEOUT

    def program(self, name: str) -> None:
        """Run one kselftest program by kselftest's own runner."""

        def body(pair: Cluster) -> int:
            limit = patience(self._slowness * PROGRAM_LIMIT)
            command = f"cd /kselftest && ./run_kselftest.sh -o {limit:.0f} -t {name}"
            return self._count(name, pair.a.run(command, self._program_timeout()))

        if name in self._selection:
            self._guarded(self._selection.full_name(name), body)

    def program_with_peer(self, name: str) -> None:
        """Run a program of both ends: "serve" on B, "run" on A. kselftest's runner has but one.

        The ends of a loopback are both on A.
        """
        path = f"/kselftest/{name.replace(':', '/')}"

        def body(pair: Cluster) -> int:
            here, there = ends.of(pair)
            ends.wait_up((here, there))
            server = there.node.spawn(f"ULDMA_DEVICE={there.path} {path} serve")
            try:
                server.wait_output("ready", SERVER_TIMEOUT)
                client = f"ULDMA_DEVICE={here.path} {path} run"
                return self._count(name, here.node.run(client, self._program_timeout()))
            finally:
                server.end()

        if name in self._selection:
            self._guarded(self._selection.full_name(name), body)

    def _count(self, name: str, result: Result) -> int:
        name = self._selection.full_name(name)
        text = result.stdout + result.stderr
        (LOGS / f"kselftest-{re.sub('[:/]', '-', name)}.log").write_text(text)
        failures = len(self._tally.failed)
        count = self._tally.add_ktap(name, text)
        if (result.rc and len(self._tally.failed) == failures) or not count:
            self._tally.add_fail(f"{name}: exit {result.rc} with {count} results")
        if len(self._tally.failed) > failures:
            print(text, flush=True)
        return count

    def unit_tests(self) -> None:
        """Count what KUnit has found when the module was loaded."""
        if "kunit" in self._selection:
            self._guarded("kunit", lambda pair: kunit.collect(pair.a, self._tally))

    def cases(self) -> None:
        """Run all of our own cases for this flavour."""
        for function in CASES[self._flavour.name]:
            self.case(name_of(function), function)

    def case(self, name: str, function: Case) -> None:
        """Run one of our own cases."""
        if name in self._selection:
            self._case(name, function)

    def _case(self, name: str, function: Case) -> None:
        def body(pair: Cluster) -> int:
            function(pair)
            self._tally.add_pass()
            return 1

        self._guarded(self._selection.full_name(name), body)

    def finish(self) -> None:
        """Look for what the tests since the last boot have left, and end the pair."""
        if self._pair:
            self._case("nodes:leftovers", leftovers.check)
        if self._pair and DEBUG:
            self._case("nodes:leaks", leaks.check)
        self.stop()
