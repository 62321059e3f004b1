# SPDX-License-Identifier: GPL-2.0
"""What tests there are: every program and case, and the nodes that each needs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from . import bodies, iommu, topologies
from .bodies import Body
from .cases.registry import Case, name_of
from .topologies import Topology

# The module's own, where the kernel has KUnit.
UNIT_TESTS = "kunit"
PROGRAMS_WITH_PEER = (
    "uldma:uldma_peer",
    "uldma:uldma_peer_atomic",
    "uldma:uldma_peer_message",
    "uldma:uldma_peer_msg",
    "uldma:uldma_peer_optimistic",
    "uldma:uldma_peer_stamps",
)
# What runs wherever nodes are joined; the programs of both ends among them end in _peer, and in the
# others one process has both, or two devices.
CONNECTION_PROGRAM = re.compile(r"uldma:uldma_(conn_|(fail_nth_)?devices$)")
# Where allocations are made to fail, DMA-API debugging ends with them.
LAST_PROGRAMS = tuple(
    f"uldma:uldma_fail_nth{part}" for part in ("", "_objects", "_devices", "_exchange")
)

# What the debug kernel has no time for, unless it is asked for by name, and why.
PROGRAMS_OF_DEVICE = ("uldma:uldma_attack", "uldma:uldma_interleave", "uldma:uldma_width")
OF_DEVICE = "the kernel has no part in what the device makes of accesses in all their orders"
PROGRAMS_OF_BULK = (
    "uldma:uldma_conn_data",
    "uldma:uldma_conn_limits",
    "uldma:uldma_conn_peer",
    "uldma:uldma_exchange_many",
)
OF_BULK = "many bytes, or many connections, of what other programs do once"
OF_MANY_NODES = "two or more such kernels take minutes to boot"


class Order(IntEnum):
    """When a test runs, among those on the same nodes."""

    FIRST = 0
    ANY = 1
    # The nodes are of no more use afterwards.
    LAST = 2


@dataclass(frozen=True, eq=False)
class Test:
    """One program or case on nodes of one topology."""

    topology: Topology
    plain: str
    body: Body
    order: Order = Order.ANY
    # Why the debug kernel leaves it out.
    too_long: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.topology.full_name(self.plain)


def _too_long(topology: Topology, name: str = "") -> str:
    if topology in (topologies.IVSHMEM, topologies.THREE):
        return OF_MANY_NODES
    if name in PROGRAMS_OF_DEVICE:
        return OF_DEVICE
    return OF_BULK if name in PROGRAMS_OF_BULK else ""


def _program(topology: Topology, name: str) -> Test:
    order = Order.LAST if name in LAST_PROGRAMS else Order.ANY
    return Test(topology, name, bodies.program(topology, name), order, _too_long(topology, name))


def _program_with_peer(topology: Topology, name: str) -> Test:
    body = bodies.program_with_peer(topology, name)
    return Test(topology, name, body, too_long=_too_long(topology, name))


def _cases(topology: Topology, cases: Sequence[Case]) -> Iterator[Test]:
    for function in cases:
        yield Test(topology, name_of(function), bodies.case(function), too_long=_too_long(topology))


def _usual(programs: Sequence[str], connected: Sequence[str]) -> Iterator[Test]:
    """Every kselftest program, but for those of connections, which need both ends in one node."""
    for name in programs:
        if not CONNECTION_PROGRAM.match(name):
            yield _program(topologies.USUAL, name)
    for name in (*PROGRAMS_WITH_PEER, *connected):
        yield _program_with_peer(topologies.USUAL, name)


def _joined(
    topology: Topology, programs: Sequence[str], connected: Sequence[str]
) -> Iterator[Test]:
    """The programs about connections, on nodes that something else joins."""
    if topology is topologies.LOOPBACK:
        for name in filter(CONNECTION_PROGRAM.match, programs):
            yield _program(topology, name)
    if len(topology.config.backends) == 1:
        for name in connected:
            yield _program_with_peer(topology, name)


def _with_iommu(mode: str, programs: Sequence[str]) -> Iterator[Test]:
    """The programs that map memory for the device, with an IOMMU between the two."""
    topology = iommu.topology(mode)
    in_use = bodies.case(iommu.in_use(mode))
    yield Test(topology, "nodes:iommu.in_use", in_use, Order.FIRST)
    yield Test(topology, "nodes:iommu.rights", bodies.case(iommu.rights))
    yield Test(topology, "nodes:iommu.packets", bodies.case(iommu.packets))
    for name in programs:
        yield _program(topology, name)
    for name in PROGRAMS_WITH_PEER:
        yield _program_with_peer(topology, name)


def node_tests(
    programs: Sequence[str],
    connected: Sequence[str],
    cases: Mapping[str, Sequence[Case]],
    *,
    unit_tests: bool,
) -> list[Test]:
    """All tests that need nodes.

    The programs are those that kselftest's runner may start; the connected ones have one end on
    each node. Cases are by the name of their topology. Where the kernel has KUnit, it
    has the module's unit tests, too.
    """
    tests: list[Test] = []
    if unit_tests:
        tests.append(Test(topologies.USUAL, UNIT_TESTS, bodies.unit_tests))
    tests += _usual(programs, connected)
    for topology in (topologies.LOOPBACK, topologies.IVSHMEM, topologies.THREE):
        tests += _joined(topology, programs, connected)
    for topology in (topologies.USUAL, topologies.LOOPBACK, topologies.IVSHMEM, topologies.THREE):
        tests += _cases(topology, cases.get(topology.name, ()))
    for mode, wanted in iommu.MODES.items():
        tests += _with_iommu(mode, wanted)
    return tests
