# SPDX-License-Identifier: GPL-2.0
"""Which failures of a run are forgiven, and what becomes of the others."""

import json
import re
import tempfile
import unittest
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from unittest import mock

from .. import leftovers, retries
from ..bodies import Body
from ..cases.registry import Skip
from ..cluster import Cluster
from ..commands import test as command
from ..durations import Durations
from ..errors import Defect, KernelReport, NodesError
from ..outcome import Outcome, Report
from ..paths import REPO
from ..plan import UNIT_TESTS, Test
from ..retries import MOST, Retries
from ..schedule import Schedule
from ..topologies import HOST
from ..workers import Fleet, Workers
from .fakes import BOOT, FakeDurations, FakeNodeSet, body_of, make_test, make_topology

SECONDS = 1000.0
LATE = NodesError("late")


def fails_once(name: str = "unlucky") -> Test:
    """A test that fails the first time."""
    return Test(make_topology(), name, body_of(LATE, None))


class Place(unittest.TestCase):
    """A place for what is listed, and nodes that count their boots."""

    def setUp(self) -> None:
        """Nothing has run, or was listed."""
        FakeNodeSet.booted.clear()
        self.fleet = Fleet(FakeNodeSet)
        self.said: list[str] = []
        self.report = Report(self.said.append)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.results = Path(directory.name) / "results"
        for patch in (
            mock.patch.object(retries, "RESULTS", self.results),
            mock.patch.object(retries, "say"),
            mock.patch.object(retries, "Report", lambda: Report(self.said.append)),
        ):
            patch.start()
            self.addCleanup(patch.stop)

    def listed(self) -> list[str]:
        """The names in the file."""
        path = self.results / retries.FILE
        return [entry["name"] for entry in json.loads(path.read_text())] if path.exists() else []


class RetriesTest(Place):
    """A failure is forgiven if two runs alone pass, and only then."""

    def run_tests(
        self,
        *tests: Test,
        seconds: float = SECONDS,
        durations: Durations | None = None,
        clock: Callable[[], float] = lambda: 0.0,
    ) -> list[str]:
        """Run tests, then some again; which failures are left."""
        durations = durations or FakeDurations({})
        workers = Workers(Schedule(tests, durations, 2), durations, self.report, self.fleet)
        workers.run(2)
        FakeNodeSet.booted.clear()
        again = Retries(self.report, durations, self.fleet, seconds, clock)
        found = again.run(workers.failures)
        self.assertEqual([one.name for one in found], self.report.counts.unstable)
        return self.report.counts.failed

    def assert_not_run(self, test: Test) -> None:
        """A failure stays, and nothing has run again."""
        self.assertTrue(self.run_tests(test))
        self.assertEqual((FakeNodeSet.booted, self.listed()), ([], []))

    def test_unlucky(self) -> None:
        """Two runs on fresh nodes pass: the test is unstable, and its log is not written over."""
        self.assertEqual(self.run_tests(fails_once(), make_test("good")), [])
        self.assertEqual(self.report.counts.troubles, {})
        self.assertEqual(len(FakeNodeSet.booted), retries.TIMES)
        [entry] = json.loads((self.results / retries.FILE).read_text())
        self.assertEqual(entry["name"], "unlucky")
        self.assertIn("unlucky: late", entry["said"])
        self.assertRegex(entry["log"], "^build/logs/test(-2)?-a.log$")
        self.assertNotIn(Path(entry["log"]).name.removesuffix("-a.log"), FakeNodeSet.booted)
        # What passes again is not counted again.
        passed = 1 + sum("leftovers" in text for text in self.said) - retries.TIMES
        self.assertEqual(self.report.counts.passed, passed)

    def test_alone(self) -> None:
        """Those that run again do so one after the other, however many workers there were."""
        running: list[str] = []

        def body(name: str) -> Body:
            first = body_of(LATE, None)

            def counted(nodes: Cluster, outcome: Outcome) -> None:
                first(nodes, outcome)
                running.append(f"{name} begins")
                running.append(f"{name} ends")

            return counted

        self.run_tests(*(Test(make_topology(), name, body(name)) for name in "ab"))
        self.assertEqual(sorted(self.report.counts.unstable), ["a", "b"])
        self.assertEqual(len(running), 4 * retries.TIMES)
        self.assertEqual(len(set(running[: 2 * retries.TIMES])), 2)

    def test_fails_again(self) -> None:
        """A failure of either run is one of the test."""
        for errors in ([LATE], [LATE, None, LATE]):
            with self.subTest(errors):
                self.setUp()
                failed = self.run_tests(Test(make_topology(), "bad", body_of(*errors)))
                self.assertEqual((failed, self.listed()), (["bad"], []))
                self.assertEqual(self.report.counts.troubles, {"bad": "late"})

    def test_defects_count(self) -> None:
        """Where a kernel has reported something no other run is asked; nor where pins stay."""
        report = body_of(KernelReport("splat"), None)
        self.assert_not_run(Test(make_topology(), "bad", report))
        self.setUp()
        with mock.patch.object(leftovers, "wait_unpinned", side_effect=Defect("pinned")):
            self.assert_not_run(make_test("bad"))

    def test_leftovers_count(self) -> None:
        """What tests leave on their nodes is no failure of a test that could run again."""
        with mock.patch.object(leftovers, "check", side_effect=Defect("left behind")):
            self.assert_not_run(make_test("a"))

    def test_leaves_something(self) -> None:
        """A run that passes and leaves something behind does not excuse the first."""
        with mock.patch.object(leftovers, "check", side_effect=Defect("left behind")):
            self.assertEqual(self.run_tests(fails_once()), ["unlucky"])
        self.assertEqual((len(FakeNodeSet.booted), self.listed()), (1, []))

    def test_skips(self) -> None:
        """A run that skips does not excuse the first either."""
        for skip in (self.skips_case, self.skips_results):
            self.setUp()
            failed = self.run_tests(Test(make_topology(), "bad", skip()))
            self.assertEqual((failed, self.listed()), (["bad"], []))

    def skips_case(self) -> Body:
        """A case that fails, then skips."""
        return body_of(LATE, Skip("no time"))

    def skips_results(self) -> Body:
        """A program that fails, and then only skips."""
        ends = iter(["fail", "skip", "skip"])

        def body(_: Cluster, outcome: Outcome) -> None:
            if next(ends) == "fail":
                outcome.counts.add_fail("bad")
            else:
                outcome.counts.add_skip("bad", "no memory")

        return body

    def test_only_nodes(self) -> None:
        """Tests of the host are not excused by another run, nor are unit tests of the module."""
        self.assert_not_run(Test(HOST, "cargo", body_of(LATE, None)))
        self.setUp()
        self.assert_not_run(fails_once(UNIT_TESTS))

    def test_no_nodes(self) -> None:
        """Nodes that do not come up are no failure of the test that needs them."""
        self.assert_not_run(make_test("a", "broken"))

    def test_time(self) -> None:
        """No run begins that may take longer than what is left; its failure stays."""
        known = FakeDurations({"unlucky": 50.0})
        needed = 50.0 + BOOT
        self.assertEqual(
            self.run_tests(fails_once(), seconds=needed - 1, durations=known), ["unlucky"]
        )
        self.assertEqual(FakeNodeSet.booted, [])
        self.setUp()
        self.assertEqual(self.run_tests(fails_once(), seconds=needed, durations=known), [])
        self.setUp()
        # The first run has left too little for the second.
        clock = iter([0.0, 0.0, 1.0]).__next__
        failed = self.run_tests(fails_once(), seconds=needed, durations=known, clock=clock)
        self.assertEqual((failed, len(FakeNodeSet.booted)), (["unlucky"], 1))

    def test_time_of_the_failure(self) -> None:
        """A test is taken to last as long as when it failed."""
        again = Retries(self.report, FakeDurations({}), self.fleet, SECONDS, lambda: 0.0)
        again.run([(make_test("slow"), Outcome("slow", seconds=SECONDS))])
        self.assertEqual(FakeNodeSet.booted, [])

    def test_many(self) -> None:
        """A few unstable tests do not fail the run, one more does."""
        tests = [fails_once(str(number)) for number in range(MOST + 1)]
        self.assertEqual(self.run_tests(*tests[1:]), [])
        self.assertEqual(len(self.listed()), MOST)
        # Another run of the same CI.
        self.report = Report(self.said.append)
        [failure] = self.run_tests(tests[0])
        self.assertRegex(failure, f"^{MOST + 1} tests are unstable")
        self.assertEqual(len(self.listed()), MOST + 1)

    def test_program(self) -> None:
        """All failures of a program are forgiven as one, and its other results stay."""
        ends: Iterator[Sequence[str]] = iter([["x: 1", "x: 2"], [], []])

        def body(_: Cluster, outcome: Outcome) -> None:
            outcome.counts.add_pass()
            for name in next(ends):
                outcome.counts.add_fail(name)

        self.assertEqual(self.run_tests(Test(make_topology(), "x", body)), [])
        self.assertEqual(self.report.counts.unstable, ["x"])
        self.assertRegex(self.report.counts.closing_line(), "^2 passed, 0 failed, .*, 1 unstable$")


