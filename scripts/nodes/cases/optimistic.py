# SPDX-License-Identifier: GPL-2.0
"""Memory that nothing pins, of a device that knows few pages of it at a time."""

from ..cluster import Cluster
from ..kernel import scaled
from ..module import reload
from .registry import case, expect

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
