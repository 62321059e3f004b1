# SPDX-License-Identifier: GPL-2.0
"""What is done for a test on the nodes that it gets. Each counts its own results."""

import re
from collections.abc import Callable

from . import endpoints, kunit
from .agent import Result
from .cases.registry import Case
from .cluster import Cluster
from .kernel import DEBUG, scaled
from .ktap import without_successes
from .outcome import Outcome
from .paths import LOGS
from .topologies import Topology

Body = Callable[[Cluster, Outcome], None]

# How long a program may take, as its settings file has it; the second limit bounds the runner.
PROGRAM_LIMIT = 180.0
PROGRAM_TIMEOUT = 300.0
SERVER_TIMEOUT = 20.0


def program(topology: Topology, name: str) -> Body:
    """Run one kselftest program by kselftest's own runner.

    That is a shell script, whose many processes take the debug kernel six seconds: there the
    program runs by itself.
    """
    limit = f"{scaled(topology.slowness * PROGRAM_LIMIT):.0f}"
    if DEBUG:
        command = f"cd /kselftest/uldma && timeout {limit} ./{name.removeprefix('uldma:')}"
    else:
        command = f"cd /kselftest && ./run_kselftest.sh -o {limit} -t {name}"

    def body(nodes: Cluster, outcome: Outcome) -> None:
        _count(outcome, nodes.a.run(command, topology.slowness * PROGRAM_TIMEOUT))

    return body


def program_with_peer(topology: Topology, name: str) -> Body:
    """Run a program of both ends: "serve" on B, "run" on A. kselftest's runner has but one.

    The ends of a loopback are both on A.
    """
    path = f"/kselftest/{name.replace(':', '/')}"

    def body(nodes: Cluster, outcome: Outcome) -> None:
        here, there = endpoints.of(nodes)
        endpoints.wait_up((here, there))
        server = there.node.spawn(f"ULDMA_DEVICE={there.path} {path} serve")
        try:
            server.wait_output("ready", SERVER_TIMEOUT)
            client = f"ULDMA_DEVICE={here.path} {path} run"
            _count(outcome, here.node.run(client, topology.slowness * PROGRAM_TIMEOUT))
        finally:
            server.end()

    return body


def case(function: Case) -> Body:
    """Run one of our own cases, which is one result."""

    def body(nodes: Cluster, outcome: Outcome) -> None:
        function(nodes)
        outcome.counts.add_pass()

    return body


def unit_tests(nodes: Cluster, outcome: Outcome) -> None:
    """Run the module's unit tests."""
    text = kunit.run(nodes.a, outcome.counts)
    if outcome.counts.failed:
        outcome.add_text(text)


def _count(outcome: Outcome, result: Result) -> None:
    text = result.stdout + result.stderr
    (LOGS / f"kselftest-{re.sub('[:/]', '-', outcome.name)}.log").write_text(text)
    counts = outcome.counts
    count = counts.add_ktap(outcome.name, text)
    if (result.rc and not counts.failed) or not count:
        counts.add_fail(f"{outcome.name}: exit {result.rc} with {count} results")
    if counts.failed:
        outcome.add_text(without_successes(text))
