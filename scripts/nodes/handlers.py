# SPDX-License-Identifier: GPL-2.0
"""Measures how long the driver's interrupt handlers and work items run, by the kernel's tracer."""

import re
import statistics
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from .endpoints import Endpoint
from .node import Node
from .results import Figure
from .streams import send_file

TRACER = "/sys/kernel/tracing"
PORT = 870
BYTES = 16 << 20
# The longest trace that a measurement leaves, with room to spare.
BUFFER_KB = 8192
EVENTS = (
    "irq/irq_handler_entry",
    "irq/irq_handler_exit",
    "workqueue/workqueue_execute_start",
    "workqueue/workqueue_execute_end",
)
WORKER = "worker"
# "<task>-<pid> [<cpu>] <flags> <ticks>: <event>: <the rest>"
LINE = re.compile(r"\[(\d+)\]\s+\S+\s+(\d+): ([\w ]+): (.*)")
ENTRY = re.compile(r"irq=(\d+) name=(uldma-\w+)")
EXIT = re.compile(r"irq=(\d+) ret=handled")
WORK = re.compile(r"work struct (\w+): function (.*)")
# Seconds, as /proc/uptime has them.
MARK = re.compile(r"at (\d+\.\d\d)$")
NS = 1e9


def lengths(trace: str) -> dict[str, list[float]]:
    """Returns the nanoseconds of each run of a handler, by its interrupt's name, and of each work
    item of the driver. Two marks in the trace give the length of a tick."""
    begun: dict[tuple[str, str], tuple[str, int]] = {}
    ticks: dict[str, list[int]] = {}
    marks: list[tuple[int, float]] = []
    for line in LINE.finditer(trace):
        cpu, now, rest = line[1], int(line[2]), line[4]
        if mark := MARK.match(rest):
            marks.append((now, float(mark[1]) * NS))
        elif entry := ENTRY.match(rest):
            begun[cpu, entry[1]] = (entry[2], now)
        elif work := WORK.match(rest):
            key = ("work", work[1])
            if line[3] == "workqueue_execute_start" and "[uldma]" in work[2]:
                begun[key] = (WORKER, now)
            elif line[3] == "workqueue_execute_end" and key in begun:
                name, then = begun.pop(key)
                ticks.setdefault(name, []).append(now - then)
        elif (ended := EXIT.match(rest)) and (cpu, ended[1]) in begun:
            name, then = begun.pop((cpu, ended[1]))
            ticks.setdefault(name, []).append(now - then)
    if len(marks) < 2 or marks[-1][0] == marks[0][0]:
        return {}
    scale = (marks[-1][1] - marks[0][1]) / (marks[-1][0] - marks[0][0])
    return {name: [count * scale for count in found] for name, found in ticks.items()}


def _mark(node: Node) -> None:
    node.check(f"read -r up _ </proc/uptime; echo at $up >{TRACER}/trace_marker")


@contextmanager
def _tracing(node: Node) -> Iterator[None]:
    """Traces interrupts and work items, by a clock that counts finer than microseconds."""
    enable = "; ".join(f"echo 1 >events/{event}/enable" for event in EVENTS)
    disable = "; ".join(f"echo 0 >events/{event}/enable" for event in EVENTS)
    node.check(
        f"cd {TRACER}; echo x86-tsc >trace_clock; echo {BUFFER_KB} >buffer_size_kb; {enable}"
    )
    try:
        _mark(node)
        yield
        _mark(node)
        node.check(f"cd {TRACER}; {disable}")
    finally:
        node.check(f"cd {TRACER}; {disable}; echo >trace; echo local >trace_clock")


def traced(here: Endpoint, there: Endpoint) -> dict[str, list[float]]:
    """Returns the lengths on the sending node during one stream over a connection."""
    with _tracing(here.node):
        send_file(here, there, PORT, BYTES)
        here.check("dma --method kernel --count 200 --size 4K")
        _mark(here.node)
        trace = here.node.check(f"grep -E 'uldma|ret=handled|at [0-9]' {TRACER}/trace")
    return lengths(trace)


def figures(found: dict[str, list[float]]) -> list[Figure]:
    """Returns link.handler.NAME.time (the median), .count, and .us_per_mb of the stream."""
    return [
        Figure(f"link.handler.{name}.{what}", value, unit)
        for name, each in sorted(found.items())
        for what, value, unit in (
            ("time", statistics.median(each), "ns"),
            ("count", len(each), "count"),
            ("us_per_mb", sum(each) / 1e3 / (BYTES / 1e6), "us"),
        )
    ]


def measure(ends: Sequence[Endpoint]) -> list[Figure]:
    """Measures on the first end's node."""
    here, there = ends
    return figures(traced(here, there))
