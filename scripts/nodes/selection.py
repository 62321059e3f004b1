# SPDX-License-Identifier: GPL-2.0
"""Which tests a pattern (ONLY=) selects."""

import argparse
import re
from collections.abc import Iterable

from .plan import Test


def expression(text: str) -> re.Pattern[str]:
    """Compile a regular expression that was given as an argument."""
    try:
        return re.compile(text)
    except re.PatternError as error:
        raise argparse.ArgumentTypeError(f"no regular expression: {text!r}: {error}") from error


def select(pattern: re.Pattern[str], tests: Iterable[Test]) -> list[Test]:
    """Return the tests that are to run.

    Tests of another topology than the usual are called TOPOLOGY/NAME. The name of a test alone does
    not select it there too, which would make every short run a long one, unless no test of the
    usual nodes has that name.
    """
    tests = list(tests)
    if not pattern.pattern:
        return tests
    plain = [test for test in tests if pattern.search(test.plain)]
    return (
        [test for test in tests if test not in plain and pattern.search(test.name)]
        + [test for test in plain if not test.topology.name]
    ) or plain
