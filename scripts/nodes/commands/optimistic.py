# SPDX-License-Identifier: GPL-2.0
"""The part of nodes bench about memory that is not pinned: transfers of it, and what it costs."""

from dataclasses import replace

from .. import endpoints, probes, results
from ..cluster import Cluster
from ..console import say
from ..qemu import Config
from ..results import Figure

TIMEOUT = 900.0
# MiB of each node: 1 GiB is registered, and its pages are there.
MEMORY = 2048


def measure(config: Config) -> list[Figure]:
    """Measures between two adapters, and writes build/results/optimistic.json."""
    with Cluster("bench-optimistic", replace(config, memory=MEMORY)) as pair:
        [here, there] = endpoints.of(pair)
        say("measuring transfers of memory that is not pinned ...")
        figures = probes.run_with_server(here, there, "optimistic", TIMEOUT)
        pair.check_logs()
    results.write("optimistic", figures)
    return figures
