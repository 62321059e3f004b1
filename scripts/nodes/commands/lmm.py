# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about the locked memory manager: the cost to register memory."""

from typing import Any

from .. import probes, results
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..module import reload
from ..node import Node
from ..report.lmm import relate
from ..results import Figure
from . import soft_roce

TIMEOUT = 1200.0
STEP_TIMEOUT = 60.0
# Parts for a module as it is by default, and for one that leaves areas apart.
MERGED = "--part sizes --part counts --part pages --part load --part cache"
UNMERGED = "--part areas --part load"
# The steps of uldma-bench lmm-steps, in its order.
STEPS = (
    "idle",
    "register.first",
    "register.again",
    "deregister.again",
    "deregister.first",
    "register.more",
    "cleanup",
)
FIFO = "/tmp/lmm-go"


def run(node: Node, options: str) -> list[Figure]:
    """Returns the figures of uldma-bench lmm, compared with each other."""
    return relate(probes.run(node, f"lmm {options}", TIMEOUT))


def counters(pair: Cluster) -> dict[str, int]:
    """Reads the device's counters of node a: accesses to its control registers, invalidations."""
    assert pair.device
    stats: Any = pair.device.control("stats")["stats"]
    counted = stats["nodes"][0]["counters"]
    return {
        "mmio": counted["control_loads"] + counted["control_stores"],
        "invalidations": counted["invalidations"],
    }


def device_counts(pair: Cluster) -> list[Figure]:
    """Counts what reaches the device in each step, by registration."""
    figures = []
    pair.a.check(f"rm -f {FIFO} && mkfifo {FIFO}")
    job = pair.a.spawn(f"uldma-bench lmm-steps {FIFO}")
    job.wait_output("ready", STEP_TIMEOUT)
    for step in STEPS:
        before = counters(pair)
        pair.a.check(f"echo > {FIFO}", STEP_TIMEOUT)
        job.wait_output(f"{step} ", STEP_TIMEOUT)
        lines = job.text().splitlines()
        if not lines or not lines[-1].startswith(step):
            raise NodesError(f"uldma-bench lmm-steps: {step}: {job.text('err')}")
        number = int(lines[-1].split()[1])
        after = counters(pair)
        figures += [
            Figure(f"lmm.{what}.{step}", (after[what] - before[what]) / number, "count")
            for what in before
        ]
    if job.wait(STEP_TIMEOUT).rc:
        raise NodesError(f"uldma-bench lmm-steps: {job.text('err')}")
    return figures


def measure(pair: Cluster) -> list[Figure]:
    """Measures on node a, and writes build/results/lmm.json and lmm-*.svg."""
    soft_roce.set_up(pair.a)
    say("measuring registration ...")
    figures = run(pair.a, MERGED)
    figures += device_counts(pair)
    say("measuring registration with areas that are not merged ...")
    reload(pair.a, "merge=0")
    try:
        figures += run(pair.a, UNMERGED)
    finally:
        reload(pair.a)
    results.write("lmm", figures)
    return figures
