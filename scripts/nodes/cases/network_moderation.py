# SPDX-License-Identifier: GPL-2.0
"""When a queue of the network interface is polled, so that its peer need not ring."""

import re
from dataclasses import replace

from .. import endpoints, network
from ..cluster import Cluster
from ..endpoints import UP_TIMEOUT, Endpoint
from ..module import reload
from ..network import Interface, ping
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import Skip, case_of, expect

# Round trips of a program.
TRIPS = 200
# Runs of a program from which the thread would follow it.
ATTEMPTS = 5
# Of /proc/PID/stat.
SCHED_IDLE = "5"
# For which programs poll, in us; longer than a round trip takes.
LONG = 1_000_000


def interfaces(pair: Cluster) -> tuple[list[Endpoint], list[Interface]]:
    """Both ends, whose doorbells are measured, and their interfaces."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    up = network.up(ends)
    endpoints.wait_measured(ends)
    return ends, up


def counted(interface: Interface, counter: str) -> int:
    """A counter of the only queue of an interface."""
    [count] = re.findall(rf"_{counter}: (\d+)", interface.check("ethtool -S {name}"))
    return int(count)


def timed_polls(interface: Interface) -> int:
    """Polls that timers were started for."""
    return counted(interface, "timed_polls")


def policies_of_idle_threads(interface: Interface) -> list[str]:
    """The scheduling policies of the threads that poll it: field 41 of /proc/PID/stat."""
    stats = "cat /proc/[0-9]*/stat 2>/dev/null"
    filtered = f"{stats} | awk '$2 == \"({interface.name}-idle)\" {{ print $41 }}'"
    return interface.end.node.check(filtered).split()


def expect_polls(end: Endpoint) -> None:
    """Skip the case, unless a timer costs so little that queues have to be polled."""
    found = end.intake()
    doorbell = max(found["doorbell_ns"], found["completion_ns"])
    if found["timer_ns"] > doorbell // 2:
        raise Skip(f"a timer costs {found['timer_ns']} ns, and a doorbell {doorbell} ns")


@case_of(USUAL, IVSHMEM)
def timers_replace_doorbells(pair: Cluster) -> None:
    """Packets are followed by polls of a timer, where that is cheaper than the peer's doorbell."""
    ends, (here, there) = interfaces(pair)
    before = timed_polls(there)

    def polled() -> bool:
        ping(here, there.address)
        return timed_polls(there) > before

    expect_polls(ends[1])
    # The interface gets the cost of the doorbell by the next heartbeat.
    wait_until(polled, UP_TIMEOUT, f"polls by a timer of {there}")


@case_of(USUAL, IVSHMEM)
def idle_processors_poll(pair: Cluster) -> None:
    """A thread finds packets in the idle time of a processor, and ends with the interface."""
    ends, (here, there) = interfaces(pair)
    expect(policies_of_idle_threads(there) == [SCHED_IDLE], "there is no thread of that policy")
    before = counted(there, "idle_polls")

    def polled() -> bool:
        with network.netserver(there) as netperf:
            here.check(f"{netperf} -l -{TRIPS} -- -r 1,1")
        return counted(there, "idle_polls") > before

    there.check("ip link set {name} down")
    left = policies_of_idle_threads(there)
    network.up(ends)
    expect(not left, f"{there} is down, and its thread is there")
    expect_polls(ends[1])
    wait_until(polled, UP_TIMEOUT, f"packets that an idle processor of {there} has found")


def processors_of_idle_thread(interface: Interface) -> str:
    """The list of processors that the thread of an interface may use."""
    name = f"{interface.name}-idle"
    status = "cat /proc/[0-9]*/status 2>/dev/null"
    pick = f'/^Name:/ {{ it = ($2 == "{name}") }} /^Cpus_allowed_list:/ && it {{ print $2 }}'
    return interface.end.node.check(f"{status} | awk '{pick}'").strip()


def talk_from(here: Interface, there: Interface, processor: int) -> None:
    """Round trips of a program on one processor, of which idle ones find packets."""
    before = counted(here, "idle_polls")

    def polled() -> bool:
        with network.netserver(there) as netperf:
            here.check(f"taskset {1 << processor:x} {netperf} -l -{TRIPS} -- -r 1,1")
        return counted(here, "idle_polls") > before

    wait_until(polled, UP_TIMEOUT, f"packets that an idle processor of {here} has found")


@case_of(USUAL)
def isolated_processors_do_not_poll(pair: Cluster) -> None:
    """The thread polls where the program runs that waits, but on no processor that is isolated."""
    ends, (here, there) = interfaces(pair)
    expect_polls(ends[0])
    for processor in (0, 1, 0):

        def followed(processor: int = processor) -> bool:
            talk_from(here, there, processor)
            return processors_of_idle_thread(here) == str(processor)

        wait_until(followed, UP_TIMEOUT, f"the thread of {here} on processor {processor}")
    config = replace(pair.config, cmdline=f"{pair.config.cmdline} isolcpus=1")
    with Cluster(f"{pair.scenario}-isolated", config) as own:
        ends, (here, there) = interfaces(own)
        expect_polls(ends[0])
        for _ in range(ATTEMPTS):
            talk_from(here, there, 1)
            found = processors_of_idle_thread(here)
            expect(found not in ("", "1"), f"the thread of {here} may use {found!r}")
        own.check_logs()


@case_of(USUAL, IVSHMEM)
def administrator_forbids_polling(pair: Cluster) -> None:
    """With link_busy_poll_us=0 the peer rings for each packet."""
    reload(pair.b, "link_busy_poll_us=0")
    try:
        _, (here, there) = interfaces(pair)
        ping(here, there.address)
        expect(timed_polls(there) == 0, f"{there} was polled by a timer")
        expect(counted(there, "idle_polls") == 0, f"{there} was polled by an idle processor")
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
