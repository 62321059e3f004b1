# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about memory that is not pinned: transfers of it, and what it costs."""

from dataclasses import replace

from .. import endpoints, probes, results
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..module import reload
from ..node import Node
from ..qemu import Config, Disk
from ..results import Figure
from . import soft_roce

TIMEOUT = 900.0
# MiB of each node: 1 GiB is registered, and its pages are there.
MEMORY = 2048
# One on which each access takes as long as on a disk that turns, and one that is fast.
DISKS = (Disk(16, latency=8_000_000), Disk(64))
# What a transfer misses comes alone, and not with what is beside it on the disk.
USE_DISKS = (
    "modprobe virtio_blk && for it in vda vdb; do echo 0 >/sys/block/$it/queue/read_ahead_kb; done"
)
USE_GROUPS = (
    "mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && "
    "echo +memory >/sys/fs/cgroup/cgroup.subtree_control"
)
# Pages that the owner's device may know; its process has a quarter of them. The last has all pages.
LIMITS = (1024, 2048, 4096, 8192, 16384)
# The largest cache that is counted; the device counts smaller ones, too.
TLB = 8192
PATTERNS = ("uniform", "zipf", "sequential")
READS = 32768


def entries(here: Endpoint, there: Endpoint, owner: Node) -> list[Figure]:
    """Measures with a module that enters few pages."""
    figures = []
    try:
        for limit in LIMITS:
            reload(owner, f"optimistic_entries={limit}")
            for figure in probes.run_with_server(
                here, there, "optimistic --parts entries", TIMEOUT
            ):
                pattern = figure.name.removeprefix("opt.entries.")
                figures.append(replace(figure, name=f"opt.entries.{limit}.{pattern}"))
    finally:
        reload(owner)
    return figures


def translations(config: Config) -> list[Figure]:
    """Has the device count what caches of translations would have at the owner."""
    options = ["--tlb", str(TLB)]
    with Cluster("bench-optimistic-tlb", config, device_options=options) as pair:
        [here, there] = endpoints.of(pair)
        assert pair.device

        def misses(pattern: str, reads: int) -> dict[str, int]:
            """Look-ups that each size has missed in one run."""
            assert pair.device
            before = pair.device.node(there.number)["tlb"]
            arguments = f"optimistic --parts translations --pattern {pattern} --reads {reads}"
            probes.run_with_server(here, there, arguments, TIMEOUT)
            after = pair.device.node(there.number)["tlb"]
            lookups = after["lookups"] - before["lookups"]
            return {
                size: lookups - (hits - before["hits"][size])
                for size, hits in after["hits"].items()
            }

        # The first look-ups of all pages, and those for messages: nearly as many each time.
        others = misses(PATTERNS[0], 0)
        figures = [
            Figure(f"opt.tlb.{pattern}.{size}", max(missed - others[size], 0) / READS, "part")
            for pattern in PATTERNS
            for size, missed in misses(pattern, READS).items()
        ]
        pair.check_logs()
    return figures


def measure(config: Config) -> list[Figure]:
    """Measures between two adapters, and writes build/results/optimistic.json."""
    with Cluster("bench-optimistic", replace(config, memory=MEMORY, disks=DISKS)) as pair:
        [here, there] = endpoints.of(pair)
        say("measuring transfers of memory that is not pinned ...")
        figures = probes.run_with_server(here, there, "optimistic", TIMEOUT)
        say("measuring transfers of what is on a disk ...")
        pair.b.check(f"{USE_DISKS} && {USE_GROUPS}")
        figures += probes.run_with_server(here, there, "optimistic --parts disk,stale", TIMEOUT)
        say("measuring transfers where the device knows few pages ...")
        figures += entries(here, there, pair.b)
        say("measuring reads by soft-RoCE ...")
        figures += soft_roce.reads(pair)
        pair.check_logs()
    say("counting translations ...")
    figures += translations(config)
    results.write("optimistic", figures)
    return figures
