# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about the network interface: by adapter and ivshmem, beside its rivals.

All are measured between the same nodes, by the same programs: virtio-net, and IP through a
connection by the sample `tun` and by pppd.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import takewhile

from .. import endpoints, network, results
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..errors import NodesError
from ..network import IPERF_PORT, Interface, Server, iperf
from ..polling import wait_until
from ..qemu import Backend, Config
from ..report.network import relate
from ..results import Figure
from . import semantics

PORT = 750
TUN_NETWORK = "10.118.{}.0/24"
# A stream needs no segments.
TUN_MTU = 65535
PPP_NETWORK = "10.119.{}.0/24"
# The addresses that a node has by virtio-net, see guest/init.
VIRTIO_NETWORK = "10.0.0.0/24"
START_TIMEOUT = 60.0
SECONDS = 4
MTUS = (1500, 9000, 65531)
DATAGRAMS = (64, 1400)
# Of a processor that /proc/stat counts in.
TICK_MS = 10
# Longer than any round trip takes, in us.
BUSY_POLL = 50_000
# Ways whose interfaces programs can poll.
POLLED = ("adapter", "ivshmem", "virtio")
LATENCIES = {"p50": "P50_LATENCY", "p99": "P99_LATENCY", "mean": "MEAN_LATENCY"}


@dataclass(frozen=True)
class Way:
    """Two interfaces that reach each other."""

    pair: Cluster
    name: str
    here: Interface
    there: Interface

    def figure(self, what: str, value: float, unit: str) -> Figure:
        """A figure of this way."""
        return Figure(f"network.{self.name}.{what}", value, unit)


@dataclass(frozen=True)
class Counts:
    """What both nodes have done so far; the accesses are those that leave a node for a device."""

    interrupts: int
    accesses: int | None
    busy_ms: int

    @staticmethod
    def read(way: Way) -> "Counts":
        """Read the counters of both nodes."""
        nodes = (way.here.end.node, way.there.end.node)
        source = "virtio[0-9]+-(input|output)" if way.name == "virtio" else "uldma"
        lines = [
            line
            for node in nodes
            for line in node.check("cat /proc/interrupts").splitlines()
            if re.search(source, line)
        ]
        busy = 0
        for node in nodes:
            ticks = [int(word) for word in node.check("head -n 1 /proc/stat").split()[1:]]
            user, nice, system, _idle, _waiting, *others = ticks
            # The last two are parts of the first two.
            busy += user + nice + system + sum(others[:3])
        return Counts(
            sum(_interrupts(line) for line in lines),
            _accesses(way),
            busy * TICK_MS,
        )

    def since(self, before: "Counts") -> "Counts":
        """What was done since then."""
        accesses = None
        if self.accesses is not None and before.accesses is not None:
            accesses = self.accesses - before.accesses
        return Counts(self.interrupts - before.interrupts, accesses, self.busy_ms - before.busy_ms)


def _interrupts(line: str) -> int:
    """Interrupts that a line of /proc/interrupts counts, on all processors of a node."""
    _, *words = line.split()
    return sum(int(word) for word in takewhile(str.isdecimal, words))


def _accesses(way: Way) -> int | None:
    """Doorbells of ivshmem, and all accesses to the adapter; none where they cannot be counted."""
    if way.pair.device:
        return None if way.name == "virtio" else semantics.accesses(way.pair)
    if way.name != "ivshmem":
        return None
    listings = [it.check("ethtool -S {name}") for it in (way.here, way.there)]
    rung = re.findall(r"(?:doorbells|credits)_rung: (\d+)", "".join(listings))
    return sum(map(int, rung))


