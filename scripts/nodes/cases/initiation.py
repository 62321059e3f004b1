# SPDX-License-Identifier: GPL-2.0
"""Initiation methods by which processes can misuse others, which the module has to allow."""

from .. import probes, touches
from ..cluster import Cluster
from ..kernel import scaled
from ..ktap import TestCounts
from ..module import reload
from .registry import case, expect

# What is skipped without the parameter, and says so.
REASON = "needs a module with insecure_methods=1"
INSECURE = ("pal", "shrimp_2", "flash_single", "repeated_3", "repeated_4")
# What only these methods have is run; the rest runs without the parameter.
PROGRAMS = (
    "uldma_attack -f attack",
    " ".join(["uldma_method", *(f"-v {method}" for method in INSECURE)]),
)
TIMEOUT = 240.0
SHARERS_TESTS = 2
SHARERS_TIMEOUT = 60.0
PROBE_TIMEOUT = 120.0


@case
def insecure_methods(pair: Cluster) -> None:
    """With the parameter the attacks succeed that the papers tell of; what is secure stays so."""
    reload(pair.a, "insecure_methods=1")
    try:
        for program in PROGRAMS:
            result = pair.a.run(f"cd /kselftest/uldma && ./{program}", TIMEOUT)
            output = result.stdout + result.stderr
            expect(result.rc == 0, f"{program}: exit {result.rc}\n{output}")
            expect(REASON not in output, f"{program} ran as without the parameter:\n{output}")
    finally:
        reload(pair.a)


@case
def insecure_methods_are_refused(pair: Cluster) -> None:
    """Without the parameter no user gets one of these methods, not even the administrator."""
    output = pair.a.check(
        "cd /kselftest/uldma && ./uldma_method -t insecure_need_permission", TIMEOUT
    )
    expect("pass:1 " in output, f"the test did not run:\n{output}")


@case
def sharers_take_turns(pair: Cluster) -> None:
    """Two processes that copy to one page disturb each other, unless they take a lock."""
    output = pair.a.check("/tests/shared_pages", scaled(SHARERS_TIMEOUT))
    counts = TestCounts()
    counts.add_libtest(output)
    expect(counts.passed == counts.total == SHARERS_TESTS, output)


@case
def words_cross_the_bus(pair: Cluster) -> None:
    """The device reads each word of a transfer once, and no word of a remote write."""
    found = {figure.name: figure.value for figure in touches.measure(pair)}
    # But for the word that send-file sends once more, to have that watched.
    expect(1 <= found["touches.dma.device"] < 1.0001, f"{found}")
    expect(found["touches.dma.processor"] < 0.01, f"{found}")
    expect(found["touches.remote_write.device"] == 0, f"{found}")


@case
def other_destinations(pair: Cluster) -> None:
    """With SHRIMP-1 each other destination is a system call, with SHRIMP-2 none is."""
    figures = probes.run(pair.a, "initiation --part destinations", scaled(PROBE_TIMEOUT))
    found = {figure.name: figure.value for figure in figures}
    for count in (1, 2, 16):
        calls = found[f"destinations.shrimp-1.{count}.syscalls"]
        expect((calls > 0.9) == (count > 1), f"{count} destinations: {found}")
        expect(found[f"destinations.shrimp-2-abort.{count}.syscalls"] == 0, f"{found}")
