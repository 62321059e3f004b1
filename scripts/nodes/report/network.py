# SPDX-License-Identifier: GPL-2.0
"""The network interface: how its figures are compared, as tables and as drawings.

Names are network.WAY.WHAT. The rival of each figure is that of virtio-net.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..results import Figure
from .drawing import Drawing, Line
from .tables import Aim, Cell, aims_table, ratio, row, table
from .values import Values

WAYS = {
    "adapter": "ul0 by the adapter",
    "ivshmem": "ul0 by ivshmem",
    "virtio": "virtio-net",
    "tun": "TUN and a connection",
    "ppp": "PPP and a connection",
}
RIVAL = "virtio"
NAME = re.compile(r"network\.(\w+)\.(.+)")
MTU = re.compile(r"network\.\w+\.stream\.mtu(\d+)")


def relate(figures: Sequence[Figure]) -> list[Figure]:
    """Puts the figures of virtio-net beside those of the others."""
    values = Values(figures)
    return [related(figure, values) for figure in figures]


def related(figure: Figure, values: Values) -> Figure:
    """Returns a figure with its rival."""
    name = NAME.fullmatch(figure.name)
    if not name or name[1] == RIVAL or name[2] == "mtu":
        return figure
    return replace(figure, rival=values.get(f"network.{RIVAL}.{name[2]}"))


def mtus(values: Values) -> list[int]:
    """Returns the MTUs that were measured."""
    found = (MTU.fullmatch(figure.name) for figure in values.starting_with("network."))
    return sorted({int(name[1]) for name in found if name})


def by_way(values: Values, wanted: Sequence[str], unit: float = 1) -> list[list[str]]:
    """Returns a row for each way that was measured."""
    rows = []
    for way, title in WAYS.items():
        cells = [values.get(f"network.{way}.{what}") for what in wanted]
        if any(cell is not None for cell in cells):
            rows.append(row(title, [ratio(cell, unit) for cell in cells]))
    return rows


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    sizes = [f"stream.mtu{mtu}" for mtu in mtus(values)]
    quantiles = ("p50", "p99", "mean")
    counted = (
        *("cpu_us_per_mib", "irqs_per_mib", "accesses_per_mib"),
        *("irqs_per_round_trip", "accesses_per_round_trip"),
    )
    return [
        table(
            "Streams by TCP, MB/s",
            ["interface", "own MTU", "stream", "8 streams", *(f"MTU {it}" for it in mtus(values))],
            by_way(values, ["mtu", "stream", "stream.8", *sizes]),
        ),
        table(
            "Round trips of one byte by TCP, us",
            ["interface", *quantiles],
            by_way(values, [f"rtt.{it}" for it in quantiles], 1e3),
        ),
        table(
            "Round trips by programs that poll the interface (net.core.busy_read), us",
            ["interface", *quantiles, "irqs", "accesses"],
            [
                [name, *trips, *costs]
                for (name, *trips), (_, *costs) in zip(
                    by_way(values, [f"rtt.{it}.busy_poll" for it in quantiles], 1e3),
                    by_way(
                        values,
                        [f"{it}_per_round_trip.busy_poll" for it in ("irqs", "accesses")],
                    ),
                    strict=True,
                )
            ],
        ),
        table(
            "Datagrams by UDP that arrive, 1/s",
            ["interface", "64 bytes", "1400 bytes"],
            by_way(values, ["udp.64", "udp.1400"]),
        ),
        table(
            "Costs of both nodes: processor time, interrupts, and accesses to the device",
            [
                *("interface", "us by MiB", "irqs by MiB", "accesses by MiB"),
                *("irqs by round trip", "accesses by round trip"),
            ],
            by_way(values, counted),
        ),
        aims_table(aims(values)),
    ]


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""

    def times(way: str, what: str) -> Cell:
        return ratio(*(values.get(f"network.{it}.{what}") for it in (way, RIVAL)))

    for way, least, most in (("adapter", 5, 0.5), ("ivshmem", 2, 1.0)):
        title = WAYS[way]
        yield Aim(f"stream by {title}: times virtio-net's", times(way, "stream"), least=least)
        yield Aim(f"round trip by {title}: times virtio-net's", times(way, "rtt.p50"), most=most)
        polled = times(way, "rtt.p50.busy_poll")
        yield Aim(f"round trip by {title}, polled: times virtio-net's, polled", polled, most=most)
        accesses = values.get(f"network.{way}.accesses_per_mib")
        yield Aim(f"accesses to the device by MiB, {title}", accesses, most=4)


def drawings(values: Values) -> list[Drawing]:
    """Returns the drawing of streams by MTU."""
    lines: list[Line] = []
    for way, title in WAYS.items():
        of = ((mtu, values.get(f"network.{way}.stream.mtu{mtu}")) for mtu in mtus(values))
        lines.append((title, [(float(mtu), rate) for mtu, rate in of if rate is not None]))
    return [Drawing("network-stream.svg", "Streams by TCP", "MTU, bytes", "MB/s", lines)]
