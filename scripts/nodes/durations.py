# SPDX-License-Identifier: GPL-2.0
"""How long tests and boots took when they last ran on this machine."""

import json
import os
from pathlib import Path

from .kernel import scaled
from .plan import Test
from .topologies import Topology

# What has never run here is taken to last that long, on the stock kernel and with nothing beside.
BOOT = scaled(5.0)
TEST = scaled(4.0)
LONG_TESTS = {
    "nodes:hostile.attacker_costs_only_itself": 105.0,
    "nodes:hostile.streams_of_an_attacker_are_reset": 30.0,
    "nodes:soak.peers_are_killed": 25.0,
    "nodes:fuzz.calls_answer_as_documented": 25.0,
    "loopback/nodes:fuzz.calls_answer_as_documented": 25.0,
    "uldma:uldma_method": 22.0,
    "uldma:uldma_interleave": 16.0,
    "uldma:uldma_stale_race": 15.0,
    "uldma:uldma_optimistic_stamps": 25.0,
    "uldma:uldma_optimistic_files": 15.0,
    "uldma:uldma_inflight": 15.0,
    "uldma:uldma_pressure": 15.0,
    "uldma:uldma_memlock": 10.0,
    "uldma:uldma_memory": 10.0,
    "uldma:uldma_conn_peer": 20.0,
    "loopback/uldma:uldma_conn_peer": 45.0,
    "ivshmem/uldma:uldma_conn_peer": 20.0,
    "loopback/uldma:uldma_conn_limits": 45.0,
    "loopback/uldma:uldma_conn_close": 15.0,
    "three/nodes:three.two_go_on_without_the_third": 35.0,
    "iommu-lazy/uldma:uldma_inflight": 75.0,
    # With what cargo has to build.
    "host/cargo": 120.0,
    "host/ring-model": 120.0,
}


class Durations:
    """Seconds by the name of a test, or of what was booted, in a file that outlives the run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = self._read()
        self._new: dict[str, float] = {}

    def of(self, test: Test) -> float:
        """How long a test will take, as far as one can tell."""
        seconds = self._known.get(test.name)
        if seconds is None and test.name in LONG_TESTS:
            seconds = scaled(LONG_TESTS[test.name])
        return TEST if seconds is None else seconds

    def of_boot(self, topology: Topology) -> float:
        """How long a set of nodes will take to boot."""
        return self._known.get(_boot(topology), BOOT) if topology.nodes else 0.0

    def note(self, test: Test, seconds: float) -> None:
        """A test has passed."""
        self._new[test.name] = round(seconds, 1)

    def note_boot(self, topology: Topology, seconds: float) -> None:
        """A set of nodes is up."""
        self._new[_boot(topology)] = round(seconds, 1)

    def save(self) -> None:
        """Add what was noted to what the file holds by now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(f".{os.getpid()}.new")
        new.write_text(json.dumps(self._read() | self._new, indent=1, sort_keys=True) + "\n")
        new.rename(self._path)

    def _read(self) -> dict[str, float]:
        """What the file holds; what is no such file holds nothing."""
        try:
            found = json.loads(self._path.read_text())
            return {str(name): float(seconds) for name, seconds in found.items()}
        except (OSError, ValueError, AttributeError, TypeError):
            return {}


def _boot(topology: Topology) -> str:
    return f"boot of {topology.name or 'usual'} nodes"
