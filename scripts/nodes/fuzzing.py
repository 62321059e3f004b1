# SPDX-License-Identifier: GPL-2.0
"""Fuzzers that run on nodes."""

import re

from . import endpoints
from .agent import Result
from .cluster import Cluster
from .errors import NodesError
from .kernel import scaled
from .qemu import Backend

PROGRAM = "/kselftest/uldma/uldma_fuzz"
SERVER_TIMEOUT = 20.0
# For a failed sequence to be made shorter.
MORE_SECONDS = 240.0


def wait_up(cluster: Cluster) -> None:
    """Wait until the devices of the nodes see each other."""
    for backend in cluster.config.backends:
        found = endpoints.find(cluster, backend)
        if backend is Backend.LOOPBACK:
            found = [end for end in found if end.node is cluster.a]
        endpoints.wait_up(found)


def successes(result: Result) -> dict[str, int]:
    """How often each call has succeeded."""
    rows = re.findall(r"^# ([A-Z_]+) +(?:success (\d+))?", result.stdout, re.MULTILINE)
    return {name: int(count or 0) for name, count in rows}


def interface(
    cluster: Cluster, seconds: int, seed: int | None, replay: str = "", more: str = ""
) -> Result:
    """Fuzz the user interface on node A; raise NodesError with what it says if that fails."""
    wait_up(cluster)
    options = f"-s {seconds}" + (f" -S {seed}" if seed is not None else "")
    if replay:
        options = f"-r {replay} -v"
    options += f" {more}"
    limit = seconds / scaled(1.0) + MORE_SECONDS
    server = None
    if Backend.ADAPTER in cluster.config.backends:
        options += " -p"
        server = cluster.b.spawn(f"{PROGRAM} serve")
        server.wait_output("ready", SERVER_TIMEOUT)
    try:
        result = cluster.a.run(f"{PROGRAM} {options}", limit)
    finally:
        if server:
            server.end()
    if result.rc or not re.search(r"^ok 1 ", result.stdout, re.MULTILINE):
        raise NodesError(f"uldma_fuzz: exit {result.rc}\n{result.stdout}{result.stderr}")
    cluster.check_logs()
    return result
