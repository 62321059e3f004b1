# SPDX-License-Identifier: GPL-2.0
"""nodes test: host tests, then kselftest and our own cases on two nodes, one closing line."""

import argparse
import re
import time
from collections.abc import Sequence

from .. import cases, flavours, host_tests, iommu
from ..errors import NodesError
from ..flavours import Flavour
from ..kernel import DEBUG, SUFFIX
from ..node_tests import NodeTests
from ..paths import SELFTESTS
from ..tally import Tally

PROGRAMS_WITH_PEER = ("uldma:uldma_peer", "uldma:uldma_peer_atomic")
# What runs wherever nodes are joined; the programs of both ends among them end in _peer, and in the
# others one process has both.
CONNECTION_PROGRAM = re.compile(r"uldma:uldma_conn_")
# What the device makes of accesses in all their orders: the kernel has no part in these, so its
# checkers would only make them last minutes.
PROGRAMS_OF_DEVICE = ("uldma:uldma_attack", "uldma:uldma_interleave", "uldma:uldma_width")
# Many bytes, or many connections, of what the other programs about connections do once.
PROGRAMS_OF_BULK = ("uldma:uldma_conn_data", "uldma:uldma_conn_limits", "uldma:uldma_conn_peer")
# Where allocations are made to fail, DMA-API debugging ends with them.
LAST_PROGRAM = "uldma:uldma_fail_nth"


def programs() -> list[str]:
    """What kselftest's runner may start."""
    return (SELFTESTS / "kselftest-list.txt").read_text().split()


def connection_programs_with_peer() -> list[str]:
    """Programs about connections, one end on each node."""
    return sorted(f"uldma:{path.name}" for path in SELFTESTS.glob("uldma/uldma_conn*_peer"))


def leave_out(tally: Tally, only: re.Pattern[str], program: str, flavour: str = "") -> bool:
    """Whether the debug kernel has no time for a program, unless it is asked for; says so then."""
    left_out = DEBUG and program in PROGRAMS_OF_BULK and not only.pattern
    if left_out:
        why = "it is long, and others take the same paths; by name it runs here, too"
        tally.add_skip("/".join(filter(None, (flavour, program))), why)
    return left_out


def run_usual(tally: Tally, only: re.Pattern[str]) -> None:
    """Every kselftest program, then every case."""
    tests = NodeTests(tally, only, flavours.USUAL)
    try:
        if DEBUG:
            tests.unit_tests()
        for program in programs():
            if CONNECTION_PROGRAM.match(program):
                continue
            if DEBUG and program in PROGRAMS_OF_DEVICE and not only.pattern:
                tally.add_skip(program, "the kernel has no part in it; by name it runs here, too")
            elif program != LAST_PROGRAM:
                tests.program(program)
        for program in (*PROGRAMS_WITH_PEER, *connection_programs_with_peer()):
            if not leave_out(tally, only, program):
                tests.program_with_peer(program)
        tests.cases()
        if LAST_PROGRAM in programs():
            tests.program(LAST_PROGRAM)
        tests.finish()
    finally:
        tests.stop()


def run_iommu(tally: Tally, only: re.Pattern[str]) -> None:
    """The programs that map memory for the device, with an IOMMU between the two."""
    for mode, wanted in iommu.MODES.items():
        tests = NodeTests(tally, only, iommu.flavour(mode), iommu.SLOWNESS)
        try:
            tests.case("nodes:iommu.in_use", iommu.in_use(mode))
            for program in wanted:
                tests.program(program)
            for program in PROGRAMS_WITH_PEER:
                tests.program_with_peer(program)
            tests.finish()
        finally:
            tests.stop()


def run_joined(tally: Tally, only: re.Pattern[str], flavour: Flavour) -> None:
    """The programs about connections, and the cases, on nodes that something else joins."""
    tests = NodeTests(tally, only, flavour)
    try:
        if flavour is flavours.LOOPBACK:
            for program in filter(CONNECTION_PROGRAM.match, programs()):
                if not leave_out(tally, only, program, flavour.name):
                    tests.program(program)
        if len(flavour.config.backends) == 1:
            for program in connection_programs_with_peer():
                if not leave_out(tally, only, program, flavour.name):
                    tests.program_with_peer(program)
        tests.cases()
        tests.finish()
    finally:
        tests.stop()


def run_nodes(tally: Tally, only: re.Pattern[str]) -> None:
    """All tests that need nodes."""
    cases.load()
    run_usual(tally, only)
    for flavour in (flavours.LOOPBACK, flavours.IVSHMEM, flavours.THREE):
        if DEBUG and flavour is not flavours.LOOPBACK and not only.pattern:
            why = "two or more such kernels take minutes to boot; by name it runs here, too"
            tally.add_skip(flavour.name, why)
        else:
            run_joined(tally, only, flavour)
    run_iommu(tally, only)


def main(arguments: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(prog=f"make test{SUFFIX}")
    parser.add_argument("--host", action="store_true", help="only the host's tests")
    parser.add_argument("--nodes", action="store_true", help="only the nodes' tests")
    parser.add_argument("--only", default="", metavar="REGEX", help="only node tests of this name")
    options = parser.parse_args(arguments)
    tally = Tally()
    began = time.monotonic()
    if not options.nodes and not options.only:
        host_tests.run(tally)
    if not options.host:
        try:
            run_nodes(tally, re.compile(options.only))
        except (NodesError, OSError) as error:
            print(error, flush=True)
            tally.add_fail("the nodes did not come up")
    for name, why in tally.skipped:
        print(f"skipped: {name}: {why}")
    for name in tally.failed:
        print(f"FAILED: {name}")
    if tally.failed:
        print(f"The logs are in build/logs; one test again: make test{SUFFIX} ONLY=name")
    print(f"nodes: {tally.total} tests in {time.monotonic() - began:.0f} s")
    print(tally.closing_line(), flush=True)
    return 1 if tally.failed or not tally.total else 0
