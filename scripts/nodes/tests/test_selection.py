# SPDX-License-Identifier: GPL-2.0
"""Selecting tests by a pattern."""

import re
import unittest

from ..selection import selects
from .fakes import make_test


class SelectionTest(unittest.TestCase):
    """What ONLY= selects."""

    def select(self, pattern: str, topology: str) -> bool:
        """Whether the test "u:dma" is selected."""
        return selects(re.compile(pattern), make_test("u:dma", topology))

    def test_nothing_given(self) -> None:
        """Everything is selected."""
        self.assertTrue(self.select("", ""))
        self.assertTrue(self.select("", "iommu"))

    def test_name(self) -> None:
        """A name selects the test on the usual nodes."""
        self.assertTrue(self.select("dma", ""))
        self.assertFalse(self.select("dma", "iommu"))
        self.assertFalse(self.select("region", ""))

    def test_topology(self) -> None:
        """The topology must be named, with or without the name."""
        self.assertFalse(self.select("iommu", ""))
        self.assertTrue(self.select("iommu", "iommu"))
        self.assertTrue(self.select("iommu/.*dma", "iommu"))
        self.assertFalse(self.select("iommu/.*region", "iommu"))
