# SPDX-License-Identifier: GPL-2.0
"""Soft-RoCE on nodes: an RDMA device without hardware, and reads by it, measured by perftest."""

import re
from statistics import median

from ..cluster import Cluster
from ..console import say
from ..node import Node
from ..paths import RDMA
from ..polling import wait_until
from ..results import Figure
from .run import ADDRESS_B

# rdma_rxe does without ib_uverbs; user space does not.
SET_UP = "modprobe ib_uverbs && modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0"
TIMEOUT = 120.0
LISTENS = 20.0
REPORT = "/tmp/perftest.json"
# What is no number there is "nan" or "-nan", which is not JSON.
NUMBER = re.compile(r'"([\w.]+)": ([0-9.]+)')
PORT = 18713
# As /proc/net/tcp has it, with the state of a socket that listens.
LISTENING = f"grep -Eq ':{PORT:04X} [0-9A-F:]+ 0A ' /proc/net/tcp /proc/net/tcp6"
SIZES = {"64": 64, "4k": 4 << 10, "64k": 64 << 10, "256k": 256 << 10}
# How the owner registers what is read: pinned, or paged in by what comes (on-demand paging).
WAYS = {"pinned": "", "odp": "--odp"}
READS = 200
# Only the first read of a process meets pages that the device does not know; perftest makes five.
FEW = 5
PROCESSES = 7


def set_up(node: Node) -> bool:
    """Gives the node an RDMA device, or prints why it has none."""
    if RDMA is None:
        say("no soft-RoCE: scripts/root could not set it up, as was said above")
        return False
    result = node.run(SET_UP)
    if result.rc:
        say(f"no soft-RoCE: {result.stderr.strip()}")
    return result.rc == 0


def reads(pair: Cluster) -> list[Figure]:
    """Reads of node b's memory by node a: opt.rxe.SIZE.WAY, .p99, and .first of the first read."""
    if not (set_up(pair.a) and set_up(pair.b)):
        return []
    figures = []
    for size, length in SIZES.items():
        for way, option in WAYS.items():
            name = f"opt.rxe.{size}.{way}"
            times = _read(pair, length, READS, option)
            firsts = [_read(pair, length, FEW, option)["t_max"] for _ in range(PROCESSES)]
            figures += [
                Figure(name, times["t_typical"] * 1e3, "ns"),
                Figure(f"{name}.p99", times["percentile_99"] * 1e3, "ns"),
                Figure(f"{name}.first", median(firsts) * 1e3, "ns"),
            ]
    return figures


def numbers(report: str) -> dict[str, float]:
    """Returns the numbers of a report of perftest, by name."""
    return {name: float(value) for name, value in NUMBER.findall(report)}


def _read(pair: Cluster, length: int, number: int, option: str) -> dict[str, float]:
    """Runs ib_read_lat on both nodes; the client's times in us, by perftest's names."""
    command = f"ib_read_lat -d rxe0 -p {PORT} -F -s {length} -n {number}"
    server = pair.b.spawn(f"{command} {option}")
    try:
        wait_until(lambda: pair.b.run(LISTENING).rc == 0, LISTENS, "ib_read_lat of node b listens")
        pair.a.check(f"rm -f {REPORT}")
        report = f"--out_json --out_json_file={REPORT}"
        pair.a.check(f"{command} {report} {ADDRESS_B}", TIMEOUT)
        server.wait(TIMEOUT)
    finally:
        if server.running:
            server.kill()
    return numbers(pair.a.check(f"cat {REPORT}"))
