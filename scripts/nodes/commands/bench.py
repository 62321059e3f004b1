# SPDX-License-Identifier: GPL-2.0
"""nodes bench: measures, and prints figures beside the machine's floors and the rivals."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from .. import report, results
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..machine import machine
from ..paths import REPO, RESULTS
from ..qemu import Config
from ..results import Figure
from . import initiation, link, lmm, network, optimistic, semantics

PARTS = ("lmm", "initiation", "link", "semantics", "network", "optimistic")
# Those that are measured on nodes of their own.
APART = ("network", "optimistic")
# A brief measurement of what the parts measure, too.
RING = "ring"
MEMORY = 1536


def measure(wanted: Sequence[str]) -> None:
    """Measures these parts on the cores that this process may use, and prints tables."""
    conditions = machine()
    say(f"measuring by {conditions}")
    config = Config(memory=MEMORY, character=True)
    rings = [] if set(wanted) <= set(APART) else measure_on_pair(wanted, config)
    if "network" in wanted:
        network.measure(config)
    if "optimistic" in wanted:
        optimistic.measure(config)
    for part in PARTS:
        if part in wanted:
            print(
                f"\n{report.show(part, RESULTS)}\nmeasured by {conditions}; every figure: "
                f"{shown(part)}, drawn in {part}-*.svg"
            )
    if RING in wanted:
        print(
            f"\n{results.figures_table(rings)}\n\nmeasured by {conditions}; every figure: "
            f"{shown(RING)}"
        )


def measure_on_pair(wanted: Sequence[str], config: Config) -> list[Figure]:
    """Measures the parts that share a pair, and their variants; returns the figures of rings."""
    rings: list[Figure] = []
    with Cluster("bench", config, window=semantics.WINDOW) as pair:
        if "lmm" in wanted:
            lmm.measure(pair)
        if "initiation" in wanted:
            initiated = initiation.measure(pair)
        if "link" in wanted:
            linked = link.measure(pair)
        if "semantics" in wanted:
            matched = semantics.measure(pair)
        if RING in wanted:
            rings = link.rings(pair)
        pair.check_logs()
    if "initiation" in wanted:
        initiation.add([*initiated, *initiation.slower_devices(config)])
    if "link" in wanted:
        linked += link.other_settings(config)
        link.add(linked)
        link.add([*linked, *link.other_backends(config)])
    if "semantics" in wanted:
        matched += semantics.paced(config)
        semantics.add(matched)
        semantics.add([*matched, *semantics.by_processors(config)])
    return rings


def shown(name: str) -> Path:
    """Returns the file of a part's figures, from the top of the tree."""
    return (RESULTS / f"{name}.json").relative_to(REPO)


def counts_of_cores(text: str) -> list[int]:
    """Parses numbers of cores, with commas between them, of which the machine has enough."""
    counts = [int(word) for word in text.split(",")]
    usable = len(os.sched_getaffinity(0))
    if not all(1 <= count <= usable for count in counts):
        raise argparse.ArgumentTypeError(f"this process may use 1 to {usable} cores, not {text}")
    return counts


def measure_by_cores(counts: Sequence[int], only: str | None) -> None:
    """Measures in a process for each number of cores, and compares. Nodes and devices inherit the
    process's cores."""
    cores = sorted(os.sched_getaffinity(0))
    places = {count: RESULTS / f"cores-{count}" for count in counts}
    for count, place in places.items():
        command = [sys.executable, "-m", "nodes", "bench", *(["--only", only] if only else [])]
        done = subprocess.run(
            ["taskset", "--cpu-list", ",".join(map(str, cores[:count])), *command],
            env={**os.environ, "ULDMA_RESULTS": str(place)},
            check=False,
        )
        if done.returncode:
            raise NodesError(f"measuring on {count} cores: exit {done.returncode}")
    for name in PARTS if only is None else [only]:
        runs = {
            f"{count} core{'s' if count > 1 else ''}": results.read(place / f"{name}.json")
            for count, place in places.items()
        }
        print(f"\n{results.table_by_run(runs)}")


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", choices=(*PARTS, RING), help="measure only this part")
    parser.add_argument(
        "--cores",
        type=counts_of_cores,
        metavar="NUMBER,...",
        help="measure with so many of the host's cores for both nodes and the device, one after "
        "the other; the figures are in build/results/cores-NUMBER",
    )
    options = parser.parse_args(arguments)
    if options.cores:
        measure_by_cores(options.cores, options.only)
    else:
        measure([options.only] if options.only else PARTS)
    return 0
