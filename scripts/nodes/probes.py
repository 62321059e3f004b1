# SPDX-License-Identifier: GPL-2.0
"""Probes: uldma-bench on a node, which measures and prints JSON."""

import json

from .console import say
from .errors import NodesError
from .node import Node
from .results import Figure


def run(node: Node, arguments: str, timeout: float) -> list[Figure]:
    """Returns the figures of a probe, and prints what it could not measure."""
    command = f"uldma-bench {arguments}"
    result = node.run(command, timeout)
    for line in result.stderr.splitlines():
        say(line)
    if result.rc:
        raise NodesError(f"node {node.name}: exit {result.rc} of: {command}")
    return [Figure.parse(entry) for entry in json.loads(result.stdout)]
