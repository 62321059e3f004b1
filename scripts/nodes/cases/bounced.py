# SPDX-License-Identifier: GPL-2.0
"""A node whose kernel copies what a device reads and writes (swiotlb=force)."""

from dataclasses import replace

from .. import leftovers
from ..cluster import Cluster
from ..node import Node
from .registry import case, expect

METHODS = ("kernel", "extended-shadow")


def refused(node: Node) -> bool:
    """Whether nothing can be registered: by no method, or for want of the device itself."""
    if node.run("test -c /dev/uldma0").rc:
        return not node.run("dmesg | grep -q 'uldma.* probe .* failed'").rc
    return all(node.run(f"uldma dma --size 64K --method {method}").rc == 1 for method in METHODS)


@case
def registering_is_refused(pair: Cluster) -> None:
    """Memory of which the device would see only a copy is refused, and not kept pinned."""
    config = replace(pair.config, cmdline="swiotlb=force")
    with Cluster(f"{pair.scenario}-bounced", config, names="a") as bounced:
        forced = bounced.a.run("dmesg | grep -qi 'swiotlb=force'").rc == 0
        expect(forced, "the kernel was not told to bounce")
        expect(refused(bounced.a), "memory could be registered, and the device sees a copy of it")
        left = leftovers.find(bounced.a)
        expect(not left, f"left behind: {left}")
        bounced.check_logs()
