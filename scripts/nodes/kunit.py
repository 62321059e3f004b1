# SPDX-License-Identifier: GPL-2.0
"""The module's unit tests, where the kernel has KUnit."""

from .errors import NodesError
from .kernel import SUFFIX
from .ktap import TestCounts
from .node import Node
from .paths import LOGS

SUITES = "/sys/kernel/debug/kunit/uldma_*"
RUN_TIMEOUT = 60.0


def run(node: Node, counts: TestCounts) -> str:
    """Run all suites and count their results; what they say."""
    names = node.check(f"ls -d {SUITES}").split()
    for name in names:
        node.check(f"echo >{name}/run", RUN_TIMEOUT)
    text = node.check(f"cat {SUITES}/results")
    (LOGS / f"kunit{SUFFIX}.log").write_text(text)
    found = [counts.add_ktap("kunit", part) for part in text.split("KTAP version 1\n1..1\n")[1:]]
    if not names or len(found) != len(names) or not all(found):
        raise NodesError(f"results of {found} tests from {len(names)} suites:\n{text}")
    return text
