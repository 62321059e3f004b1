# SPDX-License-Identifier: GPL-2.0
"""When a queue of the network interface is polled by a timer, so that its peer need not ring."""

import re

from .. import endpoints, network
from ..cluster import Cluster
from ..endpoints import UP_TIMEOUT, Endpoint
from ..module import reload
from ..network import Interface, ping
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

# Round trips of a program.
TRIPS = 200
# For which programs poll, in us; longer than a round trip takes.
LONG = 1_000_000


def interfaces(pair: Cluster) -> tuple[list[Endpoint], list[Interface]]:
    """Both ends, whose doorbells are measured, and their interfaces."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    up = network.up(ends)
    endpoints.wait_measured(ends)
    return ends, up


def timed_polls(interface: Interface) -> int:
    """Polls that timers were started for."""
    [count] = re.findall(r"_timed_polls: (\d+)", interface.check("ethtool -S {name}"))
    return int(count)


def timers_pay(end: Endpoint) -> bool:
    """Whether a timer's interrupt costs at most half of a doorbell."""
    found = end.intake()
    timer = max(found["timer_ns"] - found["thread_ns"], 1000)
    return timer <= found["doorbell_ns"] // 2


@case_of(USUAL, IVSHMEM)
def timers_replace_doorbells(pair: Cluster) -> None:
    """Packets are followed by polls of a timer, where that is cheaper than the peer's doorbell."""
    ends, (here, there) = interfaces(pair)
    before = timed_polls(there)

    def polled() -> bool:
        ping(here, there.address)
        return timed_polls(there) > before

    # The interface gets the cost of the doorbell by the next heartbeat.
    if timers_pay(ends[1]):
        wait_until(polled, UP_TIMEOUT, f"polls by a timer of {there}")
    else:
        expect(not polled(), f"{there} was polled by a timer that costs more: {ends[1].intake()}")


@case_of(USUAL, IVSHMEM)
def administrator_forbids_polling(pair: Cluster) -> None:
    """With link_busy_poll_us=0 the peer rings for each packet."""
    reload(pair.b, "link_busy_poll_us=0")
    try:
        _, (here, there) = interfaces(pair)
        ping(here, there.address)
        expect(timed_polls(there) == 0, f"{there} was polled by a timer")
    finally:
        reload(pair.b)


def doorbells(interfaces: list[Interface]) -> int:
    """Doorbells that both ends have rung for packets."""
    listings = "".join(it.check("ethtool -S {name}") for it in interfaces)
    return sum(map(int, re.findall(r"_doorbells_rung: (\d+)", listings)))


@case_of(USUAL, IVSHMEM)
def programs_poll_in_place_of_doorbells(pair: Cluster) -> None:
    """Programs that wait for packets poll the interface, if net.core.busy_read says so."""
    nodes = (pair.a, pair.b)
    for node in nodes:
        reload(node, "link_busy_poll_us=0")
    try:
        _, (here, there) = interfaces(pair)

        def rung() -> int:
            before = doorbells([here, there])
            with network.netserver(there) as netperf:
                here.check(f"{netperf} -l -{TRIPS} -- -r 1,1")
            return doorbells([here, there]) - before

        by_interrupts = rung()
        expect(by_interrupts > TRIPS, f"{by_interrupts} doorbells for {TRIPS} round trips")
        with network.busy_polling(nodes, LONG):
            polled = rung()
        expect(polled < by_interrupts // 2, f"{polled} doorbells, and {by_interrupts} before")
        # Interrupts are there again.
        ping(here, there.address)
    finally:
        for node in nodes:
            reload(node)
