# SPDX-License-Identifier: GPL-2.0
"""What `make run` says when the file has crossed."""

import re
import unittest
from typing import Any
from unittest import mock

from ..agent import Result
from ..commands import run
from ..commands.run import NEXT, Transfer, figures, of_first_touch, transfer
from ..paths import REPO


def make_transfer(method: str, **sent: Any) -> Transfer:
    """A transfer of a megabyte."""
    return Transfer(method, {"bytes": 1_000_000, "seconds": 0.001, **sent}, {})


class RunTest(unittest.TestCase):
    """The table, what is beside it, and what comes next."""

    def test_first_touch(self) -> None:
        """The table has the time with a device that knows the memory; the other is told below."""
        warm = make_transfer("extended-shadow", first_seconds=0.005)
        self.assertIn("1.00", warm.row(True))
        said = of_first_touch([warm, make_transfer("tcp")])
        self.assertIn("extended-shadow 5.00 ms", said)
        self.assertNotIn("tcp", said)
        names = [
            figure.name
            for figure in figures([warm, make_transfer("tcp")], {"p50_ns": 2, "p99_ns": 3})
        ]
        self.assertIn("file.extended-shadow.first", names)
        self.assertNotIn("file.tcp.first", names)

    def test_warm(self) -> None:
        """What the device moves is moved twice; what processes copy is not."""
        for method in run.METHODS:
            pair = mock.Mock()
            pair.a.run.return_value = Result("", 0, '{"bytes": 1}', "")
            pair.b.spawn.return_value.wait.return_value = Result("", 0, "{}", "")
            pair.b.check.return_value = "digest  /tmp/received"
            transfer(pair, method)
            [command, _] = pair.a.run.call_args.args
            self.assertEqual("--warm" in command.split(), method in run.BY_DMA)

    def test_next(self) -> None:
        """What a person is told to type is there."""
        goals = re.findall(r"^([a-z-]+):.*\t##", (REPO / "Makefile").read_text(), re.MULTILINE)
        told = re.findall(r"make ([a-z-]+)", NEXT)
        for goal in ("shell", "test", "bench", "docs"):
            self.assertIn(goal, told)
        self.assertLessEqual(set(told), set(goals))
