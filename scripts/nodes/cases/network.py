# SPDX-License-Identifier: GPL-2.0
"""The network interface of a device: packets cross, and go on crossing after every loss."""

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

UP_TIMEOUT = 30.0
# For each of some packets, on processors that may be busy.
PING_SECONDS = 30


def interface(end: Endpoint) -> str:
    """The interface of a device."""
    return f"ul{end.device}"


def address(end: Endpoint) -> str:
    """The address of an end, whose network has nothing else."""
    return f"10.75.{end.device}.{end.number + 1}"


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
        # Fragments of IP, which fill the ring more than once.
        ping(here, there, "-c 50 -i 0.01 -s 20000")


@case_of(USUAL, IVSHMEM)
def link_flap(pair: Cluster) -> None:
    """An interface that goes down takes the peer's carrier with it, until it comes up again."""
    a, b = connect(pair)
    for here, there in ((a, b), (b, a)):
        here.node.check(f"ip link set {interface(here)} down")
        wait_carrier(there, on=False)
        here.node.check(f"ip link set {interface(here)} up")
        wait_carrier(there)
        wait_carrier(here)
        ping(here, there)
        ping(there, here)


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
