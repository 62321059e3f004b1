# SPDX-License-Identifier: GPL-2.0
"""The order in which the soak test kills."""

import itertools
import re
import unittest
from collections import Counter

from ..paths import REPO
from ..soak import FAULTS, ROUND, ROUND_KILLS, Kind, plan


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

    def test_faults(self) -> None:
        """Devices fail in each of the ways in the end, and nothing else has a fault."""
        kills = list(itertools.islice(plan(3), 50 * ROUND_KILLS))
        faults = {kill.fault for kill in kills if kill.kind is Kind.DEVICE}
        self.assertEqual(faults, set(FAULTS))
        self.assertFalse({kill.fault for kill in kills if kill.kind is not Kind.DEVICE} - {""})

    def test_names(self) -> None:
        """What is said of a kill names the fault."""
        kills = itertools.islice(plan(3), ROUND_KILLS)
        for kill in kills:
            self.assertEqual("by" in str(kill).split(), kill.kind is Kind.DEVICE)

    def test_faults_of_the_model(self) -> None:
        """The device model knows these faults, and those that are left out change data or IDs."""
        source = (REPO / "tools/uldma/device/src/fault.rs").read_text()
        body = source.split("pub enum Fault {")[1].split("}")[0]
        names = re.findall(r"^    (\w+),$", body, re.MULTILINE)
        kinds = {re.sub(r"(?<!^)(?=[A-Z])", "-", name).lower() for name in names}
        self.assertEqual(kinds - set(FAULTS), {"corrupt", "trespass", "bad-id", "late"})
        self.assertLessEqual(set(FAULTS), kinds)
