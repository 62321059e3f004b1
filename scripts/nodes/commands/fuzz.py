# SPDX-License-Identifier: GPL-2.0
"""nodes fuzz: one fuzzer, for as long as one likes."""

import argparse
import os
import random
import subprocess
from collections.abc import Sequence

from .. import endpoints, fuzzing
from ..cases.hostile import TIMEOUT, attack
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..kernel import SUFFIX
from ..paths import BINARIES, BUILD, REPO
from ..qemu import Backend, Config

SECONDS = 60
# What needs no node, by the program that does it and its arguments.
HOST = {
    "messages": ("uldma-fuzz", "messages"),
    "ring": ("uldma-fuzz", "ring"),
    "tools": ("uldma-fuzz", "tools"),
}
# What runs on nodes, by what joins them.
NODES = {
    "ioctl": (Backend.ADAPTER, Backend.LOOPBACK),
    "connections": (Backend.ADAPTER, Backend.LOOPBACK),
    "hostile": (Backend.ADAPTER,),
}
# What a hostile peer does at random, in equal parts of the time.
ATTACKS = ("random-messages", "random-area", "random-window")


def on_host(target: str, seconds: int, seed: int) -> int:
    """Run a program of this machine."""
    program, *arguments = HOST[target]
    options = ["--seconds", str(seconds), "--seed", str(seed)]
    done = subprocess.run([BINARIES / program, *arguments, *options], check=False)
    return done.returncode


def on_device(seconds: int, seed: int, replay: str) -> int:
    """Run the fuzzer of the device model, in a build of its own that checks for overflows."""
    kept = BUILD / "fuzz" / "device.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    variables = {"SECONDS": str(seconds), "SEED": str(seed), "KEEP": str(kept)}
    if replay:
        variables["INPUT"] = replay
    command = [
        *("cargo", "test", "--manifest-path", str(REPO / "tools/uldma/Cargo.toml"), "--locked"),
        *("-p", "uldma-device", "--test", "fuzz", "--profile", "fuzz"),
        *("--target-dir", str(BUILD / "cargo-fuzz"), "--", "--ignored", "--nocapture"),
    ]
    environment = {f"ULDMA_FUZZ_{name}": value for name, value in variables.items()}
    return subprocess.run(command, check=False, env={**os.environ, **environment}).returncode


def on_nodes(target: str, seconds: int, seed: int, replay: str) -> None:
    """Boot what is needed, and run the program there."""
    config = Config(debug=True, backends=NODES[target])
    with Cluster(f"fuzz-{target}{SUFFIX}", config) as pair:
        if target != "hostile":
            options = "-c" if target == "connections" else ""
            result = fuzzing.interface(pair, seconds, seed, replay, options)
            say(result.stdout)
            never = [name for name, count in fuzzing.successes(result).items() if not count]
            say(f"fuzz: never succeeded: {', '.join(never) or 'none'}")
            return
        a, b = endpoints.of(pair)
        endpoints.wait_up((a, b))
        for mode in ATTACKS:
            time = seconds // len(ATTACKS)
            say(f"fuzz: {mode}, {time} s")
            say(attack(a, b, [f"-t {time} -s {seed} {mode}"], time + TIMEOUT))
            pair.check_logs()


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make fuzz")
    parser.add_argument("--target", required=True, choices=[*HOST, *NODES, "device"])
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--seed", type=int, help="random if absent")
    parser.add_argument("--replay", default="", help="the sequence that a fuzzer has printed")
    options = parser.parse_args(arguments)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 32)
    say(f"fuzz: TARGET={options.target} SECONDS={options.seconds} SEED={seed}")
    if options.target == "device":
        return on_device(options.seconds, seed, options.replay)
    if options.target in HOST:
        if options.replay:
            raise NodesError("only sequences of calls can be replayed; give a seed")
        return on_host(options.target, options.seconds, seed)
    on_nodes(options.target, options.seconds, seed, options.replay)
    return 0
