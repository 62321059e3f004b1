# SPDX-License-Identifier: GPL-2.0
"""What tests there are."""

import unittest
from collections import Counter

from .. import topologies
from ..cluster import Cluster
from ..plan import LAST_PROGRAMS, OF_BULK, OF_MANY_NODES, Order, Test, node_tests

PROGRAMS = ("uldma:uldma_dma", "uldma:uldma_conn_data", *LAST_PROGRAMS)
CONNECTED = ("uldma:uldma_conn_peer",)


def example(_: Cluster) -> None:
    """A case."""


CASE = "nodes:test_plan.example"


class PlanTest(unittest.TestCase):
    """Each test is there once on all nodes that it is for."""

    def plan(self, unit_tests: bool = False) -> dict[str, Test]:
        """The tests by name."""
        cases = {topology.name: [example] for topology in (topologies.USUAL, topologies.THREE)}
        tests = node_tests(PROGRAMS, CONNECTED, cases, unit_tests=unit_tests)
        [(_, most)] = Counter(test.name for test in tests).most_common(1)
        self.assertEqual(most, 1)
        return {test.name: test for test in tests}

    def test_topologys(self) -> None:
        """Programs of connections run where something joins the nodes."""
        names = self.plan().keys()
        for name in (
            "uldma:uldma_dma",
            "uldma:uldma_peer",
            "uldma:uldma_conn_peer",
            "loopback/uldma:uldma_conn_data",
            "loopback/uldma:uldma_conn_peer",
            "ivshmem/uldma:uldma_conn_peer",
            "iommu-lazy/nodes:iommu.in_use",
            CASE,
            f"three/{CASE}",
        ):
            self.assertIn(name, names)
        for name in ("uldma:uldma_conn_data", "three/uldma:uldma_conn_peer", f"loopback/{CASE}"):
            self.assertNotIn(name, names)

    def test_turns(self) -> None:
        """What others rest on is first, what ends the nodes last."""
        plan = self.plan()
        self.assertIs(plan["iommu-lazy/nodes:iommu.in_use"].order, Order.FIRST)
        for name in LAST_PROGRAMS:
            found = [test for test in plan.values() if test.plain == name]
            self.assertTrue(found, name)
            self.assertEqual({test.order for test in found}, {Order.LAST}, name)
        self.assertIs(plan["uldma:uldma_dma"].order, Order.ANY)

    def test_unit_tests(self) -> None:
        """They are where the kernel has them."""
        self.assertIn("kunit", self.plan(unit_tests=True))
        self.assertNotIn("kunit", self.plan())

    def test_too_long(self) -> None:
        """What the debug kernel leaves out has a reason."""
        plan = self.plan()
        self.assertEqual(plan["loopback/uldma:uldma_conn_data"].too_long, OF_BULK)
        self.assertEqual(plan[f"three/{CASE}"].too_long, OF_MANY_NODES)
        self.assertEqual(plan["ivshmem/uldma:uldma_conn_peer"].too_long, OF_MANY_NODES)
        self.assertEqual(plan["uldma:uldma_dma"].too_long, "")
