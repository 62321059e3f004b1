# SPDX-License-Identifier: GPL-2.0
"""The topologies: the ways to boot nodes for tests."""

from dataclasses import dataclass

from .qemu import Backend, Config


@dataclass(frozen=True)
class Topology:
    """Tests of a topology are called NAME/TEST; those of the usual one have no prefix."""

    name: str
    config: Config
    nodes: str = "ab"
    # Of programs, compared with the usual nodes.
    slowness: float = 1.0

    def full_name(self, plain: str) -> str:
        """Returns the name of a test of this topology."""
        return f"{self.name}/{plain}" if self.name else plain


USUAL = Topology("", Config(debug=True, programs=True))
IVSHMEM = Topology("ivshmem", Config(debug=True, programs=True, backends=(Backend.IVSHMEM,)))
LOOPBACK = Topology(
    "loopback", Config(debug=True, programs=True, backends=(Backend.LOOPBACK,)), nodes="a"
)
THREE = Topology("three", Config(debug=True, programs=True, backends=tuple(Backend)), nodes="abc")
# Tests that need no node.
HOST = Topology("host", Config(backends=()), nodes="")
