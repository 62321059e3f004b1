# SPDX-License-Identifier: GPL-2.0
"""The short form of `make soak`."""

import random

from ..cluster import Cluster
from ..console import say
from ..kernel import DEBUG
from ..soak import ROUND_KILLS, Soak
from .registry import case


@case
def peers_are_killed(pair: Cluster) -> None:
    """Processes, drivers, cables and nodes go under running streams; nothing of them is left."""
    seed = random.SystemRandom().randrange(1 << 32)
    say(f"make soak SEED={seed}")
    soak = Soak(pair, lambda _: None)
    soak.run(seed, ROUND_KILLS // 4 if DEBUG else ROUND_KILLS)
    say(soak.summary())
