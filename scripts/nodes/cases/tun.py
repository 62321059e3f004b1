# SPDX-License-Identifier: GPL-2.0
"""Packets through a connection: between TUN interfaces by the sample, and by pppd."""

import signal

from .. import endpoints, network
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..kernel import DEBUG
from ..network import Interface, Server, iperf, ping
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import Skip, case_of, expect

PORT = 740
NAME = "bridge0"
NETWORK = "10.118.{}.0/24"
PPP_NETWORK = "10.119.{}.0/24"
START_TIMEOUT = 60.0
END_TIMEOUT = 30.0
STREAM = 4 << 20
VERSION = 2
MTU = 1500
# The largest packet that a peer takes, what it sends, and the reason for which the bridge ends.
WRONG = (
    (67, "", "packets of up to 67 bytes only"),
    (MTU, r"\000\000", "a packet of 0 bytes"),
    (MTU, r"\005\335", "a packet of 1501 bytes"),
    (MTU, r"\000\100rest", "UnexpectedEof"),
)
# A packet of neither version of IP.
FOREIGN = r"\000\004\001two"


def listen(end: Endpoint, mtu: int = MTU) -> Job:
    """Start a bridge that waits for the other one."""
    return end.spawn_sample("rust/tun", f"{NAME} {mtu} {PORT}")


def connect(end: Endpoint, there: Endpoint, mtu: int = MTU) -> Job:
    """Start a bridge that connects to the other one."""
    return end.spawn_sample("rust/tun", f"{NAME} {mtu} {PORT} {there.number}")


def packets_peer(there: Endpoint, version: int = VERSION, mtu: int = MTU) -> str:
    """Return the command of a peer that sends what it reads, which may be no packets."""
    return f"/tests/packets_peer {version} {mtu} {PORT} {there.number}"


def wait_up(jobs: list[Job], ends: list[Endpoint]) -> list[Interface]:
    """Wait until both bridges carry packets, and give their interfaces addresses."""
    interfaces = [Interface(end, NAME, network.address_of(end, NETWORK)) for end in ends]
    for job, interface in zip(jobs, interfaces, strict=True):
        job.wait_output("is up", START_TIMEOUT)
        expect(job.running, f"{job.command}: {job.text('err')}")
        interface.up()
    return interfaces


@case_of(USUAL, IVSHMEM)
def bridge(pair: Cluster) -> None:
    """Packets of all sizes cross between two interfaces, which go with their processes."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    [a, b] = ends
    jobs = [connect(a, b, 9000), listen(b, 65535)]
    try:
        here, there = interfaces = wait_up(jobs, ends)
        for interface in interfaces:
            expect(interface.attribute("mtu") == "9000", f"{interface}: {jobs[0].text()}")
        for one, other in ((here, there), (there, here)):
            for size in (0, 56, 8972, 30000):
                ping(one, other.address, f"-s {size}")
            ping(one, f"{other.local_address}%{NAME}", "-6")
        for options in ("", "-R"):
            with Server.start(there, "exec iperf3 -s -1 -B {address}", network.IPERF_PORT):
                sent = iperf(here, there, f"-n {STREAM} {options}")
            expect(sent["end"]["sum_received"]["bytes"] > STREAM // 2, f"{sent['end']}")
        jobs[0].kill(signal.SIGTERM)
        for job in jobs:
            job.wait(END_TIMEOUT)
        for interface in interfaces:
            expect(not interface.exists(), f"{interface} is left behind")
    finally:
        for job in jobs:
            job.end()


@case_of(USUAL)
def wrong_peers(pair: Cluster) -> None:
    """A peer that sends anything else ends the bridge, which says why."""
    [a, b] = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for mtu, sent, why in WRONG:
        job = listen(b)
        a.node.run(f"printf '{sent}' | {packets_peer(b, mtu=mtu)}", START_TIMEOUT)
        result = job.wait(END_TIMEOUT)
        expect(result.rc == 1 and why in result.stderr, f"{why}: {result}")
    job = listen(b)
    other = a.node.run(a.command(f"connect {b.number} {PORT} --wait </dev/null"), START_TIMEOUT)
    expect(other.rc == 5 and "another kind" in other.stderr, f"{other}")
    other = a.node.run(f"{packets_peer(b, version=VERSION - 1)} </dev/null", START_TIMEOUT)
    expect(other.rc == 1 and "another version" in other.stderr, f"{other}")
    # The bridge waits for the next peer.
    a.node.check(f"printf '{FOREIGN}' | {packets_peer(b)}", START_TIMEOUT)
    result = job.wait(END_TIMEOUT)
    expect(result.rc == 0, f"{result}")
    expect(not Interface(b, NAME, "").exists(), f"{NAME} is left behind")


@case_of(USUAL)
def lost_peer(pair: Cluster) -> None:
    """A bridge ends when its peer is killed, and says why when its link is lost."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    [a, b] = ends
    interface = Interface(a, NAME, network.address_of(a, NETWORK))
    for unbound in (False, True):
        jobs = [connect(a, b), listen(b)]
        try:
            wait_up(jobs, ends)
            if unbound:
                b.node.check(b.unbind())
            else:
                jobs[1].kill()
            result = jobs[0].wait(endpoints.LOSS_TIMEOUT)
            expect(not interface.exists(), f"{interface} is left behind")
        finally:
            for job in jobs:
                job.end()
    expect(result.rc == 1 and "ECONNRESET" in result.stderr, f"{result}")


@case_of(USUAL, IVSHMEM)
def ppp(pair: Cluster) -> None:
    """The sample brings pppd up over a connection, and packets cross."""
    if DEBUG:
        raise Skip("the debug kernel has no PPP")
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    [a, b] = ends
    here, there = (Interface(end, "ppp0", network.address_of(end, PPP_NETWORK)) for end in ends)
    for node in pair.nodes.values():
        node.check("modprobe ppp_async")
    sample = "/samples/shell/ppp.sh"
    jobs = [
        b.node.spawn(f"exec {sample} listen {PORT} {there.address}:{here.address}"),
        a.node.spawn(f"exec {sample} connect {b.number} {PORT} {here.address}:{there.address}"),
    ]

    def up() -> bool:
        for job in jobs:
            expect(job.running, f"{job.command}: {job.text()}{job.text('err')}")
        return all(it.exists() and it.has_link() for it in (here, there))

    try:
        wait_until(up, START_TIMEOUT, "ppp0 of both nodes")
        network.wait_reachable((here, there))
        for one, other in ((here, there), (there, here)):
            for size in (56, 1400, 16000):
                ping(one, other.address, f"-s {size}")
        with Server.start(there, "exec iperf3 -s -1 -B {address}", network.IPERF_PORT):
            iperf(here, there, f"-n {STREAM}")
        jobs[1].kill(signal.SIGTERM)
        for job in jobs:
            job.wait(END_TIMEOUT)
        expect(not here.exists() and not there.exists(), "ppp0 is left behind")
    finally:
        for job in jobs:
            job.end()
