# SPDX-License-Identifier: GPL-2.0
"""Network interfaces of the nodes of one machine, one of them in a network namespace of its own."""

from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints, network
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..kernel import DEBUG
from ..module import reload
from ..network import IPERF_PORT, Interface, Server, iperf, ping
from ..topologies import LOOPBACK
from .registry import Skip, case_of, expect

# The value of the parameter `network` for which these nodes have interfaces, too.
EVERYWHERE = "network=2"
STREAM = 8 << 20
# All of these datagrams fit in a socket's buffer, so that none may be lost.
DATAGRAM = 1400
DATAGRAMS = 48


@contextmanager
def networked(pair: Cluster) -> Iterator[list[Endpoint]]:
    """Let both ends have interfaces for a while."""
    reload(pair.a, EVERYWHERE)
    try:
        ends = endpoints.of(pair)
        endpoints.wait_up(ends)
        yield ends
    finally:
        reload(pair.a)


@case_of(LOOPBACK)
def only_if_asked_for(pair: Cluster) -> None:
    """By default these nodes have no interfaces."""
    ends = endpoints.of(pair)
    for end in ends:
        expect(not Interface.of(end).exists(), f"{end.name} has an interface")
    with networked(pair):
        for end in ends:
            expect(Interface.of(end).exists(), f"{end.name} has no interface")


@case_of(LOOPBACK)
def packets_cross(pair: Cluster) -> None:
    """Packets of all sizes are answered, and streams and datagrams arrive."""
    if DEBUG:
        raise Skip("the debug kernel has no network namespaces")
    with networked(pair) as (here, there), network.apart(there, here) as b:
        a = Interface.of(here)
        network.up_all((a, b))
        for source, target in ((a, b), (b, a)):
            for size in (0, 1472, 65507):
                ping(source, target.address, f"-s {size}")
            ping(source, f"{target.local_address}%{source.name}", "-6")
        for options, count in (("", 1), ("-R", 1), ("-P 8 -w 64K --bidir", 16)):
            with Server.start(b, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
                report = iperf(a, b, f"-n {STREAM} {options}")
            streams = report["end"]["streams"]
            expect(len(streams) == count, f"{options}: {streams}")
        with Server.start(b, "exec iperf3 -s -1 -J -B {address}", IPERF_PORT):
            total = DATAGRAM * DATAGRAMS
            report = iperf(a, b, f"-u -b 0 -l {DATAGRAM} -n {total} --get-server-output")
        [stream] = report["server_output_json"]["end"]["streams"]
        udp = stream["udp"]
        found = (udp["packets"], udp["lost_packets"])
        expect(found == (DATAGRAMS, 0), f"{udp}")


@case_of(LOOPBACK)
def module_goes_with_both(pair: Cluster) -> None:
    """Unloading removes the interfaces under a stream, wherever they are."""
    with networked(pair) as (here, there), network.apart(there, here) as b:
        a = Interface.of(here)
        network.up_all((a, b))
        with Server.start(b, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
            client = a.spawn(f"exec iperf3 -c {b.address} -t 0")
            try:
                network.wait_flow(b)
                reload(pair.a)
                expect(not a.exists() and not b.exists(), "an interface is left")
            finally:
                client.end()
