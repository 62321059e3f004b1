# SPDX-License-Identifier: GPL-2.0
"""Tests that fail in CI run again, alone; those that pass then are unstable."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from .cluster import Cluster
from .console import say
from .durations import Durations
from .kernel import SUFFIX
from .outcome import Outcome, Report
from .paths import KREL, LOGS, REPO, RESULTS
from .plan import UNIT_TESTS, Test
from .schedule import Schedule
from .workers import Fleet, Workers

# How often a test has to pass.
TIMES = 2
# Of more, a run fails.
MOST = 3
FILE = "unstable.json"


@dataclass(frozen=True)
class Unstable:
    """A test that failed, and then passed."""

    name: str
    kernel: str
    # Of the nodes that it failed on.
    log: str
    said: str

    @staticmethod
    def of(outcome: Outcome) -> "Unstable":
        """What is kept of a failure."""
        log = LOGS.relative_to(REPO) / f"{outcome.scenario}-a.log"
        return Unstable(outcome.name, f"{KREL}{SUFFIX}", str(log), str(outcome))


def read() -> list[Unstable]:
    """The tests that this and earlier runs have found; the file is deleted where CI begins."""
    path = RESULTS / FILE
    return [Unstable(**entry) for entry in json.loads(path.read_text())] if path.exists() else []


def _write(found: Sequence[Unstable]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    new = RESULTS / f"{FILE}.new"
    new.write_text(json.dumps([asdict(one) for one in found], indent=1) + "\n")
    new.rename(RESULTS / FILE)


class Retries:
    """Runs tests again that have failed, one by one on fresh nodes, as long as there is time."""

    def __init__(
        self,
        report: Report,
        durations: Durations,
        fleet: Fleet,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._report = report
        self._durations = durations
        self._fleet = fleet
        self._clock = clock
        self._end = clock() + seconds

    def run(self, failures: Sequence[tuple[Test, Outcome]]) -> list[Unstable]:
        """Forgive what passes now, and list it; more than a few are a failure of their own."""
        found = []
        for test, outcome in failures:
            if _may_pass(test, outcome) and self._passes_now(test, outcome):
                self._report.forgive(outcome)
                found.append(Unstable.of(outcome))
        if found:
            _write(known := [*read(), *found])
            if len(known) > MOST:
                self._report.counts.add_fail(
                    f"{len(known)} tests are unstable, which are more than {MOST}"
                )
        return found

    def _passes_now(self, test: Test, outcome: Outcome) -> bool:
        """Whether a test passes as often as it has to."""
        seconds = max(self._durations.of(test), outcome.seconds)
        seconds += self._durations.of_boot(test.topology)
        for number in range(1, TIMES + 1):
            if self._clock() + seconds > self._end:
                say(f"{test.name} does not run again, as there is no time for it")
                return False
            say(f"{test.name} has failed: run {number} of {TIMES} alone")
            if not self._passes(test):
                return False
        return True

    def _passes(self, test: Test) -> bool:
        """Whether a test passes, and leaves nothing behind; what skips has shown nothing."""
        seen: list[Outcome] = []

        def body(nodes: Cluster, outcome: Outcome) -> None:
            test.body(nodes, outcome)
            seen.append(outcome)

        report = Report()
        schedule = Schedule([replace(test, body=body)], self._durations, 1)
        Workers(schedule, self._durations, report, self._fleet).run(1)
        return not report.counts.failed and any(outcome.counts.passed for outcome in seen)


def _may_pass(test: Test, outcome: Outcome) -> bool:
    """Whether another run can say that only the first one was unlucky."""
    return bool(test.topology.nodes) and test.plain != UNIT_TESTS and not outcome.defect