class CommandTest(Place):
    """The command runs tests again where that is asked for, and says so."""

    def command(self, *arguments: str) -> int:
        """Its exit status."""
        durations = FakeDurations({})
        with (
            mock.patch.object(command, "choose", return_value=[fails_once()]),
            mock.patch.object(command, "Fleet", return_value=self.fleet),
            mock.patch.object(command, "Lock"),
            mock.patch.object(command, "Durations", return_value=durations),
            mock.patch.object(command, "Report", lambda: Report(self.said.append)),
            mock.patch.object(command, "write", self.said.append),
            mock.patch.object(durations, "save"),
        ):
            return command.main([*arguments, "--jobs", "1"])

    def test_people(self) -> None:
        """A failure is one for whoever runs the tests by hand."""
        self.assertEqual(self.command(), 1)
        self.assertEqual((FakeNodeSet.booted, self.listed()), (["test"], []))
        self.assertIn("FAILED: unlucky", self.said)

    def test_ci(self) -> None:
        """CI lists the test with its log, just before the totals."""
        self.assertEqual(self.command("--retry", "600"), 0)
        self.assertEqual(self.listed(), ["unlucky"])
        place = self.said.index("unstable: unlucky: build/logs/test-a.log")
        self.assertIn("    unlucky: late", self.said[place:])
        self.assertRegex(self.said[-1], "0 failed, 0 skipped, 1 unstable$")


class CiTest(unittest.TestCase):
    """Failures are forgiven in CI, and nowhere else."""

    def test_every_run(self) -> None:
        """CI runs no test on nodes without."""
        lines = (REPO / ".ci/run").read_text().splitlines()
        runs = [line for line in lines if re.search(r"^\s*part .* make (test|smoke)", line)]
        self.assertEqual(len(runs), 5)
        for line in runs:
            self.assertIn(" RETRY=", line)
