# SPDX-License-Identifier: GPL-2.0
"""Which tests a pattern (ONLY=) selects."""

import re

from .plan import Test


def selects(pattern: re.Pattern[str], test: Test) -> bool:
    """Whether a test is to run.

    Tests of another topology than the usual are called TOPOLOGY/NAME. The name of a test alone does
    not select it there too: that would make every short run a long one.
    """
    if not pattern.pattern:
        return True
    plain = bool(pattern.search(test.plain))
    if not test.topology.name:
        return plain
    return not plain and bool(pattern.search(test.name))
