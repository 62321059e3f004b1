# SPDX-License-Identifier: GPL-2.0
"""Probes: uldma-bench on a node, which measures and prints JSON."""

import json

from . import endpoints
from .console import say
from .endpoints import Endpoint
from .errors import NodesError
from .node import Node
from .results import Figure

SERVER_TIMEOUT = 60.0


def run(node: Node, arguments: str, timeout: float) -> list[Figure]:
    """Returns the figures of a probe, and prints what it could not measure."""
    command = f"uldma-bench {arguments}"
    result = node.run(command, timeout)
    for line in result.stderr.splitlines():
        say(line)
    if result.rc:
        raise NodesError(f"node {node.name}: exit {result.rc} of: {command}")
    return [Figure.parse(entry) for entry in json.loads(result.stdout)]


def run_with_server(
    here: Endpoint, there: Endpoint, arguments: str, timeout: float, common: str = ""
) -> list[Figure]:
    """Returns the figures of a probe at one end, with the help of its server at the other end.

    Both programs get the common options.
    """
    endpoints.wait_up([here, there])
    server = there.node.spawn(f"uldma-bench --device {there.device} {common} serve")
    try:
        figures = run(here.node, f"--device {here.device} {common} {arguments}", timeout)
        served = server.wait(SERVER_TIMEOUT)
    except NodesError as error:
        raise NodesError(f"{error}\n{server.text('err')}") from error
    finally:
        if server.running:
            server.kill()
    if served.rc:
        raise NodesError(f"{there.name}: exit {served.rc}: {served.stderr}")
    return figures
