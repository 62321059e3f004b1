# SPDX-License-Identifier: GPL-2.0
"""Memory that a kernel holds and nothing points to, as kmemleak sees it."""

from .cluster import Cluster
from .errors import Defect, NodesError
from .module import unload

KMEMLEAK = "/sys/kernel/debug/kmemleak"
# An object is told of when a scan finds it older than five seconds and unchanged since the last.
AGE = 6
SCAN_TIMEOUT = 60.0


def _scan(pair: Cluster, when: str, age: int) -> None:
    command = f"echo scan >{KMEMLEAK} && sleep {age} && echo scan >{KMEMLEAK} && cat {KMEMLEAK}"
    jobs = {name: node.spawn(command) for name, node in pair.nodes.items()}
    for name, job in jobs.items():
        result = job.wait(SCAN_TIMEOUT)
        if result.rc:
            raise NodesError(
                f"node {name}, {when}: kmemleak does not scan; if it had no memory left, "
                f"the kernel's log says so:\n{result.stderr}"
            )
        if result.stdout:
            raise Defect(f"node {name}, {when}: kmemleak:\n{result.stdout}")


def check(pair: Cluster) -> None:
    """Look twice: what the module's own variables point to shows only when it is gone."""
    _scan(pair, "with the module loaded", AGE)
    for node in pair.nodes.values():
        unload(node)
    _scan(pair, "with the module unloaded", 0)
