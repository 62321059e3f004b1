# SPDX-License-Identifier: GPL-2.0
"""nodes kunit: only the module's unit tests."""

from collections.abc import Sequence

from .. import kunit
from ..errors import NodesError
from ..kernel import SUFFIX
from ..pair import Pair
from ..tally import Tally


def main(arguments: Sequence[str]) -> int:
    """The verb. One node without a device is enough."""
    if arguments:
        raise NodesError("kunit takes no options")
    tally = Tally()
    with Pair(f"kunit{SUFFIX}", names="a", device=False) as pair:
        kunit.collect(pair.a, tally)
        pair.check_logs()
    for name in tally.failed:
        print(f"FAILED: {name}")
    print(tally.closing_line(), flush=True)
    return 1 if tally.failed else 0
