# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about messages: each technique of sending and of receiving."""

from collections.abc import Sequence
from dataclasses import replace

from .. import endpoints, probes, results
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..qemu import Config
from ..report.semantics import relate
from ..results import Figure
from .link import PACE

TIMEOUT = 900.0
# Bytes of the window, in which PIO of all pairs of techniques has its slots at the same time.
WINDOW = 256 << 20
# A round trip of short messages does not depend on the engine's speed.
PACED_PARTS = "match,send,recv,pair,slots,mtu,overwrite"
# Messages of two streams, whose accesses to the device are counted: the difference of both leaves
# the accesses of opening and closing out.
FEW, MANY = 1_000, 21_000
# The sizes of these messages.
COUNTED = ("4k", "64k")
# Processors of nodes whose pins and page exchanges are compared, and the messages for that.
CPUS = (1, 2, 4)
COMPARED = "--parts send,recv,overwrite --sizes 64k"
# All accesses of programs and of the driver that leave a node for the device.
ACCESSES = (
    *("control_loads", "control_stores", "page_loads", "page_stores"),
    *("shadow_loads", "shadow_stores", "window_accesses"),
)


def run(here: Endpoint, there: Endpoint, options: str = "", common: str = "") -> list[Figure]:
    """Returns the figures of uldma-bench semantics between two ends."""
    return probes.run_with_server(here, there, f"semantics {options}", TIMEOUT, common)


def accesses(pair: Cluster) -> int:
    """Returns how often both nodes have accessed the device so far."""
    assert pair.device
    nodes = (pair.device.node(number)["counters"] for number in range(len(pair.names)))
    return sum(counters[name] for counters in nodes for name in ACCESSES)


def accesses_of(pair: Cluster, size: str, count: int) -> int:
    """Returns the accesses to the device while so many messages are sent, with all around them."""
    [here, there] = endpoints.of(pair)
    before = accesses(pair)
    run(here, there, f"--parts match --sizes {size} --count {count}")
    return accesses(pair) - before


def accesses_by_message(pair: Cluster) -> list[Figure]:
    """Counts the accesses to the device by message, in streams that keep both nodes busy."""
    figures = []
    for size in COUNTED:
        say(f"counting accesses to the device for messages of {size} ...")
        few, many = (accesses_of(pair, size, count) for count in (FEW, MANY))
        by_message = (many - few) / (MANY - FEW)
        figures.append(Figure(f"sem.match.stream.{size}.mmio_per_message", by_message, "count"))
    return figures


def measure(pair: Cluster) -> list[Figure]:
    """Measures between two adapters, and writes build/results/semantics.json."""
    [here, there] = endpoints.of(pair)
    say("measuring messages by each technique ...")
    figures = relate([*run(here, there), *accesses_by_message(pair)])
    add(figures)
    return figures


def paced(config: Config) -> list[Figure]:
    """Measures in brief with an engine that is slow beside the processors of the nodes."""
    options = ["--bandwidth", str(PACE)]
    with Cluster("bench-semantics", config, window=WINDOW, device_options=options) as pair:
        [here, there] = endpoints.of(pair)
        say(f"measuring messages by each technique with {' '.join(options)} ...")
        figures = relate(run(here, there, f"--parts {PACED_PARTS} --suffix paced"))
        pair.check_logs()
    return figures


def by_processors(config: Config) -> list[Figure]:
    """Measures programs whose other threads keep every other processor of their node busy."""
    figures = []
    for cpus in CPUS:
        say(f"measuring pins and page exchanges on {cpus} processors ...")
        with Cluster("bench-semantics", replace(config, cpus=cpus), window=WINDOW) as pair:
            [here, there] = endpoints.of(pair)
            threads = f"--busy-threads {cpus - 1}"
            figures += run(here, there, f"{COMPARED} --suffix cpus{cpus}", threads)
            pair.check_logs()
    return figures


def add(figures: Sequence[Figure]) -> None:
    """Writes all figures."""
    results.write("semantics", figures)
