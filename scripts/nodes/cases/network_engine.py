# SPDX-License-Identifier: GPL-2.0
"""Packets that the engine of the adapter moves between the memories of two nodes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints, network
from ..cluster import Cluster
from ..endpoints import UP_TIMEOUT
from ..module import reload
from ..network import IPERF_PORT, Interface, Server, iperf, ping
from ..polling import wait_until
from ..qemu import LINK_TIMEOUT_MS
from ..topologies import IVSHMEM
from .registry import case, case_of, expect

STREAM = 8 << 20
FILE = "/tmp/engine"
ON = "network_engine_bytes=4096"
# Larger than the least packet of the engine, with a margin for headers.
LARGE_PING = 9000
MTU = 16000
GIVE_UP_TIMEOUT = LINK_TIMEOUT_MS / 1000 + 30.0


def counter(interface: Interface, name: str) -> int:
    """A counter of the only peer."""
    [count] = re.findall(rf"_{name}: (\d+)", interface.check("ethtool -S {name}"))
    return int(count)


@contextmanager
def engine(pair: Cluster) -> Iterator[list[Interface]]:
    """Let both nodes use their engines; the interfaces, which reach each other."""
    try:
        for node in (pair.a, pair.b):
            reload(node, ON)
        yield up(pair)
    finally:
        for node in (pair.a, pair.b):
            reload(node)


def moved(*interfaces: Interface) -> list[int]:
    """How many packets the engine has moved from and to each."""
    names = ("tx_engine", "rx_engine")
    return [counter(interface, name) for interface in interfaces for name in names]


def up(pair: Cluster) -> list[Interface]:
    """The interfaces, which reach each other."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    return network.up(ends)


def send(here: Interface, there: Interface) -> None:
    """Let a file cross, and compare it."""
    here.check(f"head -c {STREAM} /dev/urandom >{FILE}")
    with Server.start(there, f"exec iperf3 -s -1 -B {{address}} -F {FILE}", IPERF_PORT) as server:
        iperf(here, there, f"-n {STREAM} -F {FILE} -w 512K")
        server.job.wait(network.PROGRAM_TIMEOUT)
    size = int(there.check(f"stat -c %s {FILE}"))
    expect(size > STREAM // 2, f"{size} bytes of a file have arrived")
    sent = here.check(f"head -c {size} {FILE} | sha256sum")
    received = there.check(f"sha256sum <{FILE}")
    expect(sent == received, "a file has arrived changed")


@contextmanager
def large_packets(*interfaces: Interface) -> Iterator[None]:
    """Let single packets be larger than the least of the engine."""
    for interface in interfaces:
        interface.check(f"ip link set {{name}} mtu {MTU}")
    try:
        yield
    finally:
        for interface in interfaces:
            interface.check("ip link set {name} mtu 1500")


@case
def engine_moves_large_packets(pair: Cluster) -> None:
    """Of a stream the engine moves most, either way, and of small packets none."""
    # With a small MTU, TCP makes packets of a millisecond of the stream, which may be a slow one.
    with engine(pair) as (a, b), large_packets(a, b):
        for here, there in ((a, b), (b, a)):
            before = counter(there, "rx_engine")
            send(here, there)
            received = counter(there, "rx_engine") - before
            # No packet has more than 64 KiB, and some go by the ring when no buffer is posted.
            expect(received > STREAM // 2 >> 16, f"the engine has moved {received} packets")
            failed = counter(here, "tx_engine_failed")
            expect(failed == 0, f"the engine has not moved {failed} packets")
            before = counter(here, "tx_engine")
            ping(here, there.address)
            expect(counter(here, "tx_engine") == before, "the engine moves small packets")


@case
def sizes(pair: Cluster) -> None:
    """Packets of each size arrive unchanged, with the engine and without."""
    with engine(pair) as (a, b), large_packets(a, b):
        before = counter(a, "tx_engine")
        for size in (4000, 4095, 4096, 4097, 4400, 8192, 12345, MTU - 28):
            ping(a, b.address, f"-M do -s {size}")
        expect(counter(a, "tx_engine") > before, "the engine has moved none of them")


@case
def one_node_without_engine(pair: Cluster) -> None:
    """A node that does not use the engine gets and sends all packets by the ring."""
    for node in (pair.a, pair.b):
        reload(node, ON)
        try:
            a, b = up(pair)
            before = moved(a, b)
            send(a, b)
            send(b, a)
            expect(moved(a, b) == before, f"the engine has moved {before} and {moved(a, b)}")
        finally:
            reload(node)


@case_of(IVSHMEM)
def no_engine_by_ivshmem(pair: Cluster) -> None:
    """Where there is no engine the counters are there, and zero."""
    with engine(pair) as (a, b):
        send(a, b)
        expect(not any(moved(a, b)), f"an engine that is not there has moved {moved(a, b)} packets")


@case
def engine_that_does_not_end(pair: Cluster) -> None:
    """A packet that the engine does not move is passed over in time, and others go by the ring."""
    device = pair.device
    assert device
    with engine(pair) as (a, b), large_packets(a, b):
        end = a.end
        # Behind the kernel's, and those of programs.
        context = 1 + end.info()["contexts"]
        ping(a, b.address, f"-M do -s {LARGE_PING}")
        failed = counter(a, "tx_engine_failed")
        device.hold(end.number, context)
        try:
            a.end.node.run(f"{network.PING} -n -c 1 -W 1 -s {LARGE_PING} {b.address}")
            expect(bool(device.node(end.number)["held"]), "the engine holds no packet")
            wait_until(
                lambda: counter(a, "tx_engine_failed") > failed,
                GIVE_UP_TIMEOUT,
                f"{a} gives a packet up",
            )
            before = counter(a, "tx_engine")
            ping(a, b.address, f"-M do -s {LARGE_PING}")
            ping(b, a.address)
            expect(counter(a, "tx_engine") == before, "an engine that hangs gets more packets")
        finally:
            device.release(end.number)
        # A new ring begins anew.
        a.check("ip link set {name} down")
        network.wait_no_link(b)
        a.up()
        network.wait_reachable([a, b])
        ping(a, b.address, f"-M do -s {LARGE_PING}")
        expect(counter(a, "tx_engine") > before, "the engine moves none any more")


@case
def engine_that_fails(pair: Cluster) -> None:
    """Packets that the engine cannot move are passed over, and others go by the ring."""
    device = pair.device
    assert device
    with engine(pair) as (a, b), large_packets(a, b):
        ping(a, b.address, f"-M do -s {LARGE_PING}")
        with device.fault("bus-error", a.end.number):
            a.end.node.run(f"{network.PING} -n -c 1 -W 1 -s {LARGE_PING} {b.address}")
        wait_until(
            lambda: counter(a, "tx_engine_failed") > 0, UP_TIMEOUT, f"{a} passes over a packet"
        )
        ping(a, b.address, f"-M do -s {LARGE_PING}")
        ping(b, a.address, f"-M do -s {LARGE_PING}")
