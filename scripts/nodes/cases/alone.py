# SPDX-License-Identifier: GPL-2.0
"""A node whose peer never comes up."""

from ..cluster import Cluster
from .registry import case, expect

TESTS = (("uldma_export", "import_without_peer"), ("uldma_segment", "attach_without_peer"))


@case
def missing_peer_is_told(pair: Cluster) -> None:
    """What needs the peer fails at once and says so; these tests skip where there is one."""
    with Cluster(f"{pair.scenario}-alone", pair.config, names="a") as alone:
        for program, test in TESTS:
            output = alone.a.check(f"cd /kselftest/uldma && ./{program} -t {test}")
            expect("pass:1 " in output, f"{program} -t {test} did not run:\n{output}")
        alone.check_logs()
