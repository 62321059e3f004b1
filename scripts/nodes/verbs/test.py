# SPDX-License-Identifier: GPL-2.0
"""nodes test: host tests, then kselftest and our own cases on two nodes, one closing line."""

import argparse
import re
import time
from collections.abc import Sequence

from .. import cases, host_tests, iommu
from ..cases.registry import CASES, name_of
from ..errors import NodesError
from ..kernel import DEBUG, SUFFIX
from ..node_tests import NodeTests
from ..paths import SELFTESTS
from ..qemu import Config
from ..selection import Selection
from ..tally import Tally

PROGRAMS_WITH_PEER = ("uldma:uldma_peer", "uldma:uldma_peer_atomic")
# What the device makes of accesses in all their orders: the kernel has no part in these, so its
# checkers would only make them last minutes.
PROGRAMS_OF_DEVICE = ("uldma:uldma_attack", "uldma:uldma_interleave", "uldma:uldma_width")
# Where allocations are made to fail, DMA-API debugging ends with them.
LAST_PROGRAM = "uldma:uldma_fail_nth"


def run_nodes(tally: Tally, only: re.Pattern[str]) -> None:
    """Every kselftest program, then every case."""
    cases.load()
    tests = NodeTests(tally, Selection(only), Config(debug=True))
    programs = (SELFTESTS / "kselftest-list.txt").read_text().split()
    try:
        if DEBUG:
            tests.unit_tests()
        for program in programs:
            if DEBUG and program in PROGRAMS_OF_DEVICE and not only.pattern:
                tally.add_skip(program, "the kernel has no part in it; by name it runs here, too")
            elif program != LAST_PROGRAM:
                tests.program(program)
        for program in PROGRAMS_WITH_PEER:
            tests.program_with_peer(program)
        for function in CASES:
            tests.case(name_of(function), function)
        if LAST_PROGRAM in programs:
            tests.program(LAST_PROGRAM)
        tests.finish()
    finally:
        tests.stop()


def run_iommu(tally: Tally, only: re.Pattern[str]) -> None:
    """The programs that map memory for the device, with an IOMMU between the two."""
    for mode, programs in iommu.MODES.items():
        tests = NodeTests(tally, Selection(only, f"iommu-{mode}"), iommu.config(mode))
        try:
            tests.case("nodes:iommu.in_use", iommu.in_use(mode))
            for program in programs:
                tests.program(program)
            for program in PROGRAMS_WITH_PEER:
                tests.program_with_peer(program)
            tests.finish()
        finally:
            tests.stop()


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
            run_iommu(tally, re.compile(options.only))
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
