# SPDX-License-Identifier: GPL-2.0
"""Finding what tests have left on a node."""

import unittest
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import cast
from unittest import mock

from .. import leftovers
from ..agent import Result
from ..cluster import Cluster
from ..errors import Defect
from ..leftovers import LOCKS, PINS, USAGE, find, wait_unpinned
from ..node import Node

CLEAN = {
    PINS: "nr_foll_pin_acquired 7\nnr_foll_pin_released 7\n",
    LOCKS: "/proc/1/status:Name:\tagent\n/proc/1/status:VmLck:\t0 kB\n"
    "/proc/1/status:VmPin:\t0 kB\n/proc/2/status:Name:\tkthreadd\n",
    USAGE: "/sys/kernel/debug/uldma0/usage:open_files 0\n"
    "/sys/kernel/debug/uldma0/usage:pages 0 of 524288\n",
}


class FakeNode:
    """Answers what a node would."""

    def __init__(self, answers: dict[str, str]) -> None:
        self._answers = answers

    def run(self, command: str) -> Result:
        """Answer with an exit status."""
        return Result(command, 0, self._answers[command], "")

    def check(self, command: str) -> str:
        """Answer."""
        return self._answers[command]


def left(answers: dict[str, str]) -> list[str]:
    """What is found on a node that answers differently from a clean one."""
    return find(cast(Node, FakeNode(CLEAN | answers)))


class LeftoversTest(unittest.TestCase):
    """Each kind is found and named."""

    def test_clean(self) -> None:
        """Nothing is found where nothing is."""
        self.assertEqual(left({}), [])

    def test_pins(self) -> None:
        """Pages that stay pinned without a process."""
        found = left({PINS: "nr_foll_pin_acquired 9\nnr_foll_pin_released 7\n"})
        self.assertRegex(found[0], "^2 pages")

    def test_process(self) -> None:
        """A process with memory pinned."""
        found = left({LOCKS: "/proc/8/status:Name:\tholder\n/proc/8/status:VmPin:\t 64 kB\n"})
        self.assertEqual(found, ["process 8 (holder): VmPin 64 kB"])

    def test_usage(self) -> None:
        """A counter of the driver."""
        found = left({USAGE: "/sys/kernel/debug/uldma0/usage:regions 1 of 4095\n"})
        self.assertEqual(found, ["uldma0: regions 1 of 4095"])


class UnpinnedTest(unittest.TestCase):
    """The next test begins when the pins of the last one are gone."""

    def looks(self, counts: Iterable[int]) -> int:
        """How often is looked at a node with that many pins, one after the other."""
        left: Iterator[int] = iter(counts)
        looks = 0

        def check(_: str) -> str:
            nonlocal looks
            looks += 1
            return f"nr_foll_pin_acquired {next(left)}\nnr_foll_pin_released 0\n"

        cluster = SimpleNamespace(nodes={"a": SimpleNamespace(check=check)})
        wait_unpinned(cast(Cluster, cluster))
        return looks

    def test_gone(self) -> None:
        """What a work item still has to unpin is waited for."""
        self.assertEqual(self.looks([5, 3, 0]), 3)

    def test_kept(self) -> None:
        """Pins without an end are a failure of the test that left them."""
        with (
            mock.patch.object(leftovers, "SETTLE_TIMEOUT", 0.0),
            self.assertRaisesRegex(Defect, "5 pages stay pinned on node a"),
        ):
            self.looks([5, 5])
