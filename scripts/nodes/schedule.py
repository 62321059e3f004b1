# SPDX-License-Identifier: GPL-2.0
"""Which worker runs which test, and on which nodes."""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from .durations import Durations
from .plan import Order, Test
from .topologies import HOST, Topology


class Schedule:
    """The tests that wait, the longest of each topology first. Threads share it.

    A worker asks for the first test of a new set of nodes, then for one after the other of that
    topology, and says when the set has ended. Once `is_over` says so, no more tests begin.
    """

    def __init__(
        self,
        tests: Sequence[Test],
        durations: Durations,
        workers: int,
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._durations = durations
        self._workers = workers
        self._is_over = is_over
        self._lock = threading.Lock()
        self._waiting: defaultdict[str, list[Test]] = defaultdict(list)
        for test in sorted(tests, key=lambda test: (test.order, -durations.of(test))):
            self._waiting[test.topology.name].append(test)
        self._sets: Counter[str] = Counter()

    def first(self) -> Test | None:
        """The first test of a new set of nodes, unless none is worth a boot.

        A topology that no worker has nodes of comes before help for another, and the one with the
        most work comes before one with less. Tests that need no node come first: each run has them,
        however soon its time is over.
        """
        if self._is_over():
            return None
        with self._lock:
            worthy = [topology for topology in self._waiting if self._worth_a_boot(topology)]
            if not worthy:
                return None
            topology = max(
                worthy,
                key=lambda name: (not self._sets[name], name == HOST.name, self._work(name)),
            )
            self._sets[topology] += 1
            return self._take(topology)

    def next(self, test: Test) -> Test | None:
        """The next test for a set of nodes that has run one; after a last one only another."""
        topology = test.topology.name
        if self._is_over():
            return None
        with self._lock:
            waiting = self._waiting[topology]
            if not waiting or (test.order is Order.LAST and waiting[0].order is not Order.LAST):
                return None
            return self._take(topology)

    def waiting(self) -> int:
        """How many tests no worker has taken."""
        with self._lock:
            return sum(map(len, self._waiting.values()))

    def leave(self, topology: Topology) -> None:
        """A set of nodes has ended."""
        with self._lock:
            self._sets[topology.name] -= 1

    def give_up(self, topology: Topology) -> int:
        """Such nodes cannot be had; how many tests do not run therefore."""
        with self._lock:
            return len(self._waiting.pop(topology.name, []))

    def stop(self) -> None:
        """Nothing more is to run."""
        with self._lock:
            self._waiting.clear()

    def _work(self, topology: str) -> float:
        """The seconds that a topology's waiting tests take."""
        return sum(map(self._durations.of, self._waiting[topology]))

    def _worth_a_boot(self, topology: str) -> bool:
        """Whether another set of nodes ends the topology's tests sooner."""
        tests, sets = self._waiting[topology], self._sets[topology]
        if not tests or not sets:
            return bool(tests)
        return self._work(topology) / sets > self._durations.of_boot(tests[0].topology)

    def _take(self, topology: str) -> Test:
        tests = self._waiting[topology]
        return tests.pop(-1 if self._is_due(tests[-1]) else 0)

    def _is_due(self, test: Test) -> bool:
        """Whether a test that ends its nodes would end the run, too, if it waited any longer."""
        if test.order is not Order.LAST or self._workers == 1:
            return False
        others = sum(map(self._work, list(self._waiting))) - self._durations.of(test)
        boot = self._durations.of_boot(test.topology)
        return self._durations.of(test) >= boot + others / (self._workers - 1)
