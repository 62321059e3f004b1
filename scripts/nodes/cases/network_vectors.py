# SPDX-License-Identifier: GPL-2.0
"""The interrupt vectors of the network interface alone, and of segments, on ivshmem, if both nodes
have them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from .. import endpoints, interrupts, network
from ..cluster import Cluster
from ..endpoints import UP_TIMEOUT
from ..network import Interface, ping
from ..polling import wait_until
from ..qemu import Vectors
from ..topologies import IVSHMEM
from .doorbells import expect_woken
from .registry import case_of, expect

NETWORK = "uldma-network"
SEGMENTS = "uldma-segments"
ALL = "uldma-doorbell"
# A timer would take the place of doorbells.
PARAMETERS = {"link_busy_poll_us": "0"}
# What QEMU's own server gives.
ONE = Vectors(device=1, server=1)
# More than the server gives.
UNUSED = Vectors(device=2, server=1)


def found(there: Interface, here: Interface) -> int:
    """The interrupts of a node that found packets of a peer, or room that it made."""
    [device] = json.loads(there.end.check("net --json"))["devices"]
    counters = {peer["node"]: peer["counters"] for peer in device["peers"]}
    return int(counters[here.end.number]["interrupts"])


def rung(interface: Interface, handler: str) -> int:
    """The interrupts of a node by one handler; 0 if there is no such handler."""
    return sum(interrupts.counts(interface.end.node, handler).values())


@contextmanager
def interfaces(pair: Cluster, name: str, **vectors: Vectors) -> Iterator[list[Interface]]:
    """Nodes of their own with these vectors, where each packet rings; their interfaces, up."""
    config = replace(pair.config, vectors=vectors, module={**pair.config.module, **PARAMETERS})
    with Cluster(f"{pair.scenario}-{name}", config) as own:
        ends = endpoints.of(own)
        endpoints.wait_up(ends)
        yield network.up(ends)
        own.check_logs()


def expect_rung(here: Interface, there: Interface, handler: str) -> None:
    """Packets to a node interrupt it by this handler, which finds them."""
    before = rung(there, handler), found(there, here)

    def interrupted() -> bool:
        ping(here, there.address)
        return rung(there, handler) > before[0] and found(there, here) > before[1]

    wait_until(interrupted, UP_TIMEOUT, f"packets interrupt {there} by {handler}")


@case_of(IVSHMEM)
def packets_have_their_own(pair: Cluster) -> None:
    """Packets interrupt by the vector of the network."""
    with interfaces(pair, "two") as (a, b):
        for here, there in ((a, b), (b, a)):
            expect_rung(here, there, NETWORK)


@case_of(IVSHMEM)
def peer_with_one_vector(pair: Cluster) -> None:
    """It is rung by the vector that it has, and rings that of a node that has two."""
    with interfaces(pair, "mixed", b=ONE) as (a, b):
        # The vector is there, or it would not have interrupted by the driver's own ring.
        wait_until(lambda: rung(a, NETWORK) > 0, UP_TIMEOUT, f"the second vector of {a}")
        expect(rung(b, NETWORK) == 0, f"{b} has two vectors")
        before = rung(a, NETWORK)
        expect_rung(a, b, ALL)
        expect_rung(b, a, ALL)
        expect(rung(a, NETWORK) == before, f"{b} rings a vector that it has not")
        # That of segments alone has rung by the driver, if at all.
        before = rung(a, SEGMENTS)
        for here, there in ((a, b), (b, a)):
            expect_woken(there.end, here.end)
        expect(rung(a, SEGMENTS) == before, f"{b} rings segments by a vector that it has not")


@case_of(IVSHMEM)
def server_with_one_vector(pair: Cluster) -> None:
    """A vector that the server does not give is not used, whether or not the device has it."""
    with interfaces(pair, "one", a=UNUSED, b=ONE) as (a, b):
        for here, there in ((a, b), (b, a)):
            expect_rung(here, there, ALL)
            expect(rung(there, NETWORK) == 0, f"{there} has two vectors")
