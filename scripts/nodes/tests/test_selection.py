# SPDX-License-Identifier: GPL-2.0
"""Selecting tests by a pattern."""

import argparse
import unittest

from ..selection import expression, select
from .fakes import make_test

TESTS = (
    make_test("u:dma", ""),
    make_test("u:dma", "iommu"),
    make_test("u:conn", "iommu"),
    make_test("u:conn", "loopback"),
)


class SelectionTest(unittest.TestCase):
    """What ONLY= selects."""

    def select(self, pattern: str) -> set[str]:
        """The names of what is selected."""
        return {test.name for test in select(expression(pattern), TESTS)}

    def test_nothing_given(self) -> None:
        """Everything is selected."""
        self.assertEqual(self.select(""), {test.name for test in TESTS})

    def test_name(self) -> None:
        """A name selects the test on the usual nodes."""
        self.assertEqual(self.select("dma"), {"u:dma"})
        self.assertEqual(self.select("region"), set())

    def test_name_of_no_usual_test(self) -> None:
        """A name that the usual nodes do not have selects the test on all others."""
        self.assertEqual(self.select("conn"), {"iommu/u:conn", "loopback/u:conn"})

    def test_topology(self) -> None:
        """The topology selects its tests, with or without a name."""
        self.assertEqual(self.select("iommu"), {"iommu/u:dma", "iommu/u:conn"})
        self.assertEqual(self.select("iommu/.*dma"), {"iommu/u:dma"})
        self.assertEqual(self.select("iommu/.*region"), set())

    def test_no_expression(self) -> None:
        """What is no regular expression is refused with its cause."""
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "nothing to repeat"):
            expression("*dma")
