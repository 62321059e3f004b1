# SPDX-License-Identifier: GPL-2.0
"""Running tests side by side."""

import threading
import unittest
from collections.abc import Sequence

from ..bodies import Body
from ..cluster import Cluster
from ..errors import NodesError
from ..node_set import NodeSet
from ..outcome import Outcome, Report
from ..plan import Order, Test
from ..schedule import Schedule
from ..topologies import Topology
from ..workers import Fleet, Workers
from .fakes import FakeDurations, FakeNodeSet, make_test, make_topology, passes

TIMEOUT = 10.0


class WorkersTest(unittest.TestCase):
    """Each test runs once, whatever becomes of the others."""

    def setUp(self) -> None:
        """Nothing has run."""
        FakeNodeSet.booted = []
        self.fleet = Fleet(FakeNodeSet)
        self.said: list[str] = []
        self.report = Report(self.said.append)

    def run_tests(self, tests: Sequence[Test], workers: int = 2) -> str:
        """Run tests; what is said meanwhile."""
        durations = FakeDurations({test.name: 100.0 for test in tests})
        schedule = Schedule(tests, durations, workers)
        Workers(schedule, durations, self.report, self.fleet).run(workers)
        return "\n".join(self.said)

    def test_side_by_side(self) -> None:
        """As many tests run at a time as there are workers."""
        meeting = threading.Barrier(2)

        def meets(_: Cluster, outcome: Outcome) -> None:
            meeting.wait(TIMEOUT)
            outcome.counts.add_pass()

        self.run_tests([Test(make_topology(), name, meets) for name in ("a", "b", "c", "d")])
        self.assertEqual(self.report.counts.failed, [])
        self.assertEqual(len(FakeNodeSet.booted), len(set(FakeNodeSet.booted)))

    def test_nodes_are_kept(self) -> None:
        """One worker boots each topology once, and looks for what is left at the end of each."""
        names = ("a", "b", "x/c", "x/d")
        tests = [make_test(name.rpartition("/")[2], name.rpartition("/")[0]) for name in names]
        self.run_tests(tests, workers=1)
        self.assertEqual(len(FakeNodeSet.booted), 2)
        self.assertEqual(self.report.counts.passed, 4 + 2)

    def test_logs_are_kept(self) -> None:
        """What runs in a later round gets nodes that have other names, and so other logs."""
        for name in ("a", "b"):
            self.run_tests([make_test(name)], workers=1)
        self.assertEqual(FakeNodeSet.booted, ["test", "test-2"])

    def test_failure(self) -> None:
        """What fails is told in one block with its name, and the next test gets new nodes."""

        def fails(_: Cluster, outcome: Outcome) -> None:
            outcome.add_text("first line")
            raise NodesError("second line")

        tests = [Test(make_topology(), "bad", fails), make_test("good")]
        said = self.run_tests(tests, workers=1)
        self.assertEqual(self.report.counts.failed, ["bad"])
        self.assertIn("first line\nbad: second line\nnodes: bad: 1 results", said)
        self.assertEqual(len(FakeNodeSet.booted), 2)

    def test_bug(self) -> None:
        """A test with a bug fails with its trace, and only it."""

        def crashes(_: Cluster, __: Outcome) -> None:
            raise KeyError("what is not there")

        said = self.run_tests([Test(make_topology(), "bad", crashes), make_test("good")])
        self.assertEqual(self.report.counts.failed, ["bad"])
        self.assertIn("Traceback", said)

    def test_last(self) -> None:
        """Nothing runs on the nodes of the last test after it, but for the search for leftovers."""
        tests = [make_test("end", order=Order.LAST)]
        self.run_tests([*tests, make_test("a")], workers=1)
        self.assertEqual((self.report.counts.passed, len(FakeNodeSet.booted)), (3, 1))

    def test_no_boot(self) -> None:
        """A topology that does not come up fails once, and others run."""
        broken = [make_test(name, "broken") for name in ("a", "b", "c")]
        self.run_tests([*broken, make_test("good")], workers=1)
        [failure] = self.report.counts.failed
        self.assertRegex(failure, "^broken/a, and 2 more")
        self.assertEqual(self.report.counts.passed, 2)

    def test_error_of_the_runner(self) -> None:
        """What is no failure of a test ends the run."""

        def make_node_set(_: Topology, __: int) -> NodeSet:
            raise ZeroDivisionError

        durations = FakeDurations({})
        schedule = Schedule([make_test("a")], durations, 1)
        with self.assertRaises(ZeroDivisionError):
            Workers(schedule, durations, self.report, Fleet(make_node_set)).run(2)


class NodeSetTest(unittest.TestCase):
    """Names of sets of nodes."""

    def names(self, topology: str, number: int) -> tuple[str, list[str]]:
        """Of the logs, and of the last checks."""
        node_set = NodeSet(make_topology(topology), number)
        body: Body = passes
        self.assertEqual(node_set.run("t", body).counts.passed, 1)
        return node_set._nodes.scenario, [outcome.name for outcome in node_set.finish()][:1]

    def test_names(self) -> None:
        """The first set of a topology has no number."""
        self.assertEqual(self.names("", 1), ("test", ["nodes:leftovers"]))
        self.assertEqual(self.names("x", 2), ("test-x-2", ["x/nodes:leftovers-2"]))
