# SPDX-License-Identifier: GPL-2.0
"""What tests have said: one test, and all of a run."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from .console import write
from .ktap import TestCounts

LONGEST = 10


@dataclass
class Outcome:
    """The results of one test, and its texts for people."""

    name: str
    counts: TestCounts = field(default_factory=TestCounts)
    seconds: float = 0.0
    # Of its nodes, in this run's logs.
    scenario: str = ""
    # Whether the nodes had what no test may cause, however the test itself went.
    defect: bool = False
    _texts: list[str] = field(default_factory=list)

    def add_text(self, text: str) -> None:
        """Keep a text, which is printed when the test has ended."""
        self._texts.append(text.rstrip("\n"))

    def fail(self, name: str, trouble: str) -> None:
        """Count a failure that is no result of a program, and keep its text."""
        self.counts.add_fail(name, trouble)
        self.add_text(f"{name}: {trouble}")

    def __str__(self) -> str:
        closing = f"nodes: {self.name}: {self.counts.total} results in {self.seconds:.1f} s"
        return "\n".join([*self._texts, closing])


class Report:
    """What all tests of a run have said. Threads share it."""

    def __init__(self, output: Callable[[str], None] = write) -> None:
        self.counts = TestCounts()
        self._output = output
        self._lock = threading.Lock()
        self._seconds: dict[str, float] = {}
        self._boots: list[float] = []

    def add(self, outcome: Outcome) -> None:
        """Print what a test has said, in one block, and count it."""
        with self._lock:
            self._output(str(outcome))
            self._count(outcome)
            self._seconds[outcome.name] = outcome.seconds

    def _count(self, outcome: Outcome) -> None:
        self.counts.merge(outcome.counts)

    def close(self) -> list[str]:
        """All tests have run; what there is to say about each."""
        return []

    def forgive(self, outcome: Outcome) -> None:
        """Count the failures of a test, which have been counted, as those of an unstable one."""
        with self._lock:
            self.counts.forgive(outcome.name, outcome.counts)

    def add_boot(self, seconds: float) -> None:
        """Count a boot of a set of nodes."""
        with self._lock:
            self._boots.append(seconds)

    def longest(self) -> list[str]:
        """A line for each of the longest tests, and one for the boots."""
        longest = sorted(self._seconds.items(), key=lambda item: -item[1])[:LONGEST]
        lines = [f"{seconds:7.1f} s  {name}" for name, seconds in longest]
        lines.append(f"{sum(self._boots):7.1f} s  for {len(self._boots)} boots of sets of nodes")
        return lines
