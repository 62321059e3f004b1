# SPDX-License-Identifier: GPL-2.0
"""nodes kunit: the module's unit tests, which run where KUnit is when the module is loaded."""

from collections.abc import Sequence

from ..errors import NodesError
from ..kernel import SUFFIX
from ..node import Node
from ..pair import Pair
from ..paths import LOGS
from ..tally import Tally

SUITES = "/sys/kernel/debug/kunit/uldma_*"


def collect(node: Node, tally: Tally) -> int:
    """Count the results that loading the module has left; how many there are."""
    names = node.check(f"cd /sys/kernel/debug/kunit && ls -d {SUITES}").split()
    text = node.check(f"cat {SUITES}/results")
    (LOGS / "kunit.log").write_text(text)
    counts = [tally.add_ktap("kunit", part) for part in text.split("KTAP version 1\n1..1\n")[1:]]
    if not names or len(counts) != len(names) or not all(counts):
        raise NodesError(f"results of {counts} tests from {len(names)} suites:\n{text}")
    if tally.failed:
        print(text, flush=True)
    return sum(counts)


def main(arguments: Sequence[str]) -> int:
    """The verb. One node without a device is enough."""
    if arguments:
        raise NodesError("kunit takes no options")
    tally = Tally()
    with Pair(f"kunit{SUFFIX}", names="a", device=False) as pair:
        collect(pair.a, tally)
        pair.check_logs()
    for name in tally.failed:
        print(f"FAILED: {name}")
    print(tally.closing_line(), flush=True)
    return 1 if tally.failed else 0
