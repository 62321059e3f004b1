# SPDX-License-Identifier: GPL-2.0
"""The network interface as a device of the stack: time stamps."""

from .. import endpoints, network
from ..cluster import Cluster
from ..network import Interface
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

STAMPER = "/kselftest/uldma/uldma_timestamp"
# Nothing has to listen there.
PORT = 9


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
