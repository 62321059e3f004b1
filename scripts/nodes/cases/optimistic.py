# SPDX-License-Identifier: GPL-2.0
"""Memory that nothing pins, on nodes and devices that programs alone do not find."""

from dataclasses import replace

from .. import endpoints, leftovers
from ..cluster import Cluster
from ..kernel import scaled
from ..module import reload
from ..node import Node
from .registry import Skip, case, expect

# The least that the driver works with.
ENTRIES = 64
# What the program says without the parameter.
REASON = "needs a module"
TIMEOUT = 240.0


@case
def few_pages_at_a_time(pair: Cluster) -> None:
    """Pages that the device has not accessed for long make room for others."""
    reload(pair.a, f"optimistic_entries={ENTRIES}")
    try:
        program = "./uldma_optimistic_limit"
        result = pair.a.run(f"cd /kselftest/uldma && {program}", scaled(TIMEOUT))
        output = result.stdout + result.stderr
        expect(result.rc == 0, f"exit {result.rc}\n{output}")
        expect(REASON not in output, f"{program} ran as without the parameter:\n{output}")
    finally:
        reload(pair.a)


def run_variant(node: Node, program: str, variant: str) -> None:
    """Run a variant of a kselftest program, which is not skipped."""
    result = node.run(f"/kselftest/uldma/{program} -v {variant}", scaled(TIMEOUT))
    output = result.stdout + result.stderr
    expect(result.rc == 0, f"{program}, {variant}: exit {result.rc}\n{output}")
    expect("# SKIP" not in output, f"{program}, {variant} was skipped:\n{output}")


@case
def pages_move_between_nodes_of_memory(pair: Cluster) -> None:
    """The kernel moves pages to other nodes of memory, when told to and by itself.

    It does so while the machine itself uses them by its device, and while the other one does.
    """
    config = replace(pair.config, memory_nodes=2)
    with Cluster(f"{pair.scenario}-memory", config) as nodes:
        if nodes.a.run("test -e /sys/devices/system/node").rc:
            raise Skip("the kernel has no CONFIG_NUMA")
        for variant in ("migrated", "balanced"):
            run_variant(nodes.a, "uldma_optimistic_stamps", variant)
        a, b = endpoints.of(nodes)
        endpoints.wait_up((a, b))
        server = b.node.spawn("exec /kselftest/uldma/uldma_peer_stamps serve")
        try:
            server.wait_output("ready", TIMEOUT)
            run_variant(a.node, "uldma_peer_stamps run", "migrated")
        finally:
            server.end()
        nodes.check_logs()
        leftovers.check(nodes)
