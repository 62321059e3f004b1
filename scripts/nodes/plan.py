# SPDX-License-Identifier: GPL-2.0
"""What tests there are: every program and case, and the nodes that each needs."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from . import bodies, flavours, iommu
from .bodies import Body
from .cases.registry import Case, name_of
from .flavours import Flavour

PROGRAMS_WITH_PEER = ("uldma:uldma_peer", "uldma:uldma_peer_atomic")
# What runs wherever nodes are joined; the programs of both ends among them end in _peer, and in the
# others one process has both.
CONNECTION_PROGRAM = re.compile(r"uldma:uldma_conn_")
# Where allocations are made to fail, DMA-API debugging ends with them.
LAST_PROGRAM = "uldma:uldma_fail_nth"

# What the debug kernel has no time for, unless it is asked for by name, and why.
PROGRAMS_OF_DEVICE = ("uldma:uldma_attack", "uldma:uldma_interleave", "uldma:uldma_width")
OF_DEVICE = "the kernel has no part in what the device makes of accesses in all their orders"
PROGRAMS_OF_BULK = ("uldma:uldma_conn_data", "uldma:uldma_conn_limits", "uldma:uldma_conn_peer")
OF_BULK = "many bytes, or many connections, of what other programs do once"
OF_MANY_NODES = "two or more such kernels take minutes to boot"


class Turn(IntEnum):
    """When a test runs, among those on the same nodes."""

    FIRST = 0
    ANY = 1
    # The nodes are of no more use afterwards.
    LAST = 2


@dataclass(frozen=True, eq=False)
class Test:
    """One program or case on nodes of one flavour."""

    flavour: Flavour
    plain: str
    body: Body
    turn: Turn = Turn.ANY
    # Why the debug kernel leaves it out.
    too_long: str = ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.flavour.full_name(self.plain)


def _too_long(flavour: Flavour, name: str = "") -> str:
    if flavour in (flavours.IVSHMEM, flavours.THREE):
        return OF_MANY_NODES
    if name in PROGRAMS_OF_DEVICE:
        return OF_DEVICE
    return OF_BULK if name in PROGRAMS_OF_BULK else ""


def _program(flavour: Flavour, name: str) -> Test:
    turn = Turn.LAST if name == LAST_PROGRAM else Turn.ANY
    return Test(flavour, name, bodies.program(flavour, name), turn, _too_long(flavour, name))


def _program_with_peer(flavour: Flavour, name: str) -> Test:
    body = bodies.program_with_peer(flavour, name)
    return Test(flavour, name, body, too_long=_too_long(flavour, name))


def _cases(flavour: Flavour, cases: Sequence[Case]) -> Iterator[Test]:
    for function in cases:
        yield Test(flavour, name_of(function), bodies.case(function), too_long=_too_long(flavour))


def _usual(programs: Sequence[str], connected: Sequence[str]) -> Iterator[Test]:
    """Every kselftest program, but for those of connections, which need both ends in one node."""
    for name in programs:
        if not CONNECTION_PROGRAM.match(name):
            yield _program(flavours.USUAL, name)
    for name in (*PROGRAMS_WITH_PEER, *connected):
        yield _program_with_peer(flavours.USUAL, name)


def _joined(flavour: Flavour, programs: Sequence[str], connected: Sequence[str]) -> Iterator[Test]:
    """The programs about connections, on nodes that something else joins."""
    if flavour is flavours.LOOPBACK:
        for name in filter(CONNECTION_PROGRAM.match, programs):
            yield _program(flavour, name)
    if len(flavour.config.backends) == 1:
        for name in connected:
            yield _program_with_peer(flavour, name)


def _with_iommu(mode: str, programs: Sequence[str]) -> Iterator[Test]:
    """The programs that map memory for the device, with an IOMMU between the two."""
    flavour = iommu.flavour(mode)
    in_use = bodies.case(iommu.in_use(mode))
    yield Test(flavour, "nodes:iommu.in_use", in_use, Turn.FIRST)
    yield Test(flavour, "nodes:iommu.rights", bodies.case(iommu.rights))
    for name in programs:
        yield _program(flavour, name)
    for name in PROGRAMS_WITH_PEER:
        yield _program_with_peer(flavour, name)


def node_tests(
    programs: Sequence[str],
    connected: Sequence[str],
    cases: Mapping[str, Sequence[Case]],
    *,
    unit_tests: bool,
) -> list[Test]:
    """All tests that need nodes.

    The programs are those that kselftest's runner may start; the connected ones have one end on
    each node. Cases are by the name of their flavour. Where the kernel has KUnit, it
    has the module's unit tests, too.
    """
    tests: list[Test] = []
    if unit_tests:
        tests.append(Test(flavours.USUAL, "kunit", bodies.unit_tests))
    tests += _usual(programs, connected)
    for flavour in (flavours.LOOPBACK, flavours.IVSHMEM, flavours.THREE):
        tests += _joined(flavour, programs, connected)
    for flavour in (flavours.USUAL, flavours.LOOPBACK, flavours.IVSHMEM, flavours.THREE):
        tests += _cases(flavour, cases.get(flavour.name, ()))
    for mode, wanted in iommu.MODES.items():
        tests += _with_iommu(mode, wanted)
    return tests
