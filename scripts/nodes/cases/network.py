# SPDX-License-Identifier: GPL-2.0
"""The network interface of a device: packets cross, and go on crossing after every loss."""

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..polling import wait_until
from ..qemu import Backend
from ..topologies import IVSHMEM, THREE, USUAL
from .registry import case_of, expect

UP_TIMEOUT = 30.0
# For each of some packets, on processors that may be busy.
PING_SECONDS = 30
SHARED = (Backend.ADAPTER, Backend.IVSHMEM)


def interface(end: Endpoint) -> str:
    """The interface of a device."""
    return f"ul{end.device}"


def address(end: Endpoint) -> str:
    """The address of an end. Devices of one link can have other numbers on other nodes."""
    network = list(Backend).index(Backend(end.info()["backend"]))
    return f"10.75.{network}.{end.number + 1}"


def set_up(end: Endpoint) -> None:
    """Give an interface its address, and set it up."""
    name = interface(end)
    end.node.check(f"ip addr replace {address(end)}/24 dev {name} && ip link set {name} up")


def has_carrier(end: Endpoint) -> bool:
    """Whether a peer of an interface that is up takes packets."""
    result = end.node.run(f"cat /sys/class/net/{interface(end)}/carrier")
    return result.stdout.strip() == "1"


def wait_carrier(end: Endpoint, on: bool = True) -> None:
    """Wait until an interface has a carrier, or none any more."""
    wait_until(
        lambda: has_carrier(end) == on,
        UP_TIMEOUT,
        f"{interface(end)} of node {end.node.name}: carrier {'on' if on else 'off'}",
    )


def ping(here: Endpoint, there: Endpoint, arguments: str = "-c 3") -> None:
    """Echo requests from one end to the other, all of which are answered."""
    command = f"ping -W {PING_SECONDS} {arguments} {address(there)}"
    output = here.node.check(command, 10 * PING_SECONDS)
    expect(" 0% packet loss" in output, f"{here.name}: {command}: {output}")


def violations(ends: list[Endpoint]) -> int:
    """How often a peer of any end broke the rules."""
    return sum(here.peer(there)["violations"] for here in ends for there in ends if here != there)


def connect(pair: Cluster) -> list[Endpoint]:
    """Set up the interfaces of both ends."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    for end in ends:
        set_up(end)
    for end in ends:
        wait_carrier(end)
    return ends


@case_of(USUAL, IVSHMEM)
def ping_crosses_both_ways(pair: Cluster) -> None:
    """Small and large packets arrive, and their answers."""
    a, b = connect(pair)
    for here, there in ((a, b), (b, a)):
        ping(here, there)
        # Fragments of IP, which fill more than the ring; the socket has room for one such packet.
        ping(here, there, "-c 20 -i 0.2 -s 60000")


@case_of(USUAL, IVSHMEM)
def link_flap(pair: Cluster) -> None:
    """An interface that goes down takes the peer's carrier with it, until it comes up again."""
    a, b = connect(pair)
    before = violations([a, b])
    for here, there in ((a, b), (b, a)):
        here.node.check(f"ip link set {interface(here)} down")
        wait_carrier(there, on=False)
        here.node.check(f"ip link set {interface(here)} up")
        wait_carrier(there)
        wait_carrier(here)
        ping(here, there)
        ping(there, here)
    # A link that restarts would bring the carrier back, too.
    expect(violations([a, b]) == before, "an interface that went down broke the rules")


@case_of(USUAL, IVSHMEM)
def unbinding(pair: Cluster) -> None:
    """The interface goes with the driver, and comes back with it."""
    a, b = connect(pair)
    again = b.unbind()
    try:
        b.node.check(f"! test -e /sys/class/net/{interface(b)}")
        wait_carrier(a, on=False)
    finally:
        b.node.check(again)
    a, b = connect(pair)
    ping(a, b)
    ping(b, a)


@case_of(USUAL, IVSHMEM)
def peer_is_killed(pair: Cluster) -> None:
    """The carrier goes with the machine of the peer, and comes back with it."""
    a, b = connect(pair)
    # Its requests are not answered from some time on.
    load = a.node.spawn(f"ping -s 60000 -i 0.1 {address(b)}")
    try:
        load.wait_output("bytes from", UP_TIMEOUT)
        b.node.kill()
        wait_until(lambda: not has_carrier(a), LOSS_TIMEOUT, f"{a.name} has lost its carrier")
        pair.revive("b")
    finally:
        load.end()
    a, b = connect(pair)
    ping(a, b)
    ping(b, a)


@case_of(THREE)
def three_nodes_are_one_segment(pair: Cluster) -> None:
    """Each node reaches each other, also when another is down; groups reach all."""
    for backend in SHARED:
        ends = endpoints.find(pair, backend)
        endpoints.wait_up(ends)
        for end in ends:
            set_up(end)
        for end in ends:
            wait_carrier(end)
        for here in ends:
            for there in ends:
                if here != there:
                    ping(here, there)
        a, b, c = ends
        b.node.check(f"ip link set {interface(b)} down")
        ping(a, c)
        expect(has_carrier(a), "one peer of two took the carrier")
        b.node.check(f"ip link set {interface(b)} up")
        wait_carrier(b)
        ping(b, c)
        name = interface(a)
        output = a.node.check(f"ping -c 2 -W {PING_SECONDS} ff02::1%{name}", 10 * PING_SECONDS)
        expect("bytes from fe80:" in output, f"no answer to a group: {output}")
