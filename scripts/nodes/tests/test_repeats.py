# SPDX-License-Identifier: GPL-2.0
"""Running each test several times, and with a load beside it."""

import os
import signal
import unittest
from pathlib import Path
from unittest import mock

from ..cases.registry import Skip
from ..commands import test as command
from ..errors import NodesError
from ..outcome import Report
from ..plan import Test
from ..polling import wait_until
from ..repeats import Repeats
from ..starvation import PER_CORE, Starvation
from ..workers import Fleet
from .fakes import FakeDurations, FakeNodeSet, body_of, make_test, make_topology

LATE = NodesError("late")


class RepeatsTest(unittest.TestCase):
    """A test is one result, whatever the number of its runs."""

    def setUp(self) -> None:
        """Nothing was said."""
        self.said: list[str] = []

    def command(self, *arguments: str, tests: list[Test]) -> int:
        """Its exit status."""
        durations = FakeDurations({})
        with (
            mock.patch.object(command, "choose", return_value=tests),
            mock.patch.object(command, "Fleet", return_value=Fleet(FakeNodeSet)),
            mock.patch.object(command, "Lock"),
            mock.patch.object(command, "Durations", return_value=durations),
            mock.patch.object(command, "Report", lambda: Report(self.said.append)),
            mock.patch.object(command, "Repeats", lambda: Repeats(self.said.append)),
            mock.patch.object(command, "write", self.said.append),
            mock.patch.object(durations, "save"),
        ):
            return command.main([*arguments, "--jobs", "1"])

    def test_passes(self) -> None:
        """All runs pass: that is one result, and how many there were is said."""
        self.assertEqual(self.command("--repeat", "3", tests=[make_test("good")]), 0)
        self.assertIn("good: 3 of 3 passed", self.said)
        # The other one is about what is left on the nodes.
        self.assertEqual(self.said[-1], "2 passed, 0 failed, 0 skipped")

    def test_fails_now_and_then(self) -> None:
        """One run of many fails: so does the test, with its cause and how many did not."""
        test = Test(make_topology(), "bad", body_of(None, LATE, None))
        self.assertEqual(self.command("--repeat", "4", tests=[test]), 1)
        self.assertIn("bad: 3 of 4 passed", self.said)
        place = self.said.index("FAILED: bad")
        self.assertEqual(self.said[place + 1 :][:2], ["    bad: late", "    3 of 4 passed"])
        self.assertRegex(self.said[-1], "1 failed")

    def test_skips(self) -> None:
        """A test that never runs is skipped, with its reason; some that do not are no failure."""
        never = Test(make_topology(), "never", body_of(Skip("no memory")))
        some = Test(make_topology(), "some", body_of(Skip("no memory"), None))
        with mock.patch.object(FakeNodeSet, "finish", return_value=iter(())):
            self.assertEqual(self.command("--repeat", "2", tests=[never, some]), 0)
        self.assertIn("skipped: never: no memory", self.said)
        self.assertIn("some: 1 of 2 passed", self.said)
        self.assertEqual(self.said[-1], "1 passed, 0 failed, 1 skipped")

    def test_once(self) -> None:
        """Without the option each test runs once, and each of its results counts."""
        self.assertEqual(self.command(tests=[make_test("good")]), 0)
        self.assertFalse(any("of 1 passed" in line for line in self.said))

    def test_nothing_is_forgiven(self) -> None:
        """Failures that are looked for are not excused."""
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
            self.command("--repeat", "2", "--retry", "600", tests=[])
        with mock.patch("sys.stderr"), self.assertRaises(SystemExit):
            self.command("--repeat", "0", tests=[])

    def test_starved(self) -> None:
        """The load is there while the tests run, and only where it was asked for."""
        load = mock.MagicMock()
        with mock.patch.object(command, "Starvation", load):
            self.command(tests=[make_test("good")])
            load.assert_not_called()
            self.command("--starved", tests=[make_test("good")])
        load.assert_called_once_with(command.cores())
        load.return_value.__exit__.assert_called_once()


class StarvationTest(unittest.TestCase):
    """The load lasts as long as the tests, and no longer."""

    def running(self, load: Starvation) -> list[bool]:
        """Which of its processes run."""
        return [process.poll() is None for process in load._processes]

    def test_load(self) -> None:
        """Each processor has some of it, and it uses them."""
        with Starvation(2) as load:
            self.assertEqual(self.running(load), [True] * 2 * PER_CORE)
            stat = Path(f"/proc/{load._processes[0].pid}/stat")

            def is_busy() -> bool:
                return stat.read_text().rpartition(")")[2].split()[11] != "0"

            wait_until(is_busy, 60, "the load uses a processor")
        self.assertEqual(self.running(load), [False] * 2 * PER_CORE)

    def test_failure(self) -> None:
        """It ends where the tests fail, too."""
        load = Starvation(1)
        with self.assertRaises(ZeroDivisionError), load:
            raise ZeroDivisionError
        self.assertEqual(self.running(load), [False] * PER_CORE)

    def test_ends_early(self) -> None:
        """Tests that had no load beside them have not shown what they should."""
        with self.assertRaisesRegex(NodesError, "load has ended"), Starvation(1) as load:
            os.kill(load._processes[0].pid, signal.SIGKILL)
            load._processes[0].wait()
