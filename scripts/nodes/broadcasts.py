# SPDX-License-Identifier: GPL-2.0
"""Measures data for two processes of the other node: into memory that both share, or to each."""

from . import probes
from .endpoints import Endpoint
from .errors import NodesError
from .kernel import scaled
from .results import Figure

TIMEOUT = 120.0
SERVER_TIMEOUT = 60.0


def measure(here: Endpoint, there: Endpoint) -> list[Figure]:
    """Returns the figures of uldma-bench broadcast between two ends."""
    server = there.node.spawn(f"uldma-bench --device {there.device} serve")
    try:
        command = f"--device {here.device} broadcast"
        figures = probes.run(here.node, command, scaled(TIMEOUT))
        served = server.wait(SERVER_TIMEOUT)
    except NodesError as error:
        raise NodesError(f"{error}\n{server.text('err')}") from error
    finally:
        if server.running:
            server.kill()
    if served.rc:
        raise NodesError(f"{there.name}: exit {served.rc}: {served.stderr}")
    return figures
