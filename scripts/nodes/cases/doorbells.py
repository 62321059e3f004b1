# SPDX-License-Identifier: GPL-2.0
"""Doorbells of programs: each wakes the other side, and any number of them costs it little."""

import json
from dataclasses import dataclass

from .. import endpoints, interrupts, network
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..network import Interface
from ..polling import wait_until
from ..qemu import Backend
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

PROGRAM = "/kselftest/uldma/uldma_doorbell"
# As the program has them.
SEGMENTS = 31
TIMEOUT = 60.0
# Round trips of packets beside the rings.
TRIPS = 100
# Passes through segments in which the doorbell is seen to be masked.
PASSES = 50
# An interrupt that is on its way when counters are read, of each of two readings.
ON_ITS_WAY = 2


@dataclass(frozen=True)
class Counted:
    """Interrupts of a node by their handlers, and the passes of what they are for."""

    events: int
    control: int
    segments: int
    network: int
    unmasked: int
    passes: int
    polls: int

    def since(self, before: "Counted") -> "Counted":
        """How much of each there was."""
        pairs = zip(vars(self).values(), vars(before).values(), strict=True)
        return Counted(*(now - then for now, then in pairs))


def rung(end: Endpoint, handler: str) -> int:
    """The interrupts of a node by one handler; 0 if there is no such handler."""
    return sum(interrupts.counts(end.node, handler).values())


def passes(end: Endpoint) -> tuple[int, int, int]:
    """Times that the control channel was ready for its doorbell, that segments were rung, and that
    the network was ready for its own."""
    found = end.intake()
    [device] = json.loads(end.check("net --json"))["devices"]
    return found["unmasked"], found["passes"], device["interface"]["counters"]["unmasked"]


def count(end: Endpoint, *, is_first: bool) -> Counted:
    """What a node has counted; of two readings, the passes are counted outside."""
    before = passes(end)
    control = "uldma-control" if end.info()["backend"] == Backend.ADAPTER else "uldma-doorbell"
    events, segments, of_network = (
        rung(end, f"uldma-{name}") for name in ("event", "segments", "network")
    )
    of_control = rung(end, control)
    unmasked, forwarded, polls = before if is_first else passes(end)
    return Counted(events, of_control, segments, of_network, unmasked, forwarded, polls)


def expect_bounded(end: Endpoint, grown: Counted) -> None:
    """Interrupts are no more than passes, whatever the time."""
    # The work of segments may find that its last run has passed all rings on, and unmasks all the
    # same. On the adapter, a second event may be on its way when the doorbell is masked.
    of_segments = 2 * grown.passes
    by_all = grown.unmasked + grown.polls + of_segments
    if end.info()["backend"] == Backend.ADAPTER:
        rung, most = grown.events, of_segments
    elif grown.segments:
        rung, most = grown.segments, of_segments
    else:
        # They have one vector.
        rung, most = grown.control, by_all
    expect(rung <= most + ON_ITS_WAY, f"segments interrupt without a pass: {grown}")
    expect(grown.control <= by_all + ON_ITS_WAY, f"the link interrupts without a pass: {grown}")
    expect(grown.network <= grown.polls + ON_ITS_WAY, f"packets interrupt without a poll: {grown}")


def trips(here: Interface, there: Interface) -> None:
    """Packets go and come back."""
    network.ping(here, there.address)
    with network.netserver(there) as netperf:
        here.check(f"{netperf} -l -{TRIPS} -- -r 1,1")


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


@case_of(USUAL, IVSHMEM)
def endless_rings_cost_a_pass_each(pair: Cluster) -> None:
    """A program rings all segments without end: packets go on, and interrupts are few."""
    ends = a, b = endpoints.of(pair)
    endpoints.wait_up(ends)
    here, there = network.up(ends)
    sleeper = a.node.spawn(f"ULDMA_DEVICE={a.path} exec {PROGRAM} serve")
    try:
        sleeper.wait_output("ready", TIMEOUT)
        storm = b.node.spawn(f"ULDMA_DEVICE={b.path} exec {PROGRAM} storm")
        storm.wait_output("ringing", TIMEOUT)
        before = count(a, is_first=True)
        trips(there, here)

        def passed() -> bool:
            return a.intake()["passes"] - before.passes >= PASSES

        wait_until(passed, TIMEOUT, f"{a.name} is rung {PASSES} times")
        grown = count(a, is_first=False).since(before)
        expect(storm.running, f"the rings have ended: {storm.text('err')}")
        expect_bounded(a, grown)
        if grown.segments:
            expect(grown.control < grown.segments, f"segments ring the control channel: {grown}")
        storm.end()
    finally:
        # Its segments end, and so do the rings.
        sleeper.end()
    endpoints.wait_up(ends)
    trips(here, there)
