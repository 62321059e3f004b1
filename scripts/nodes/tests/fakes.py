# SPDX-License-Identifier: GPL-2.0
"""Tests and durations that take no time, and the tests that would be run."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from .. import cases, touched
from ..bodies import Body
from ..cases.registry import CASES
from ..cluster import Cluster
from ..durations import Durations
from ..errors import NodesError
from ..node_set import NodeSet
from ..outcome import Outcome
from ..paths import REPO
from ..plan import CONNECTION_PROGRAM, Order, Test, node_tests
from ..qemu import Config
from ..sources import Selftests
from ..topologies import Topology

BOOT = 10.0


def passes(_: Cluster, outcome: Outcome) -> None:
    """The body of a test with one result."""
    outcome.counts.add_pass()


def body_of(*errors: Exception | None) -> Body:
    """The body of a test that ends in one way after the other, and in the last one from then on."""
    ends = iter(errors)
    last: list[Exception | None] = [None]

    def body(_: Cluster, outcome: Outcome) -> None:
        last[0] = next(ends, last[0])
        if last[0]:
            raise last[0]
        outcome.counts.add_pass()

    return body


def make_topology(name: str = "") -> Topology:
    """A topology of nodes that no test boots."""
    return Topology(name, Config())


def make_test(plain: str, topology: str = "", order: Order = Order.ANY) -> Test:
    """A test that passes."""
    return Test(make_topology(topology), plain, passes, order)


class FakeNodeSet(NodeSet):
    """Nodes that are up at once; those of the topology "broken" never are."""

    booted: ClassVar[list[str]] = []

    def boot(self) -> None:
        """Count the boot."""
        if self._topology.name == "broken":
            raise NodesError("no such nodes")
        self.booted.append(self._nodes.scenario)


class FakeDurations(Durations):
    """What takes how long by its name; a boot always takes the same."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__(Path(tempfile.gettempdir()) / "no-durations.json")
        self._known = dict(seconds)

    def of_boot(self, topology: Topology) -> float:
        """All boots are alike."""
        return BOOT if topology.nodes else 0.0


def planned_tests() -> list[Test]:
    """The node tests of this tree, from the sources alone."""
    cases.load()
    selftests = Selftests.read(REPO / touched.SELFTESTS)
    programs = [f"uldma:{name}" for name in selftests.runnable]
    extended = [f"uldma:{name}" for name in selftests.extended]
    connected = list(filter(CONNECTION_PROGRAM.match, extended))
    return node_tests(programs, connected, CASES, unit_tests=True)
