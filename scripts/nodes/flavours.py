# SPDX-License-Identifier: GPL-2.0
"""The ways to boot nodes for tests."""

from dataclasses import dataclass

from .qemu import Backend, Config


@dataclass(frozen=True)
class Flavour:
    """Tests of a flavour are called NAME/TEST; those of the usual one have no prefix."""

    name: str
    config: Config
    nodes: str = "ab"
    # Of programs, compared with the usual nodes.
    slowness: float = 1.0

    def full_name(self, plain: str) -> str:
        """What a test of this flavour is called."""
        return f"{self.name}/{plain}" if self.name else plain


USUAL = Flavour("", Config(debug=True))
IVSHMEM = Flavour("ivshmem", Config(debug=True, backends=(Backend.IVSHMEM,)))
LOOPBACK = Flavour("loopback", Config(debug=True, backends=(Backend.LOOPBACK,)), nodes="a")
THREE = Flavour("three", Config(debug=True, backends=tuple(Backend)), nodes="abc")
# What needs no node at all.
HOST = Flavour("host", Config(backends=()), nodes="")