def stream(way: Way, options: str = "") -> tuple[float, float, Counts]:
    """MB/s that arrive by TCP, the MiB in all, and what that took."""
    with Server.start(way.there, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
        before = Counts.read(way)
        end = iperf(way.here, way.there, f"-t {SECONDS} {options}")["end"]["sum_received"]
        done = Counts.read(way).since(before)
    return end["bits_per_second"] / 8e6, end["bytes"] / (1 << 20), done


def streams(way: Way) -> Iterator[Figure]:
    """One stream with its counts, and eight at a time."""
    rate, mib, done = stream(way)
    yield way.figure("stream", rate, "MB/s")
    yield way.figure("cpu_us_per_mib", done.busy_ms * 1e3 / mib, "us")
    yield way.figure("irqs_per_mib", done.interrupts / mib, "count")
    if done.accesses is not None:
        yield way.figure("accesses_per_mib", done.accesses / mib, "count")
    yield way.figure("stream.8", stream(way, "-P 8")[0], "MB/s")


def streams_by_mtu(way: Way) -> Iterator[Figure]:
    """Streams by MTU, and the MTU that the interface has had so far."""
    own = way.here.attribute("mtu")
    yield way.figure("mtu", int(own), "bytes")
    for mtu in MTUS:
        try:
            for interface in (way.here, way.there):
                interface.check(f"ip link set {{name}} mtu {mtu}")
        except NodesError:
            say(f"{way.name} has no MTU of {mtu}")
        else:
            yield way.figure(f"stream.mtu{mtu}", stream(way)[0], "MB/s")
    for interface in (way.here, way.there):
        interface.check(f"ip link set {{name}} mtu {own}")


def round_trips(way: Way, suffix: str = "") -> Iterator[Figure]:
    """Round trips of one byte by netperf's TCP_RR."""
    with network.netserver(way.there) as netperf:
        before = Counts.read(way)
        wanted = ",".join((*LATENCIES.values(), "TRANSACTION_RATE", "ELAPSED_TIME"))
        said = way.here.check(f"{netperf} -l {SECONDS} -- -r 1,1 -k {wanted}")
        done = Counts.read(way).since(before)
    found = {key: float(value) for key, value in re.findall(r"(\w+)=([0-9.]+)", said)}
    for quantile, key in LATENCIES.items():
        yield way.figure(f"rtt.{quantile}{suffix}", found[key] * 1e3, "ns")
    trips = found["TRANSACTION_RATE"] * found["ELAPSED_TIME"]
    yield way.figure(f"irqs_per_round_trip{suffix}", done.interrupts / trips, "count")
    if done.accesses is not None:
        yield way.figure(f"accesses_per_round_trip{suffix}", done.accesses / trips, "count")


def round_trips_of_pollers(way: Way) -> Iterator[Figure]:
    """The same by programs that poll the interface while they wait, where it can be polled."""
    if way.name in POLLED:
        with network.busy_polling([it.end.node for it in (way.here, way.there)], BUSY_POLL):
            yield from round_trips(way, ".busy_poll")


def datagrams(way: Way) -> Iterator[Figure]:
    """UDP: packets per second that arrive of those that are sent without a limit."""
    for size in DATAGRAMS:
        with Server.start(way.there, "exec iperf3 -s -1 -J -B {address}", IPERF_PORT):
            options = f"-u -b 0 -l {size} -t {SECONDS} --get-server-output"
            report = iperf(way.here, way.there, options)
        end = report["server_output_json"]["end"]["sum"]
        arrived = end["packets"] - end["lost_packets"]
        yield way.figure(f"udp.{size}", arrived / end["seconds"], "1/s")


def measure_way(way: Way) -> list[Figure]:
    """Everything over one way."""
    say(f"measuring the network by {way.name} ...")
    network.wait_reachable((way.here, way.there))
    parts = (streams, streams_by_mtu, round_trips, round_trips_of_pollers, datagrams)
    return [figure for part in parts for figure in part(way)]


@contextmanager
def tun(pair: Cluster, ends: list[Endpoint]) -> Iterator[Way]:
    """Interfaces of the sample."""
    [here, there] = ends
    jobs = [
        there.spawn_sample("rust/tun", f"bridge0 {TUN_MTU} {PORT}"),
        here.spawn_sample("rust/tun", f"bridge0 {TUN_MTU} {PORT} {there.number}"),
    ]
    try:
        for job in jobs:
            job.wait_output("is up", START_TIMEOUT)
        a, b = (Interface(end, "bridge0", network.address_of(end, TUN_NETWORK)) for end in ends)
        for interface in (a, b):
            interface.up()
        yield Way(pair, "tun", a, b)
    finally:
        for job in jobs:
            job.end()


@contextmanager
def ppp(pair: Cluster, ends: list[Endpoint]) -> Iterator[Way]:
    """Interfaces of pppd, by the sample."""
    [here, there] = ends
    a, b = (Interface(end, "ppp0", network.address_of(end, PPP_NETWORK)) for end in ends)
    for end in ends:
        end.node.check("modprobe ppp_async")
    sample = "exec /samples/shell/ppp.sh"
    jobs = [
        there.node.spawn(f"{sample} listen {PORT} {b.address}:{a.address}"),
        here.node.spawn(f"{sample} connect {there.number} {PORT} {a.address}:{b.address}"),
    ]
    try:
        wait_until(
            lambda: all(it.exists() and it.has_link() for it in (a, b)),
            START_TIMEOUT,
            "ppp0 of both nodes",
        )
        yield Way(pair, "ppp", a, b)
    finally:
        for job in jobs:
            job.end()


def own_interfaces(pair: Cluster, name: str) -> Way:
    """The driver's interfaces."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = network.up(ends)
    return Way(pair, name, a, b)


def measure(config: Config) -> list[Figure]:
    """Measures all ways, and writes build/results/network.json."""
    figures: list[Figure] = []
    config = replace(config, programs=True)
    with Cluster("bench-network", config) as pair:
        figures += measure_way(own_interfaces(pair, "adapter"))
        ends = endpoints.of(pair)
        a, b = (Interface(end, "eth0", network.address_of(end, VIRTIO_NETWORK)) for end in ends)
        figures += measure_way(Way(pair, "virtio", a, b))
        for rival in (tun, ppp):
            with rival(pair, ends) as way:
                figures += measure_way(way)
        pair.check_logs()
    with Cluster("bench-network", replace(config, backends=(Backend.IVSHMEM,))) as pair:
        figures += measure_way(own_interfaces(pair, "ivshmem"))
        pair.check_logs()
    figures = relate(figures)
    results.write("network", figures)
    return figures
