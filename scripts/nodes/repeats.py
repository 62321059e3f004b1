# SPDX-License-Identifier: GPL-2.0
"""Each test several times, to find those that fail now and then: one result for all runs of one."""

from collections import defaultdict
from collections.abc import Callable

from .console import write
from .ktap import TestCounts
from .outcome import Outcome, Report


class Repeats(Report):
    """Counts all runs of a test as one result, which passes if each of them does."""

    def __init__(self, output: Callable[[str], None] = write) -> None:
        super().__init__(output)
        self._runs: defaultdict[str, list[TestCounts]] = defaultdict(list)

    def _count(self, outcome: Outcome) -> None:
        self._runs[outcome.name].append(outcome.counts)

    def close(self) -> list[str]:
        """Count the results, after the last run; a line for each."""
        return [f"{name}: {self._count_runs(name, runs)}" for name, runs in self._runs.items()]

    def _count_runs(self, name: str, runs: list[TestCounts]) -> str:
        failed = [counts for counts in runs if counts.failed]
        passed = [counts for counts in runs if counts.passed and not counts.failed]
        said = f"{len(passed)} of {len(runs)} passed"
        if failed:
            first = failed[0]
            causes = [f"{failure}: {first.troubles.get(failure, '')}" for failure in first.failed]
            self.counts.add_fail(name, "\n".join([*causes, said]))
        elif passed:
            self.counts.add_pass()
        else:
            self.counts.add_skip(name, runs[0].skipped[0][1] if runs[0].skipped else "")
        return said
