# SPDX-License-Identifier: GPL-2.0
"""What a person sees of registered memory, by the command line."""

import itertools
import json
from typing import Any

from ..cluster import Cluster
from ..kernel import scaled
from ..ktap import TestCounts
from .registry import case, expect

KINDS = ("private", "shared", "memfd", "huge", "sysv")
MODES = ("pinned", "mlock")
BYTES = 2 << 20
PAGE = 4096
LIBRARY_TESTS = 10
LIBRARY_TIMEOUT = 60.0


def register(pair: Cluster, options: str) -> dict[str, Any]:
    """The report of ``uldma register`` on node A."""
    report: dict[str, Any] = json.loads(
        pair.a.check(f"uldma register --json --size {BYTES} {options}")
    )
    return report


@case
def every_kind_in_every_mode(pair: Cluster) -> None:
    """Charged once however often registered, in one area, and gone afterwards."""
    for kind in KINDS:
        for mode in MODES:
            report = register(pair, f"--kind {kind} --mode {mode} --times 3")
            what = f"{kind}, {mode}: {report}"
            expect(len(report["registrations"]) == 3, what)
            expect(report["before"]["charge"] == BYTES, what)
            expect(report["registered"]["locked"] == BYTES, what)
            expect(report["registered"]["areas"] == 1, what)
            expect(report["unregistered"]["locked"] == 0, what)


@case
def lost_memory_is_told(pair: Cluster) -> None:
    """Unmapping makes all of a region stale, and the event says so."""
    for kind in KINDS:
        report = register(pair, f"--kind {kind} --then unmap")
        stale = report["went_stale"]
        expect(stale["event_bytes"] == stale["region_bytes"] == BYTES, f"{kind}: {report}")


@case
def optimistic_memory_is_free(pair: Cluster) -> None:
    """It is charged to no one, and locked nowhere."""
    ways = ("", "=look-up", "=page-in")
    for kind, way in itertools.product(KINDS, ways):
        report = register(pair, f"--kind {kind} --optimistic{way}")
        what = f"{kind}{way}: {report}"
        expect(report["mode"] == "optimistic", what)
        expect(report["before"]["charge"] == 0, what)
        expect(report["registered"]["locked"] == report["region"]["areas"] == 0, what)
        expect(report["region"]["pages"] * PAGE >= BYTES, what)


@case
def blocks_cover_the_region(pair: Cluster) -> None:
    """Bus addresses are there for all of the region, and only for the administrator."""
    report = register(pair, "--blocks")
    expect(sum(block["bytes"] for block in report["blocks"]) == BYTES, f"{report}")


@case
def cached_pins_are_found(pair: Cluster) -> None:
    """With the cache, memory that was unregistered is locked still, and registering it is a hit."""
    report = register(pair, "--cache")
    expect(report["unregistered"]["cached"] == BYTES, f"{report}")
    expect(report["again"] is not None, f"{report}")
    state = json.loads(pair.a.check("uldma lmm --json"))
    expect(state["locked"] == 0, f"the process is gone, its memory is not: {state}")


@case
def the_library(pair: Cluster) -> None:
    """The tests of the library and of the papers' modes that need a device."""
    output = pair.a.check("/tests/locked_memory", scaled(LIBRARY_TIMEOUT))
    counts = TestCounts()
    counts.add_libtest(output)
    expect(counts.passed == counts.total == LIBRARY_TESTS, output)
