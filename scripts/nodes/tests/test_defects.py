# SPDX-License-Identifier: GPL-2.0
"""Failures that count always: which there are, and that no other failure hides them."""

import unittest
from typing import cast
from unittest import mock

from ..cluster import Cluster
from ..errors import Defect, KernelReport, NodesError, TimedOut, is_defect
from ..kernel_log import SerialLog
from ..node import Node
from ..node_set import NodeSet
from ..outcome import Outcome
from .fakes import make_topology, passes


class FakeNode:
    """A node that is checked and ends without a process."""

    def __init__(self, error: Exception | None = None) -> None:
        self.log = mock.Mock(spec=SerialLog)
        self.check_log = mock.Mock(side_effect=error)

    def stop(self) -> None:
        """Nothing runs."""


class FakeCluster(Cluster):
    """Nodes that are up at once."""

    def _start(self) -> None:
        """Nothing runs."""


def cluster_of(**nodes: FakeNode) -> Cluster:
    """A cluster that is up."""
    cluster = FakeCluster("x", names="".join(nodes))
    cluster.nodes = {name: cast(Node, node) for name, node in nodes.items()}
    return cluster


class ClusterTest(unittest.TestCase):
    """A report is told, whatever else is wrong."""

    def test_report_comes_first(self) -> None:
        """A node that does not answer hides no report of the other one."""
        cluster = cluster_of(a=FakeNode(TimedOut("late")), b=FakeNode(KernelReport("splat")))
        self.assertRaisesRegex(KernelReport, "splat", cluster.check_logs)

    def test_server(self) -> None:
        """A server that has ended is a defect, beside a node that does not answer for it."""
        cluster = cluster_of(a=FakeNode(TimedOut("late")))
        cluster.device = mock.Mock()
        cluster.device.check.side_effect = Defect("it has ended")
        self.assertRaisesRegex(Defect, "it has ended", cluster.check_logs)

    def test_failure(self) -> None:
        """Logs that a failure kept from being checked are checked at the end; it is told, too."""
        node = FakeNode()
        node.log.check.side_effect = KernelReport("splat")
        with self.assertRaisesRegex(KernelReport, "late\nsplat"), cluster_of(a=node) as cluster:
            cluster.check_logs()
            raise TimedOut("late")

    def test_success(self) -> None:
        """What ends well has checked its logs itself; what was on purpose is not found again."""
        node = FakeNode()
        node.log.check.side_effect = KernelReport("splat")
        with cluster_of(a=node):
            pass


class NodeSetTest(unittest.TestCase):
    """What becomes of a test's errors."""

    def outcome(self, error: Exception, *, of_body: bool) -> Outcome:
        """What is said of a test with an error, its own or one of what is done after it."""

        def fails(_: Cluster, __: Outcome) -> None:
            raise error

        node_set = NodeSet(make_topology(), 1)
        if of_body:
            return node_set.run("t", fails)
        with mock.patch.object(node_set._nodes, "check_logs", side_effect=error):
            return node_set.run("t", passes)

    def test_defects(self) -> None:
        """A report is one, by the test and after it; that a test fails is none."""
        for error, defect in ((KernelReport("splat"), True), (NodesError("late"), False)):
            for of_body in (True, False):
                with self.subTest(error=error, of_body=of_body):
                    found = self.outcome(error, of_body=of_body)
                    self.assertEqual((len(found.counts.failed), found.defect), (1, defect))

    def test_pins(self) -> None:
        """Pins that stay are one."""
        node_set = NodeSet(make_topology(), 1)
        with mock.patch("nodes.leftovers.wait_unpinned", side_effect=Defect("pinned")):
            self.assertTrue(node_set.run("t", passes).defect)

    def test_hidden(self) -> None:
        """A report is found behind what failed because of it, or while a test was cleaned up."""
        try:
            try:
                raise KernelReport("splat")
            finally:
                raise NodesError("the driver cannot be bound")
        except NodesError as error:
            self.assertTrue(is_defect(error))
        try:
            raise NodesError("more") from KernelReport("splat")
        except NodesError as error:
            self.assertTrue(self.outcome(error, of_body=True).defect)
        self.assertTrue(self.outcome(ValueError(), of_body=True).counts.failed)
        self.assertFalse(self.outcome(ValueError(), of_body=True).defect)
