# SPDX-License-Identifier: GPL-2.0
"""Doorbells of programs: each wakes the other side."""

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..topologies import IVSHMEM, USUAL
from .registry import case_of

PROGRAM = "/kselftest/uldma/uldma_doorbell"
# As the program has them.
SEGMENTS = 31
TIMEOUT = 60.0


def expect_woken(sleeping: Endpoint, ringing: Endpoint) -> None:
    """A program that sleeps is woken by each of its segments, one after the other."""
    sleeper = sleeping.node.spawn(f"ULDMA_DEVICE={sleeping.path} exec {PROGRAM} serve")
    try:
        sleeper.wait_output("ready", TIMEOUT)
        for number in range(SEGMENTS):
            ringing.node.check(f"ULDMA_DEVICE={ringing.path} {PROGRAM} ring {number}", TIMEOUT)
            sleeper.wait_output(f"woken {number}\n", TIMEOUT)
    finally:
        sleeper.end()


@case_of(USUAL, IVSHMEM)
def wake_the_segment_of_every_page(pair: Cluster) -> None:
    """A ring wakes the program that sleeps, whatever the page at which its segment begins."""
    ends = a, b = endpoints.of(pair)
    endpoints.wait_up(ends)
    expect_woken(a, b)
