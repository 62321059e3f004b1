# SPDX-License-Identifier: GPL-2.0
"""What the first process of a node, which runs all commands, has to survive."""

from ..cluster import Cluster
from ..topologies import LOOPBACK
from .registry import case_of, expect

# Around what the shell takes as one argument, and much more.
SIZES = (65535, 65536, 65537, 131072, 8 << 20)
TIMEOUT = 120.0


@case_of(LOOPBACK)
def scripts_have_any_size(pair: Cluster) -> None:
    """All of a script runs, as any user, and the node lives on."""
    last = "echo end; exit 3\n"
    for size in SIZES:
        for uid in (0, 1000):
            lines = "# a line that says nothing\n" * ((size - 28) // 27)
            script = f"echo begin\n{lines}{last.rjust(size - 11 - len(lines))}"
            result = pair.a.run(script, TIMEOUT, uid=uid)
            expect(
                (result.rc, result.stdout) == (3, "begin\nend\n"),
                f"{size} bytes, user {uid}: exit {result.rc}\n{result.stdout}{result.stderr}",
            )
