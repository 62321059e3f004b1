# SPDX-License-Identifier: GPL-2.0
"""Byte queue limits of the network interface."""

import re

from .. import endpoints, network
from ..cluster import Cluster
from ..endpoints import UP_TIMEOUT
from ..network import IPERF_PORT, Interface, Server, iperf
from ..polling import wait_until
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

# The queue of the only peer; queue 0 is for groups.
LIMITS = "/sys/class/net/{name}/queues/tx-1/byte_queue_limits"
# The kernel's word for no maximum.
NO_LIMIT = "max"
STREAM = 4 << 20


def limited(interface: Interface) -> int:
    """Number of times that the stack stopped the queue by its limit."""
    [count] = re.findall(r"_tx_limited: (\d+)", interface.check("ethtool -S {name}"))
    return int(count)


@case_of(USUAL, IVSHMEM)
def stack_holds_packets_back(pair: Cluster) -> None:
    """With a limit of one byte each packet waits for the one before; all arrive."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    here, there = network.up(ends)
    before = limited(here)
    here.check(f"echo 1 >{LIMITS}/limit_max")
    try:
        with Server.start(there, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
            report = iperf(here, there, f"-n {STREAM}")
    finally:
        here.check(f"echo {NO_LIMIT} >{LIMITS}/limit_max")
    received = report["end"]["sum_received"]["bytes"]
    packets = received // (1 << 16)
    expect(limited(here) - before >= packets, f"{here} was not limited by {packets} packets")
    wait_until(
        lambda: here.check(f"cat {LIMITS}/inflight").strip() == "0",
        UP_TIMEOUT,
        f"nothing on its way from {here}",
    )
