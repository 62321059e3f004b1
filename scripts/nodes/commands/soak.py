# SPDX-License-Identifier: GPL-2.0
"""nodes soak: peers are killed at random, for minutes, and nothing may be left."""

import argparse
import random
import time
from collections.abc import Sequence

from .. import leaks
from ..cluster import Cluster
from ..console import say
from ..kernel import DEBUG, SUFFIX
from ..qemu import Config
from ..soak import Soak

SECONDS = 600.0
LEAST_KILLS = 200


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for at least that long")
    parser.add_argument("--kills", type=int, default=LEAST_KILLS, help="at least that many")
    parser.add_argument("--seed", type=int, help="of the order of kills; random if absent")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    began = time.monotonic()
    say(f"soak: SEED={seed}, {options.seconds:.0f} s and {options.kills} kills at least")
    with Cluster(f"soak{SUFFIX}", Config(debug=True)) as pair:
        soak = Soak(pair, lambda text: say(f"soak: {time.monotonic() - began:.0f} s: {text}"))
        try:
            soak.run(seed, options.kills, options.seconds)
        finally:
            say(f"soak: {soak.summary()}")
        if DEBUG:
            leaks.check(pair)
    say(f"soak: nothing was left behind (SEED={seed})")
    return 0
