# SPDX-License-Identifier: GPL-2.0
"""Tests that take no time."""

from ..cluster import Cluster
from ..flavours import Flavour
from ..outcome import Outcome
from ..plan import Test, Turn
from ..qemu import Config


def passes(_: Cluster, outcome: Outcome) -> None:
    """The body of a test with one result."""
    outcome.tally.add_pass()


def make_flavour(name: str = "") -> Flavour:
    """A flavour of nodes that nobody boots."""
    return Flavour(name, Config())


def make_test(plain: str, flavour: str = "", turn: Turn = Turn.ANY) -> Test:
    """A test that passes."""
    return Test(make_flavour(flavour), plain, passes, turn)
