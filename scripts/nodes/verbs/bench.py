# SPDX-License-Identifier: GPL-2.0
"""nodes bench: measured figures beside the machine's floors and the rivals."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import report, results
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..machine import machine
from ..paths import BINARIES, REPO, RESULTS
from ..qemu import Config
from ..results import Figure
from . import initiation, link, lmm

PARTS = ("transfers", "lmm", "initiation", "link")
# The files of their figures.
FILES = {"transfers": "bench", "lmm": "lmm", "initiation": "initiation", "link": "link"}
# What can be measured besides, of what the others have already.
BRIEF = {"ring": "ring"}
BENCH_TIMEOUT = 900.0
MEMCPY_TIMEOUT = 120.0
MEMORY = 1536
# The floor of every DMA figure of this size is a copy by the host's own memcpy.
MEMCPY_PREFIX = "host.memcpy."


def parse(output: str, what: str) -> list[dict[str, Any]]:
    """The JSON array that a tool printed."""
    try:
        value = json.loads(output)
    except ValueError as error:
        raise NodesError(f"{what}: no JSON in its output: {output[:500]!r}") from error
    if not isinstance(value, list):
        raise NodesError(f"{what}: not a JSON array: {output[:500]!r}")
    return value


def host_memcpy() -> list[Figure]:
    """Memory copies here, while the guests idle: host.memcpy.SIZE, as dma.SIZE."""
    done = subprocess.run(
        [BINARIES / "uldma-bench", "host-memcpy", "--json"],
        capture_output=True,
        text=True,
        timeout=MEMCPY_TIMEOUT,
        check=False,
    )
    if done.returncode:
        raise NodesError(f"uldma-bench host-memcpy: exit {done.returncode}\n{done.stderr}")
    return [Figure.parse(entry) for entry in parse(done.stdout, "uldma-bench host-memcpy")]


def with_floors(figures: Sequence[Figure], memcpy: Sequence[Figure]) -> list[Figure]:
    """Give dma.SIZE.throughput the floor host.memcpy.SIZE of the same run."""
    floors = {f.name.removeprefix(MEMCPY_PREFIX).removesuffix(".throughput"): f for f in memcpy}
    found = []
    for figure in figures:
        area, _, rest = figure.name.partition(".")
        floor = floors.get(rest.partition(".")[0]) if area == "dma" else None
        if floor and figure.floor is None and floor.unit == figure.unit:
            found.append(replace(figure, floor=floor.value))
        else:
            found.append(figure)
    return found


def transfers(pair: Cluster) -> list[Figure]:
    """What moves data, with the floors and rivals of the same run."""
    say("measuring host memcpy ...")
    memcpy = host_memcpy()
    say("measuring on the nodes ...")
    server = pair.b.spawn("uldma-bench serve")
    try:
        output = pair.a.check("uldma-bench run --json --peer", BENCH_TIMEOUT)
    finally:
        server.kill()
    figures = [Figure.parse(entry) for entry in parse(output, "uldma-bench run")]
    figures = [*with_floors(figures, memcpy), *memcpy]
    results.write("bench", figures)
    return figures


def measure(wanted: Sequence[str]) -> None:
    """Measure these parts on the cores that this process may use, and print tables."""
    conditions = machine()
    say(f"measuring by {conditions}")
    config = Config(memory=MEMORY)
    moved: list[Figure] = []
    rings: list[Figure] = []
    with Cluster("bench", config) as pair:
        if "transfers" in wanted:
            moved = transfers(pair)
        if "lmm" in wanted:
            lmm.measure(pair)
        if "initiation" in wanted:
            initiated = initiation.measure(pair)
        if "link" in wanted:
            linked = link.measure(pair)
        if "ring" in wanted:
            rings = link.rings(pair)
        pair.check_logs()
    if "initiation" in wanted:
        initiation.add([*initiated, *initiation.slower_devices(config)])
    if "link" in wanted:
        linked += link.other_ways(config)
        link.add(linked)
        link.add([*linked, *link.other_backends(config)])
    for part in ("lmm", "initiation", "link"):
        if part in wanted:
            print(
                f"\n{report.show(part, RESULTS)}\nmeasured by {conditions}; every figure: "
                f"{shown(part)}, drawn in {part}-*.svg"
            )
    for part, figures in (("transfers", moved), ("ring", rings)):
        if part in wanted:
            print(
                f"\n{results.figures_table(figures)}\n\nmeasured by {conditions}; every figure: "
                f"{shown((FILES | BRIEF)[part])}"
            )


def shown(name: str) -> Path:
    """Where the figures of a part are, as a person would look for them."""
    return (RESULTS / f"{name}.json").relative_to(REPO)


def counts_of_cores(text: str) -> list[int]:
    """Numbers with commas between them, each a number of cores that there are."""
    counts = [int(word) for word in text.split(",")]
    usable = len(os.sched_getaffinity(0))
    if not all(1 <= count <= usable for count in counts):
        raise argparse.ArgumentTypeError(f"there are 1 to {usable} cores, not {text}")
    return counts


def measure_by_cores(counts: Sequence[int], only: str | None) -> None:
    """Measure in a process for each number of cores, and compare. Nodes and devices inherit the
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
    for name in FILES.values() if only is None else [(FILES | BRIEF)[only]]:
        runs = {
            f"{count} core{'s' if count > 1 else ''}": results.read(place / f"{name}.json")
            for count, place in places.items()
        }
        print(f"\n{results.table_by_run(runs)}")


def main(arguments: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", choices=(*PARTS, *BRIEF), help="measure only this part")
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
