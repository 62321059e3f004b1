# SPDX-License-Identifier: GPL-2.0
"""The short form of `make fuzz TARGET=ioctl`, which is uldma_fuzz."""

from .. import fuzzing
from ..cluster import Cluster
from ..console import say
from ..topologies import LOOPBACK, USUAL
from .registry import case_of

SECONDS = 20
# The same each time: what `make fuzz` finds gets a test of its own.
SEED = 1


@case_of(USUAL, LOOPBACK)
def calls_answer_as_documented(pair: Cluster) -> None:
    """Random calls of several processes, each with the answer that a model expects."""
    say(fuzzing.interface(pair, SECONDS, SEED).stdout.splitlines()[3].removeprefix("# "))
