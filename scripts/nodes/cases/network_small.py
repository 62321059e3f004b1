# SPDX-License-Identifier: GPL-2.0
"""Network interfaces over a window of one MiB, as some bridges have."""

from .. import endpoints, network
from ..cluster import Cluster
from ..network import IPERF_PORT, Server, iperf, ping
from ..topologies import IVSHMEM, USUAL
from .registry import case_of, expect

WINDOW = 1 << 20
# Many times the window.
STREAM = 16 << 20


@case_of(USUAL, IVSHMEM)
def window_of_one_mib(pair: Cluster) -> None:
    """Packets of all sizes and streams cross a window that is smaller than what is on its way."""
    with Cluster(f"{pair.scenario}-small", pair.config, window=WINDOW) as small:
        ends = endpoints.of(small)
        endpoints.wait_up(ends)
        sections = [end.info()["window_size"] for end in ends]
        expect(sum(sections) == WINDOW, f"the nodes have {sections} bytes of the window")
        a, b = network.up(ends)
        ping(a, b.address, f"-s {int(a.attribute('mtu')) - 28}")
        for options in ("", "-P 8 --bidir"):
            with Server.start(b, "exec iperf3 -s -1 -B {address}", IPERF_PORT):
                iperf(a, b, f"-n {STREAM} {options}")
        small.check_logs()
