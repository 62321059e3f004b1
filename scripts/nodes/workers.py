# SPDX-License-Identifier: GPL-2.0
"""Threads that run tests side by side, each on one set of nodes at a time."""

import threading
import time
from collections import Counter
from collections.abc import Callable

from .durations import Durations
from .errors import NodesError
from .node_set import NodeSet
from .outcome import Outcome, Report
from .plan import Test
from .schedule import Schedule
from .topologies import Topology

# Emulators that were killed are gone within that time.
END_TIMEOUT = 20.0


class Fleet:
    """All sets of nodes of a run, by number: the logs of none are written over by a later one."""

    def __init__(self, make_node_set: Callable[[Topology, int], NodeSet] = NodeSet) -> None:
        self._make_node_set = make_node_set
        self._lock = threading.Lock()
        self._boots: Counter[str] = Counter()

    def node_set(self, topology: Topology) -> NodeSet:
        """The next set of nodes of a topology."""
        with self._lock:
            self._boots[topology.name] += 1
            return self._make_node_set(topology, self._boots[topology.name])


class Workers:
    """All of them; none outlives run()."""

    def __init__(
        self, schedule: Schedule, durations: Durations, report: Report, fleet: Fleet
    ) -> None:
        self._schedule = schedule
        self._fleet = fleet
        self._durations = durations
        self._report = report
        # Of tests, by their own runs.
        self.failures: list[tuple[Test, Outcome]] = []
        self._lock = threading.Lock()
        self._node_sets: set[NodeSet] = set()
        self._stopping = False
        self._error: BaseException | None = None

    def run(self, number: int) -> None:
        """Run all tests of the schedule by that many threads."""
        threads = [threading.Thread(target=self._guarded, daemon=True) for _ in range(number)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        except BaseException:
            self._stop()
            for thread in threads:
                thread.join(END_TIMEOUT)
            raise
        if self._error:
            raise self._error

    def _stop(self) -> None:
        """Let no test begin, and the running ones fail."""
        self._schedule.stop()
        with self._lock:
            self._stopping = True
            for node_set in self._node_sets:
                node_set.abandon()

    def _guarded(self) -> None:
        try:
            while test := self._schedule.first():
                try:
                    self._use_nodes(test)
                finally:
                    self._schedule.leave(test.topology)
        except BaseException as error:
            self._error = error
            self._stop()

    def _use_nodes(self, test: Test) -> None:
        """Boot nodes for a test, and keep them while tests of that topology are left."""
        node_set = self._node_set(test.topology)
        try:
            began = time.monotonic()
            try:
                node_set.boot()
            except (NodesError, OSError) as error:
                self._give_up(test, error)
                return
            if test.topology.nodes:
                self._note_boot(test.topology, time.monotonic() - began)
            self._run_tests(node_set, test)
        finally:
            with self._lock:
                self._node_sets.discard(node_set)
            node_set.stop()

    def _node_set(self, topology: Topology) -> NodeSet:
        node_set = self._fleet.node_set(topology)
        with self._lock:
            self._node_sets.add(node_set)
        return node_set

    def _note_boot(self, topology: Topology, seconds: float) -> None:
        self._durations.note_boot(topology, seconds)
        self._report.add_boot(seconds)

    def _give_up(self, test: Test, error: Exception) -> None:
        """Nodes did not come up: others of the topology would not either."""
        left = self._schedule.give_up(test.topology)
        outcome = Outcome(test.name)
        outcome.fail(f"{test.name}, and {left} more: the nodes did not come up", str(error))
        self._add(outcome)

    def _run_tests(self, node_set: NodeSet, first: Test) -> None:
        test: Test | None = first
        while test and not self._stopping:
            outcome = node_set.run(test.name, test.body)
            self._add(outcome)
            if outcome.counts.failed:
                self.failures.append((test, outcome))
            else:
                self._durations.note(test, outcome.seconds)
            if not node_set.usable:
                return
            test = self._schedule.next(test)
        for outcome in node_set.finish():
            self._add(outcome)

    def _add(self, outcome: Outcome) -> None:
        # What fails since it was stopped says nothing.
        if not self._stopping:
            self._report.add(outcome)
