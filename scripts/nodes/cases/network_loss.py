# SPDX-License-Identifier: GPL-2.0
"""Network interfaces that go and come back under a stream of iperf3."""

from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints, network
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..network import IPERF_PORT, Interface, Server, ping, wait_flow
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

FLAPS = 3


@contextmanager
def stream(here: Interface, there: Interface) -> Iterator[Job]:
    """Let a stream by TCP flow that does not end by itself."""
    with Server.start(there, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
        job = here.spawn(f"exec iperf3 -c {there.address} -t 0")
        try:
            wait_flow(there)
            yield job
        finally:
            job.end()


def violations(ends: list[Endpoint]) -> int:
    """How often a peer of any end broke the rules."""
    return sum(here.peer(there)["violations"] for here in ends for there in ends if here != there)


def works(pair: Cluster) -> None:
    """Packets cross both ways, once the interfaces have their addresses."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = network.up(ends)
    ping(a, b.address)
    ping(b, a.address)


@case_of(USUAL, IVSHMEM)
def by_flapping(pair: Cluster) -> None:
    """Either interface goes down and comes back, and the stream goes on where it was."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = network.up(ends)
    before = violations(ends)
    with stream(a, b) as job:
        for interface, other in ((a, b), (b, a)) * FLAPS:
            interface.check("ip link set {name} down")
            expect(not interface.has_link(), f"{interface} is down and has a link")
            network.wait_no_link(other)
            interface.up()
            wait_flow(b)
        expect(job.running, f"the stream has ended: {job.text()}{job.text('err')}")
    works(pair)
    # A link that restarts would bring the interfaces back, too.
    expect(violations(ends) == before, "an interface that went down broke the rules")


@case_of(USUAL, IVSHMEM)
def by_power_failure(pair: Cluster) -> None:
    """The peer's machine is gone without a word, and boots anew."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = network.up(ends)
    Server.start(b, "exec iperf3 -s -1", IPERF_PORT)
    client = a.spawn(f"exec iperf3 -c {b.address} -t 0")
    try:
        wait_flow(b)
        pair.b.kill()
        network.wait_no_link(a)
        expect(a.exists(), f"{a} has gone with its peer")
    finally:
        client.end()
    pair.revive("b")
    works(pair)


@case_of(USUAL, IVSHMEM)
def by_unbinding(pair: Cluster) -> None:
    """The driver is unbound from the device of either side: the interface goes and comes back."""
    ends = endpoints.of(pair)
    for end in ends:
        endpoints.wait_up(ends)
        a, b = network.up(ends)
        gone, other = (a, b) if end is ends[0] else (b, a)
        with stream(a, b):
            again = end.unbind()
            try:
                expect(not gone.exists(), f"{gone} has no device any more, and is there")
                network.wait_no_link(other)
            finally:
                end.node.check(again)
        works(pair)
