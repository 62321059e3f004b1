# SPDX-License-Identifier: GPL-2.0
"""Counts how often a word crosses the memory bus of the host that sends it."""

from .cluster import Cluster
from .errors import NodesError
from .results import Figure

BYTES = 4 << 20
WORD = 8
PORT = 820
TIMEOUT = 120.0
# The way of each method of `uldma send-file`, and the processor's accesses for each word. Those of
# a remote write are computed: its loop has one load and one store, and no processor counts them
# here. The device counts its own, and the accesses that start its transfers.
METHODS = {"window": ("remote_write", 2.0), "extended-shadow": ("dma", 0.0)}
STARTS = ("control_stores", "page_loads", "page_stores", "shadow_loads", "shadow_stores")


def counters(pair: Cluster) -> dict[str, int]:
    """Returns the device's counters of node a."""
    assert pair.device
    found: dict[str, int] = pair.device.control("stats")["stats"]["nodes"][0]["counters"]
    return found


def measure(pair: Cluster) -> list[Figure]:
    """Sends a file by each way, and returns touches.WAY.processor and touches.WAY.device."""
    figures = []
    pair.a.check(f"head -c {BYTES} /dev/urandom >/tmp/touches")
    for method, (way, computed) in METHODS.items():
        receiver = pair.b.spawn(f"uldma recv-file --port {PORT} --out /tmp/touches")
        try:
            before = counters(pair)
            command = f"uldma send-file --port {PORT} --method {method} /tmp/touches"
            pair.a.check(command, TIMEOUT)
            after = counters(pair)
            received = receiver.wait(TIMEOUT)
        finally:
            if receiver.running:
                receiver.kill()
        if received.rc:
            raise NodesError(f"recv-file: exit {received.rc}: {received.stderr}")
        words = BYTES / WORD
        started = sum(after[name] - before[name] for name in STARTS)
        moved = after["bytes_to_peer"] - before["bytes_to_peer"]
        processor = computed if computed else started / words
        figures += [
            Figure(f"touches.{way}.processor", processor, "count"),
            Figure(f"touches.{way}.device", moved / BYTES, "count"),
        ]
    pair.a.check("rm /tmp/touches")
    pair.b.check("rm /tmp/touches")
    return figures
