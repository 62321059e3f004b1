# SPDX-License-Identifier: GPL-2.0
"""Memory that goes from one user to another, on a kernel that does not clear it."""

from dataclasses import replace

from ..cluster import Cluster
from .registry import case, expect

TIMEOUT = 120.0


@case
def of_another_user(pair: Cluster) -> None:
    """No user reads what another one has left in memory that the driver gives out (C-030)."""
    # Otherwise the kernel clears all pages that it allocates, for whatever purpose.
    config = replace(pair.config, cmdline="init_on_alloc=0")
    with Cluster(f"{pair.scenario}-secrets", config, names="a") as dirty:
        said = dirty.a.check("dmesg | grep 'mem auto-init'")
        expect("heap alloc:off" in said, f"the kernel clears pages: {said}")
        result = dirty.a.run("cd /kselftest/uldma && ./uldma_secret", TIMEOUT)
        expect(result.rc == 0, f"exit {result.rc}\n{result.stdout}{result.stderr}")
        dirty.check_logs()
