# SPDX-License-Identifier: GPL-2.0
"""Looking again and again, on a clock that only pauses move."""

import functools
import unittest
from unittest import mock

from .. import polling
from ..errors import TimedOut

# What a look takes.
LOOK = 0.01


class PollingTest(unittest.TestCase):
    """When it is looked, and when it is given up."""

    def setUp(self) -> None:
        """Start the clock anywhere."""
        self.now = 1000.0
        self.looks: list[float] = []
        clock = mock.Mock(monotonic=lambda: self.now, sleep=self.sleep)
        patch = mock.patch.object(polling, "time", clock)
        patch.start()
        self.addCleanup(patch.stop)

    def sleep(self, seconds: float) -> None:
        """Pass the time."""
        self.assertGreater(seconds, 0)
        self.now += seconds

    def look(self, when: float) -> bool:
        """Whether it has come: it comes at that time."""
        self.looks.append(self.now)
        self.now += LOOK
        return self.now - 1000 >= when

    def test_soon(self) -> None:
        """What comes is seen a fixed part later at most, on any scale, by few looks."""
        for when in (0.02, 1.0, 50.0):
            self.now = 1000.0
            self.looks.clear()
            took = polling.wait_until(functools.partial(self.look, when), 100, "it")
            self.assertLessEqual(took, when * (1 + 2 * polling.PART) + 2 * LOOK)
            self.assertLess(len(self.looks), 200)

    def test_late(self) -> None:
        """What never comes ends the waiting, and is named."""
        with self.assertRaisesRegex(TimedOut, "the moon"):
            polling.wait_until(lambda: self.look(float("inf")), 10, "the moon")
