# SPDX-License-Identifier: GPL-2.0
"""Tests that are scripts over some nodes.

A case is a function that takes the running pair, raises NodesError when something is wrong, and
Skip where it cannot run. Both kernel logs are read after each. Write one as

    @case
    def what_it_shows(pair: Cluster) -> None: ...

It runs on the usual nodes; with @case_of(topology, ...) on those of these topologies.
"""

from collections import defaultdict
from collections.abc import Callable

from ..cluster import Cluster
from ..errors import NodesError
from ..topologies import USUAL, Topology

Case = Callable[[Cluster], None]
# By the name of the topology.
CASES: defaultdict[str, list[Case]] = defaultdict(list)


class Skip(Exception):
    """The case cannot run here; the message says why."""


def case_of(*topologies: Topology) -> Callable[[Case], Case]:
    """Register a case for nodes of these topologies."""

    def register(function: Case) -> Case:
        for topology in topologies:
            CASES[topology.name].append(function)
        return function

    return register


def case(function: Case) -> Case:
    """Register a case for the usual nodes."""
    return case_of(USUAL)(function)


def name_of(function: Case) -> str:
    """The name under which a case is reported."""
    return f"nodes:{function.__module__.rsplit('.', 1)[-1]}.{function.__name__}"


def expect(condition: bool, message: str) -> None:
    """Fail the case unless the condition holds."""
    if not condition:
        raise NodesError(message)
