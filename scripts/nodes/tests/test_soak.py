# SPDX-License-Identifier: GPL-2.0
"""The order in which the soak test kills."""

import itertools
import unittest
from collections import Counter

from ..soak import ROUND, ROUND_KILLS, plan


class PlanTest(unittest.TestCase):
    """Kills at random, and yet known."""

    def test_seed(self) -> None:
        """The seed tells all of the order, and another seed tells another."""
        first, again, other = (list(itertools.islice(plan(seed), 60)) for seed in (7, 7, 8))
        self.assertEqual(first, again)
        self.assertNotEqual(first, other)

    def test_round(self) -> None:
        """Every round has each kind as often as it should, at both ends."""
        kills = list(itertools.islice(plan(1), 3 * ROUND_KILLS))
        for start in range(0, len(kills), ROUND_KILLS):
            part = kills[start : start + ROUND_KILLS]
            self.assertEqual(Counter(kill.kind for kill in part), Counter(ROUND))
        self.assertEqual({kill.victim for kill in kills}, {0, 1})
