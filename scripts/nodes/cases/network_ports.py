# SPDX-License-Identifier: GPL-2.0
"""The network interface as a device of the stack: time stamps, ports of bridges, VLANs."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints, network
from ..cluster import Cluster
from ..network import IPERF_PORT, PROGRAM_TIMEOUT, Interface, Server, ping
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

STAMPER = "/kselftest/uldma/uldma_timestamp"
# Nothing has to listen there.
PORT = 9
# The largest MTU that any Ethernet interface has.
LARGEST = 65535
# The smallest of IPv4.
SMALLEST = 68
# What the kernel has learnt of paths it forgets after minutes, or now.
FORGET_PATHS = "sysctl -w net.ipv4.route.flush=1"
LONG_DATAGRAM = 30000
# An address that no node has: of the driver's prefix, and of another one.
UNKNOWN = ("02:75:6c:00:00:07", "02:00:00:00:00:01")
NEIGHBOUR = "10.117.0.99"
TAGS = (5, 6)
TAGGED = "10.121.0.{}"
# Of IPv4 and ICMP.
HEADERS = 28


def interfaces(pair: Cluster) -> list[Interface]:
    """The two interfaces, which reach each other."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    return network.up(ends)


@case_of(USUAL, IVSHMEM)
def sent_packets_have_time_stamps(pair: Cluster) -> None:
    """A program gets the time at which its datagram was sent, as ethtool says."""
    here, there = interfaces(pair)
    able = here.check("ethtool -T {name}")
    expect("software-transmit" in able, f"no software time stamps of sent packets:\n{able}")
    said = here.run(f"{STAMPER} {there.address} {PORT}")
    expect(said.rc == 0, f"{STAMPER}: {said}")


@case_of(USUAL, IVSHMEM)
def a_bridge_refuses_it(pair: Cluster) -> None:
    """No station can be behind the interface, so a bridge does not take it."""
    here, there = interfaces(pair)
    here.check("modprobe bridge && ip link add br-test type bridge")
    try:
        result = here.run("ip link set {name} master br-test")
        expect(result.rc != 0, f"{here} is a port of a bridge")
    finally:
        here.check("ip link del br-test")
    ping(here, there.address)


@case_of(USUAL, IVSHMEM)
def packets_for_unknown_addresses_count(pair: Cluster) -> None:
    """What no node has the address of is dropped, and counted."""
    here, _ = interfaces(pair)

    def unknown() -> int:
        [count] = re.findall(r" tx_unknown: (\d+)", here.check("ethtool -S {name}"))
        return int(count)

    for address in UNKNOWN:
        before, dropped = unknown(), int(here.attribute("statistics/tx_dropped"))
        here.check(f"arp -i {{name}} -s {NEIGHBOUR} {address}")
        try:
            here.run(f"{network.PING} -c 1 -W 1 -I {{name}} {NEIGHBOUR}")
        finally:
            here.check(f"arp -i {{name}} -d {NEIGHBOUR}")
        expect(unknown() > before, f"{address}: no packet was counted")
        after = int(here.attribute("statistics/tx_dropped"))
        expect(after > dropped, f"{address}: no packet was dropped")


@contextmanager
def tagged(interface: Interface, number: int) -> Iterator[Interface]:
    """A VLAN in a VLAN on the interface, all with the largest MTU that they take."""
    outer, inner = (f"{interface.name}.{tag}" for tag in TAGS)
    usual = interface.attribute("mtu")
    sizes = f"$(seq {LARGEST} -1 {usual})"
    try:
        interface.check(f"for m in {sizes}; do ip link set {{name}} mtu $m && break; done 2>&1")
        interface.check("modprobe 8021q")
        for lower, name, tag in ((interface.name, outer, TAGS[0]), (outer, inner, TAGS[1])):
            interface.check(f"ip link add link {lower} name {name} type vlan id {tag}")
            interface.check(f"ip link set {name} mtu $(cat /sys/class/net/{lower}/mtu) up")
        interface.check(f"ip addr add {TAGGED.format(number)}/24 dev {inner}")
        yield Interface(interface.end, inner, TAGGED.format(number))
    finally:
        interface.run(f"ip link del {inner}; ip link del {outer}")
        interface.check(f"ip link set {{name}} mtu {usual}")


@case_of(USUAL, IVSHMEM)
def a_vlan_in_a_vlan_has_the_mtu(pair: Cluster) -> None:
    """Packets as long as the MTU cross with two tags."""
    first, second = interfaces(pair)
    with tagged(first, 1) as here, tagged(second, 2) as there:
        network.wait_reachable((here, there))
        mtu = int(here.attribute("mtu"))
        expect(mtu == int(first.attribute("mtu")), f"{here} has an MTU of {mtu}")
        ping(here, there.address, f"-M do -s {mtu - HEADERS}")


@case_of(USUAL, IVSHMEM)
def the_smallest_mtu_leaves_nothing_behind(pair: Cluster) -> None:
    """Streams go on while the MTU is the smallest; afterwards packets are as long as before."""
    here, there = interfaces(pair)
    usual = int(here.attribute("mtu"))

    def sent() -> int:
        return int(here.attribute("statistics/tx_packets"))

    streams = f"exec iperf3 -c {there.address} -P 3 -t 4"
    with Server.start(there, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
        job = here.spawn(streams)
        network.wait_flow(there)
        try:
            here.check(f"ip link set {{name}} mtu {SMALLEST}")
            before = sent()
            wait_until(lambda: sent() > before + 100, network.FLOW_TIMEOUT, "small packets")
        finally:
            here.check(f"ip link set {{name}} mtu {usual}")
        expect(job.wait(PROGRAM_TIMEOUT).rc == 0, f"{streams}: {job.text('err')}")
    here.check(FORGET_PATHS)
    ping(here, there.address, f"-M do -s {usual - HEADERS}")
    ping(here, there.address, f"-s {LONG_DATAGRAM}")
