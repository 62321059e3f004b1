# SPDX-License-Identifier: GPL-2.0
"""Memory that nothing pins, on nodes and devices that programs alone do not find."""

from dataclasses import replace

from .. import leftovers
from ..cluster import Cluster
from ..kernel import scaled
from ..module import reload
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


@case
def pages_move_between_nodes_of_memory(pair: Cluster) -> None:
    """The kernel moves pages to other nodes of memory, when told to and by itself."""
    config = replace(pair.config, memory_nodes=2)
    with Cluster(f"{pair.scenario}-memory", config, names="a") as machine:
        if machine.a.run("test -e /sys/devices/system/node").rc:
            raise Skip("the kernel has no CONFIG_NUMA")
        for variant in ("migrated", "balanced"):
            program = f"/kselftest/uldma/uldma_optimistic_stamps -v {variant}"
            result = machine.a.run(program, scaled(TIMEOUT))
            output = result.stdout + result.stderr
            expect(result.rc == 0, f"exit {result.rc}\n{output}")
            expect("# SKIP" not in output, f"{variant} was skipped:\n{output}")
        machine.check_logs()
        leftovers.check(machine)
