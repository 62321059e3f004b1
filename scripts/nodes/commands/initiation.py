# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about initiation methods: the cost to start a transfer."""

import json
import subprocess
from collections.abc import Sequence

from .. import endpoints, probes, results, touches
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..module import reload
from ..node import Node
from ..paths import BUILD, REPO
from ..qemu import Config
from ..report.initiation import of_latency, relate
from ..results import Figure

TIMEOUT = 600.0
DMA_TIMEOUT = 120.0
MODEL_TIMEOUT = 900.0
# Nanoseconds that the device adds to each access, run by run.
LATENCIES = (0, 50_000, 200_000)
# Transfers by the kernel whose accesses the device counts: the difference of two runs leaves all
# other accesses out.
FEW, MANY = 100, 600


def allow_all_methods(node: Node) -> None:
    """Loads the module so that contexts can have methods that are not secure."""
    reload(node, "insecure_methods=1")


def control_accesses(pair: Cluster, transfers: int) -> dict[str, int]:
    """Counts accesses to node a's control registers while the kernel starts so many transfers."""
    assert pair.device
    before = pair.device.control("stats")["stats"]["nodes"][0]["counters"]
    pair.a.check(f"uldma dma --method kernel --size 64 --count {transfers}", DMA_TIMEOUT)
    after = pair.device.control("stats")["stats"]["nodes"][0]["counters"]
    return {what: after[what] - before[what] for what in ("control_stores", "control_loads")}


def kernel_accesses(pair: Cluster) -> list[Figure]:
    """Counts the accesses of the kernel's driver for one transfer: its start and its end."""
    few, many = control_accesses(pair, FEW), control_accesses(pair, MANY)
    return [
        Figure(f"init.kernel.{what}", (many[what] - few[what]) / (MANY - FEW), "count")
        for what in few
    ]


def slower_devices(config: Config) -> list[Figure]:
    """Measures times with devices that delay each access, each in a run of its own."""
    figures = []
    for latency in LATENCIES:
        say(f"measuring initiations with {latency / 1000:g} us more for each access ...")
        options = ["--access-ns", str(latency)]
        with Cluster("bench-latency", config, names="a", device_options=options) as pair:
            allow_all_methods(pair.a)
            figures += of_latency(probes.run(pair.a, "initiation --times", TIMEOUT), latency)
            pair.check_logs()
    return figures


def model_rates() -> list[Figure]:
    """Measures descriptors per second through one queue of the device model, without any node."""
    say("measuring the queue of the device model on this machine ...")
    command = [
        *("cargo", "bench", "--manifest-path", str(REPO / "tools/uldma/Cargo.toml"), "--locked"),
        *("-p", "uldma-device", "--bench", "queue", "--target-dir", str(BUILD / "cargo")),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=MODEL_TIMEOUT, check=False
    )
    if done.returncode:
        raise NodesError(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return [Figure.parse(entry) for entry in json.loads(done.stdout)]


def measure(pair: Cluster) -> list[Figure]:
    """Measures on node a, without a peer, and writes build/results/initiation.json."""
    say("measuring initiations ...")
    allow_all_methods(pair.a)
    try:
        figures = relate(probes.run(pair.a, "initiation", TIMEOUT))
    finally:
        reload(pair.a)
    figures += kernel_accesses(pair)
    endpoints.wait_up(endpoints.of(pair))
    figures += touches.measure(pair)
    figures += model_rates()
    results.write("initiation", figures)
    return figures


def add(figures: Sequence[Figure]) -> None:
    """Writes all figures again, with those that came later."""
    results.write("initiation", figures)
