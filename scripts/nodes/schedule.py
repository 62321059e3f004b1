# SPDX-License-Identifier: GPL-2.0
"""Which worker runs which test, and on which nodes."""

import threading
from collections import Counter, defaultdict
from collections.abc import Sequence

from .durations import Durations
from .flavours import Flavour
from .plan import Test, Turn


class Schedule:
    """The tests that wait, the longest of each flavour first. Threads share it.

    A worker asks for the first test of a new set of nodes, then for one after the other of that
    flavour, and says when the set has ended.
    """

    def __init__(self, tests: Sequence[Test], durations: Durations, workers: int) -> None:
        self._durations = durations
        self._workers = workers
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, list[Test]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: (test.turn, -durations.of(test))):
            self._waiting[test.flavour.name].append(test)
        self._sets: Counter[str] = Counter()

    def first(self) -> Test | None:
        """The first test of a new set of nodes, unless none is worth a boot.

        A flavour that no worker has nodes of comes before help for another, and the one with the
        most work comes before one with less.
        """
        with self._lock:
            worthy = [flavour for flavour in self._waiting if self._worth_a_boot(flavour)]
            if not worthy:
                return None
            flavour = max(worthy, key=lambda name: (not self._sets[name], self._work(name)))
            self._sets[flavour] += 1
            return self._take(flavour)

    def next(self, flavour: Flavour) -> Test | None:
        """The next test for a set of nodes of this flavour."""
        with self._lock:
            return self._take(flavour.name) if self._waiting[flavour.name] else None

    def leave(self, flavour: Flavour) -> None:
        """A set of nodes has ended."""
        with self._lock:
            self._sets[flavour.name] -= 1

    def give_up(self, flavour: Flavour) -> int:
        """Such nodes cannot be had; how many tests do not run therefore."""
        with self._lock:
            return len(self._waiting.pop(flavour.name, []))

    def stop(self) -> None:
        """Nothing more is to run."""
        with self._lock:
            self._waiting.clear()

    def _work(self, flavour: str) -> float:
        """The seconds that a flavour's waiting tests take."""
        return sum(map(self._durations.of, self._waiting[flavour]))

    def _worth_a_boot(self, flavour: str) -> bool:
        """Whether another set of nodes ends the flavour's tests sooner."""
        tests, sets = self._waiting[flavour], self._sets[flavour]
        if not tests or not sets:
            return bool(tests)
        return self._work(flavour) / sets > self._durations.of_boot(tests[0].flavour)

    def _take(self, flavour: str) -> Test:
        tests = self._waiting[flavour]
        return tests.pop(-1 if self._is_due(tests[-1]) else 0)

    def _is_due(self, test: Test) -> bool:
        """Whether a test that ends its nodes would end the run, too, if it waited any longer."""
        if test.turn is not Turn.LAST or self._workers == 1:
            return False
        others = sum(map(self._work, list(self._waiting))) - self._durations.of(test)
        boot = self._durations.of_boot(test.flavour)
        return self._durations.of(test) >= boot + others / (self._workers - 1)
