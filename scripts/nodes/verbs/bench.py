# SPDX-License-Identifier: GPL-2.0
"""nodes bench: measured figures beside the machine's floors and the rivals."""

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .. import results
from ..cluster import Cluster
from ..console import say
from ..errors import NodesError
from ..paths import BINARIES
from ..qemu import Config
from ..results import Figure
from . import initiation, link, lmm

PARTS = ("transfers", "lmm", "initiation", "link")
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


def main(arguments: Sequence[str]) -> int:
    """The verb."""
    parser = argparse.ArgumentParser(prog="make bench")
    parser.add_argument("--only", choices=PARTS, help="measure only this part")
    only = parser.parse_args(arguments).only
    wanted = [only] if only else PARTS
    config = Config(memory=MEMORY)
    with Cluster("bench", config) as pair:
        if "transfers" in wanted:
            moved = transfers(pair)
        if "lmm" in wanted:
            lmm.measure(pair)
        if "initiation" in wanted:
            initiated = initiation.measure(pair)
        if "link" in wanted:
            linked = link.measure(pair)
        pair.check_logs()
    if "initiation" in wanted:
        initiation.add([*initiated, *initiation.slower_devices(config)])
    if "link" in wanted:
        linked += link.other_ways(config)
        link.add(linked)
        link.add([*linked, *link.other_backends(config)])
    if "lmm" in wanted:
        print(
            f"\n{results.report('lmm')}\nevery figure: build/results/lmm.json, drawn in lmm-*.svg"
        )
    if "initiation" in wanted:
        print(
            f"\n{results.report('initiation')}\nevery figure: build/results/initiation.json, "
            "drawn in initiation-*.svg"
        )
    if "link" in wanted:
        print(
            f"\n{results.report('link')}\nevery figure: build/results/link.json, drawn in "
            "link-*.svg"
        )
    if "transfers" in wanted:
        print(f"\n{results.figures_table(moved)}\n\nevery figure: build/results/bench.json")
    return 0
