# SPDX-License-Identifier: GPL-2.0
"""The endpoints of a link: a device of a node each, and its state from the command line."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .agent import Job
from .cluster import LOOPBACK_NODES, Cluster
from .errors import NodesError
from .node import Node
from .polling import wait_until
from .qemu import LINK_TIMEOUT_MS, Backend

# A link comes up with a few messages and ticks, on processors that may be busy.
UP_TIMEOUT = 20.0
# In which the loss of a peer is noticed: the link's own limit, and some ticks.
LOSS_TIMEOUT = LINK_TIMEOUT_MS / 1000 + 15.0


@dataclass(frozen=True)
class Endpoint:
    """One device of one node."""

    node: Node
    device: int
    number: int  # on the link

    @property
    def path(self) -> str:
        """The device's file."""
        return f"/dev/uldma{self.device}"

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.path} of node {self.node.name}"

    def command(self, arguments: str) -> str:
        """A command line of `uldma` for this device."""
        return f"uldma --device {self.device} {arguments}"

    def check(self, arguments: str, timeout: float = 60.0) -> str:
        """Run `uldma`, which must succeed; its output."""
        return self.node.check(self.command(arguments), timeout)

    def spawn(self, arguments: str) -> Job:
        """Start `uldma`; redirections may follow the arguments."""
        return self.node.spawn(self.command(arguments))

    def spawn_sample(self, program: str, arguments: str) -> Job:
        """Start a sample, named by language and program."""
        return self.node.spawn(f"ULDMA_DEVICE={self.path} /samples/{program} {arguments}")

    def info(self) -> dict[str, Any]:
        """What the device is and has."""
        [info] = json.loads(self.check("info --json"))["devices"]
        assert isinstance(info, dict)
        return info

    def peer(self, other: "Endpoint") -> dict[str, Any]:
        """The link to another end."""
        peers: list[dict[str, Any]] = json.loads(self.check("peers --json"))["peers"]
        for peer in peers:
            if peer["node"] == other.number:
                return peer
        raise NodesError(f"{self.name} knows of no node {other.number}: {peers}")

    def is_up(self, other: "Endpoint") -> bool:
        """Whether the link to another end is up."""
        return bool(self.peer(other)["link"] == "up")

    def intake(self) -> dict[str, int]:
        """What the driver counted of what peers made it do, and what it measured."""
        lines = self.node.check(f"cat /sys/kernel/debug/uldma{self.device}/intake").splitlines()
        return {key: int(value) for key, value in (line.split() for line in lines)}

    def quarantine(self) -> dict[int, int]:
        """How much each other node holds of what has ended here, by its number."""
        lines = self.node.check(f"cat /sys/kernel/debug/uldma{self.device}/quarantine").splitlines()
        pattern = re.compile(r"node (\d+) holds (\d+), (\d+) bytes, (\d+) ms")
        matches = [pattern.fullmatch(line) for line in lines]
        return {int(match[1]): int(match[2]) for match in matches if match}

    def binding(self) -> tuple[str, str]:
        """The commands that take the device away from the driver, and that give it back."""
        place = self.node.check(f"readlink -f /sys/class/misc/uldma{self.device}/device").strip()
        driver = self.node.check(f"readlink -f {place}/driver").strip()
        address = place.rpartition("/")[2]
        return (
            f"echo {address} >{driver}/unbind && ! test -e {self.path}",
            f"echo {address} >{driver}/bind && test -c {self.path}",
        )

    def unbind(self) -> str:
        """Take the device away from the driver; the command that gives it back."""
        unbind, bind = self.binding()
        self.node.check(unbind)
        return bind


def of(cluster: Cluster) -> list[Endpoint]:
    """The ends where only one thing joins the nodes; two of them on a loopback's one node."""
    [backend] = cluster.config.backends
    if backend is Backend.LOOPBACK:
        return [Endpoint(cluster.a, number, number) for number in range(LOOPBACK_NODES)]
    return [Endpoint(node, 0, cluster.number(name)) for name, node in cluster.nodes.items()]


def find(cluster: Cluster, backend: Backend) -> list[Endpoint]:
    """The ends by what joins them; devices are numbered as they are found, anew in each boot."""
    found = []
    for node in cluster.nodes.values():
        for info in json.loads(node.check("uldma info --json"))["devices"]:
            if info["backend"] == backend:
                device = int(info["device"].removeprefix("/dev/uldma"))
                found.append(Endpoint(node, device, info["node"]))
    return found


def wait_up(ends: Sequence[Endpoint], timeout: float = UP_TIMEOUT) -> float:
    """Wait until every end reaches every other; how long that took."""

    def all_up() -> bool:
        return all(here.is_up(there) for here in ends for there in ends if here != there)

    return wait_until(all_up, timeout, f"{', '.join(end.name for end in ends)} all linked")


def wait_measured(ends: Sequence[Endpoint]) -> None:
    """Wait until every end has measured the doorbells of its peers, by messages of its own."""

    def all_measured() -> bool:
        return all(end.intake()["doorbell_measured"] for end in ends)

    names = ", ".join(end.name for end in ends)
    wait_until(all_measured, UP_TIMEOUT, f"doorbells of the peers of {names} measured")


def wait_quiet(ends: Sequence[Endpoint]) -> None:
    """Wait until the drivers of the ends have nothing to say to each other.

    They have measured their doorbells, and no connection of an earlier test is still ending.
    """
    wait_measured(ends)
    names = ", ".join(end.name for end in ends)
    wait_until(
        lambda: all(end.info()["connections"] == 0 for end in ends),
        LOSS_TIMEOUT,
        f"no connection at {names}",
    )


def wait_down(here: Endpoint, there: Endpoint) -> None:
    """Wait until an end has noticed that it does not reach another."""
    wait_until(lambda: not here.is_up(there), LOSS_TIMEOUT, f"{here.name} misses {there.name}")
