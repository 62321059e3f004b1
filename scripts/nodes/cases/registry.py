# SPDX-License-Identifier: GPL-2.0
"""Tests that are scripts over one or two nodes.

A case is a function that takes the running pair, raises NodesError when something is wrong, and
Skip where it cannot run. Both kernel logs are read after each. Write one as

    @case
    def what_it_shows(pair: Pair) -> None: ...
"""

from collections.abc import Callable

from ..errors import NodesError
from ..pair import Pair

Case = Callable[[Pair], None]
CASES: list[Case] = []


class Skip(Exception):
    """The case cannot run here; the message says why."""


def case(function: Case) -> Case:
    """Register a case."""
    CASES.append(function)
    return function


def name_of(function: Case) -> str:
    """The name under which a case is reported."""
    return f"nodes:{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"


def expect(condition: bool, message: str) -> None:
    """Fail the case unless the condition holds."""
    if not condition:
        raise NodesError(message)
