# SPDX-License-Identifier: GPL-2.0
"""The network interfaces of three nodes: a segment, of which each node is a port."""

import json
import re

from .. import endpoints, network
from ..cluster import Cluster
from ..network import IPERF_PORT, Interface, Server, capture, iperf, ping
from ..qemu import Backend
from ..topologies import THREE
from .registry import case_of, expect

SHARED = (Backend.ADAPTER, Backend.IVSHMEM)
STREAM = 4 << 20
# Bytes of a packet, many times those of an answer.
LARGE = 20000
# All nodes of a link, by IPv6.
ALL_NODES = "ff02::1"
# No node's number; its packets are for no node.
STRANGER = 200


def segment(pair: Cluster, backend: Backend) -> list[Interface]:
    """The interfaces of all nodes, by one kind of device."""
    ends = endpoints.find(pair, backend)
    endpoints.wait_up(ends)
    return network.up(ends)


@case_of(THREE)
def every_two(pair: Cluster) -> None:
    """Every node reaches every other by either device, and each network is one of its own."""
    for backend in SHARED:
        found = segment(pair, backend)
        for here in found:
            for there in found:
                if here != there:
                    ping(here, there.address, "-s 1400")
                    ping(here, f"{there.local_address}%{here.name}", "-6")
        a = found[0]
        peers = len(json.loads(a.end.check("peers --json"))["peers"])
        said = a.check("ethtool -l {name}")
        # The maximum and the current number.
        channels = re.findall(r"Combined:\s+(\d+)", said)
        # The first is for groups.
        expect(channels == [str(1 + peers)] * 2, f"not one for each of {peers} peers: {said}")
        expect(a.end.node.run(f"ethtool -L {a.name} combined {peers}").rc != 0, "one is taken")


@case_of(THREE)
def multicast(pair: Cluster) -> None:
    """A packet for all nodes arrives at each other node, and is answered."""
    for backend in SHARED:
        a, b, c = segment(pair, backend)
        command = f"{network.PING} -6 -n -c 5 -i 0.2 -W 10 -I {a.name} {ALL_NODES}%{a.name}"
        said = a.check(command)
        for other in (b, c):
            expect(f"from {other.local_address}" in said, f"{other} has not answered: {said}")


@case_of(THREE)
def unicast_is_private(pair: Cluster) -> None:
    """A packet for one node is not seen by the third; one for no node is dropped."""
    for backend in SHARED:
        a, b, c = segment(pair, backend)
        stranger = a.address.rpartition(".")[0] + f".{STRANGER}"
        job = capture(c, 1, "icmp")
        try:
            ping(a, b.address)
            mac = a.attribute("address").rpartition(":")[0] + f":{STRANGER:02x}"
            a.check(f"arp -i {{name}} -s {stranger} {mac}")
            expect(
                a.end.node.run(f"{network.PING} -c 2 -i 0.1 -W 1 -I {a.name} {stranger}").rc != 0,
                f"{stranger} has answered",
            )
            ping(a, c.address)
            seen = job.wait(network.CAPTURE_TIMEOUT).stdout
            expect(f"{a.address} > {c.address}" in seen, f"{c} has seen first: {seen}")
        finally:
            job.end()
            a.end.node.run(f"arp -i {a.name} -d {stranger}")


def counters(here: Interface) -> dict[int, dict[str, int]]:
    """What `uldma net` says of each peer, by the peer's number."""
    [device] = json.loads(here.end.check("net --json"))["devices"]
    return {peer["node"]: peer["counters"] for peer in device["peers"]}


def names_of_ethtool(here: Interface, node: int) -> list[str]:
    """The counters of a peer that the driver has, in its order."""
    return re.findall(rf"\bnode{node}_(\w+):", here.check("ethtool -S {name}"))


@case_of(THREE)
def counters_are_of_one_peer(pair: Cluster) -> None:
    """`uldma net` has all counters of each peer, and packets count for the peer that gets them."""
    for backend in SHARED:
        a, b, c = segment(pair, backend)
        before = counters(a)
        ping(a, c.address, f"-s {LARGE}")
        after = counters(a)
        # Meanwhile there can be packets for groups, which are small.
        for node, least in ((c.end.number, 3 * LARGE), (b.end.number, 0)):
            for name in ("tx_bytes", "rx_bytes"):
                grown = after[node][name] - before[node][name]
                expect(least <= grown < least + LARGE, f"node {node}: {grown} {name}")
            expect(list(after[node]) == names_of_ethtool(a, node), f"other counters: {after[node]}")


@case_of(THREE)
def streams_to_one(pair: Cluster) -> None:
    """Two nodes send to the third at the same time, and both arrive."""
    for backend in SHARED:
        a, b, c = segment(pair, backend)
        ports = (IPERF_PORT, IPERF_PORT + 1)
        servers = [Server.start(c, f"exec iperf3 -s -1 -p {port}", port) for port in ports]
        clients = [
            here.spawn(f"exec iperf3 -J -c {c.address} -n {STREAM} -p {port}")
            for here, port in zip((a, b), ports, strict=True)
        ]
        try:
            for client in clients:
                result = client.wait(network.PROGRAM_TIMEOUT)
                expect(result.rc == 0, f"{result}")
        finally:
            for job in (*clients, *(server.job for server in servers)):
                job.end()


@case_of(THREE)
def two_go_on(pair: Cluster) -> None:
    """A node is lost under a stream to it; the others have a link, and it comes back."""
    joined = [segment(pair, backend) for backend in SHARED]
    a, _, c = joined[0]
    Server.start(c, "exec iperf3 -s -1", IPERF_PORT)
    client = a.spawn(f"exec iperf3 -c {c.address} -t 0")
    try:
        network.wait_flow(c)
        pair.c.kill()
        for here, there, _ in joined:
            ping(here, there.address)
            with Server.start(there, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
                iperf(here, there, f"-n {STREAM}")
            expect(here.has_link() and there.has_link(), "no link without the third")
    finally:
        client.end()
    pair.revive("c")
    for backend in SHARED:
        a, b, c = segment(pair, backend)
        ping(c, a.address)
        ping(c, b.address)
