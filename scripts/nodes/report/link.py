# SPDX-License-Identifier: GPL-2.0
"""The link: how its figures are compared, as tables and as drawings.

Names are PREFIX.TRANSPORT.rtt[.SIZE].QUANTILE[MODE][SUFFIX],
PREFIX.TRANSPORT.stream.SIZE[MODE][SUFFIX], and those of counts. The prefix says what joins the
nodes, the suffix how the run was special.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..results import Figure
from . import broadcast
from .drawing import Drawing, Line
from .tables import Aim, Cell, aims_table, ratio, row, table
from .values import Values

SIZES = {
    "8": 8,
    "64": 64,
    "512": 512,
    "4k": 4 << 10,
    "16k": 16 << 10,
    "64k": 64 << 10,
    "256k": 256 << 10,
    "1m": 1 << 20,
    "4m": 4 << 20,
    "16m": 16 << 20,
}
# The size of round trips whose figures name no size.
SHORTEST = "8"
QUANTILES = ("p50", "p99", "p999")
# Of connections.
MODES = ("", ".pull", ".unpinned", ".rings")
BACKENDS = {
    "link": "the adapter",
    "link.ivshmem": "ivshmem",
    "link.loopback": "the loopback",
}
# Sizes from which on a connection is to be as fast as the engine.
LARGE = ("256k", "1m", "4m", "16m")
RING = "link.ring.rtt.p50"

# What a figure is compared with, by transport and kind: transports of its floor, of which the
# first one that was measured counts, and its rival.
COMPARED = {
    "ring.rtt": (("raw",), "tcp"),
    "conn.rtt": (("ring",), "tcp"),
    "ring.stream": (("memcpy",), "tcp"),
    "conn.stream": (("engine", "memcpy"), "tcp"),
    "conventional.stream": ((), "tcp"),
    "character.stream": ((), "tcp"),
    "conn.copies": ((), "conventional"),
}
TIMED = re.compile(r"(link(?:\.ivshmem|\.loopback)?)\.(\w+)\.(\w+)(.*)")
COUNTED = re.compile(r"(link(?:\.ivshmem|\.loopback)?)\.(irqs_per_mb|irqs_per_message)(.*)")
MODE = re.compile(r"\.(pull|unpinned|rings|busy)(?=\.|$)")


@dataclass(frozen=True)
class Names:
    """The names of one run."""

    prefix: str
    suffix: str = ""

    def rtt(self, transport: str, size: str, quantile: str = "p50", mode: str = "") -> str:
        """Round trips."""
        size = "" if size == SHORTEST else f".{size}"
        return self.of(f"{transport}.rtt{size}.{quantile}{mode}")

    def stream(self, transport: str, size: str, mode: str = "") -> str:
        """Throughput."""
        return self.of(f"{transport}.stream.{size}{mode}")

    def of(self, what: str) -> str:
        """Anything else."""
        return f"{self.prefix}.{what}{self.suffix}"


def relate(figures: Sequence[Figure]) -> list[Figure]:
    """Puts floors and rivals beside figures."""
    values = Values(figures)
    return [related(figure, values) for figure in figures]


def related(figure: Figure, values: Values) -> Figure:
    """Returns a figure with its floor and its rival."""
    if counted := COUNTED.fullmatch(figure.name):
        prefix, what, rest = counted.groups()
        return replace(figure, rival=values.get(f"{prefix}.tcp.{what}{MODE.sub('', rest)}"))
    timed = TIMED.fullmatch(figure.name)
    compared = timed and COMPARED.get(f"{timed[2]}.{timed[3]}")
    if not timed or not compared:
        return figure
    prefix, _, what, rest = timed.groups()

    def of(transport: str) -> float | None:
        return values.get(f"{prefix}.{transport}.{what}{MODE.sub('', rest)}")

    floors, rival = compared
    found = (of(transport) for transport in floors)
    return replace(
        figure, floor=next((it for it in found if it is not None), None), rival=of(rival)
    )


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    found: list[str | None] = []
    for prefix, title in BACKENDS.items():
        names = Names(prefix)
        found += [round_trips(values, names, title), streams(values, names, title)]
    wanted = list(aims(values))
    found += [
        ways(values),
        caching(values),
        handlers(values),
        counts(values),
        broadcast.of(values),
        aims_table(wanted),
    ]
    missing = [f"  {aim.what}" for aim in wanted if aim.value is None]
    if missing and any(found):
        found.append("\n".join(["Not measured:", *missing, ""]))
    return found


def by_size(cells: Callable[[str], Iterable[Cell]]) -> list[list[str]]:
    """Returns a row for each size that has any cell."""
    rows = ((size, list(cells(size))) for size in SIZES)
    return [row(size, found) for size, found in rows if any(cell is not None for cell in found)]


def round_trips(values: Values, names: Names, title: str) -> str | None:
    """Round trips of all transports by size."""

    def cells(size: str) -> Iterator[Cell]:
        def of(transport: str, quantile: str = "p50", mode: str = "") -> Cell:
            return values.micro(names.rtt(transport, size, quantile, mode))

        raw, ring, tcp = of("raw"), of("ring"), of("tcp")
        yield raw
        yield from (of("ring", quantile) for quantile in QUANTILES)
        yield from (ratio(ring, raw), of("ring", mode=".busy"))
        yield from (of("conn", quantile) for quantile in QUANTILES)
        yield from (of("conn", mode=".pull"), tcp, ratio(tcp, ring))

    return table(
        f"Round trips over {title}, us",
        [
            *("size", "bare words", "ring p50", "p99", "p99.9", "to bare", "only polling p50"),
            *("connection p50", "p99", "p99.9", "pull p50", "TCP p50", "TCP to ring"),
        ],
        by_size(cells),
    )


def streams(values: Values, names: Names, title: str) -> str | None:
    """Streams of all transports by size."""

    def cells(size: str) -> list[Cell]:
        def of(transport: str, mode: str = "") -> Cell:
            return values.get(names.stream(transport, size, mode))

        memcpy, ring, engine, conn = map(of, ("memcpy", "ring", "engine", "conn"))
        base = memcpy if engine is None else engine
        return [
            *(memcpy, ring, ratio(ring, memcpy), of("ring", ".busy")),
            *(engine, conn, ratio(conn, base), of("conn", ".pull"), of("conn", ".unpinned")),
            of("conn", ".rings"),
            *(of("conventional"), of("character"), of("tcp")),
        ]

    return table(
        f"Streams over {title}, MB/s",
        [
            *("size", "memcpy", "ring", "ratio", "only polling", "engine", "connection", "ratio"),
            *("pull", "not registered", "through rings", "conventional", "character device", "TCP"),
        ],
        by_size(cells),
    )


def way(values: Values, names: Names, mode: str) -> list[str] | None:
    """Returns the row of one way to run; none if it was not measured."""

    def rtt(transport: str, quantile: str, mode: str) -> Cell:
        return values.micro(names.rtt(transport, SHORTEST, quantile, mode))

    stream = values.get(names.stream("conn", "256k", mode))
    if stream is None:
        return None
    counted = (
        *("irqs_per_round_trip", "irqs_per_message"),
        *("doorbells_per_message", "irqs_per_mb"),
    )
    cells = [None if mode else rtt("ring", quantile, "") for quantile in QUANTILES]
    cells += [rtt("conn", quantile, mode) for quantile in ("p50", "p99")]
    cells += [stream, ratio(stream, values.get(names.stream("engine", "256k")))]
    cells += [values.get(names.of(f"{what}{mode}")) for what in counted]
    name = ", ".join(f"{mode}{names.suffix}".split(".")[1:]) or "push, idle"
    backend = names.prefix.removeprefix("link").removeprefix(".")
    return row(f"{backend}: {name}" if backend else name, cells)


def ways(values: Values) -> str | None:
    """Idle and loaded, with and without interrupts, more or less moderated."""
    suffixes = (figure.name.removeprefix(RING) for figure in values.starting_with(RING))
    runs = [Names("link", suffix) for suffix in suffixes]
    runs += [Names(prefix) for prefix in list(BACKENDS)[1:]]
    rows = [found for names in runs for mode in MODES if (found := way(values, names, mode))]
    return table(
        "Ways to run: round trips of 8 bytes (us), 256 KiB in a stream (MB/s), interrupts and "
        "doorbells",
        [
            *("way", "ring p50", "p99", "p99.9", "connection p50", "p99", "stream", "to engine"),
            *("irqs by round trip", "by message of 4k", "doorbells", "irqs by MB"),
        ],
        rows,
    )


def caching(values: Values) -> str | None:
    """Copies into windows that are mapped write-combining and uncached."""
    plain, uncached = Names("link"), Names("link", ".uncached")

    def cells(size: str) -> Iterator[Cell]:
        other = values.get(uncached.stream("memcpy", size))
        if other is not None:
            combined = values.get(plain.stream("memcpy", size))
            yield from (combined, other, ratio(combined, other))

    return table(
        "Copies into the window of the adapter, MB/s",
        ["size", "write-combining", "uncached", "by it"],
        by_size(cells),
    )


def handlers(values: Values) -> str | None:
    """How long interrupt handlers and the progress worker run."""
    prefix = "link.handler."
    names = dict.fromkeys(
        figure.name.removeprefix(prefix).rpartition(".")[0]
        for figure in values.starting_with(prefix)
    )
    rows = []
    for name in names:
        median, count, total = (
            values.get(f"{prefix}{name}.{what}") for what in ("time", "count", "us_per_mb")
        )
        rows.append(row(name, [ratio(median, 1e3), count, total]))
    return table(
        "Interrupt handlers and work items of the sender, in a stream over a connection",
        ["", "median us", "times", "us by MB"],
        rows,
    )


def counts(values: Values) -> str | None:
    """Copies, and everything else that is counted."""
    kinds = (
        *(("conn", ""), ("conn", ".pull"), ("conn", ".unpinned")),
        *(("conventional", ""), ("character", "")),
    )
    rows = []
    for prefix, title in BACKENDS.items():
        names = Names(prefix)
        for transport, mode in kinds:
            copies, messages, irqs, polls, pins = (
                values.get(names.of(f"{transport}.{what}{mode}"))
                for what in (
                    *("copies", "control_messages_per_mb", "event_irqs_per_mb"),
                    *("polls_per_mb", "locks_per_mb"),
                )
            )
            if copies is not None:
                stream = values.get(names.stream(transport, "256k", mode))
                cells = [copies, stream, messages, irqs, polls, pins]
                rows.append(row(f"{title}: {transport}{mode}", cells))
    return table(
        "Copies, and other counts of 256 KiB in a stream",
        ["transport", "copies", "MB/s", "control messages by MB", "engine's irqs", "polls", "pins"],
        rows,
    )


def above_conventional(values: Values, names: Names) -> Cell:
    """Returns the lowest ratio, of all sizes, of the better stream to the conventional one."""
    found = []
    for size in SIZES:
        modes = (values.get(names.stream("conn", size, mode)) for mode in MODES)
        best = max((rate for rate in modes if rate is not None), default=None)
        times = ratio(best, values.get(names.stream("conventional", size)))
        if times is not None:
            found.append(times)
    return min(found, default=None)


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""
    idle, paced = Names("link"), Names("link", ".paced")

    def trip(transport: str, base: str) -> Cell:
        return ratio(*(values.get(idle.rtt(it, SHORTEST)) for it in (transport, base)))

    def share(names: Names, transport: str, base: str, size: str) -> Cell:
        return ratio(*(values.get(names.stream(it, size)) for it in (transport, base)))

    shares = (share(idle, "conn", "engine", size) for size in LARGE)
    worst = min((found for found in shares if found is not None), default=None)
    yield Aim("round trip by ring: times that of bare words", trip("ring", "raw"), most=1.6)
    yield Aim("round trip by TCP: times that by ring", trip("tcp", "ring"), least=100)
    ring = share(idle, "ring", "memcpy", "64k")
    yield Aim("64k by ring: part of memcpy into the window", ring, least=0.8)
    yield Aim("from 256k by connection: part of the engine's rate", worst, least=0.9)
    slow = share(paced, "conn", "engine", "256k")
    yield Aim("256k by connection: part of a paced engine's rate", slow, least=0.9)
    for prefix, backend in list(BACKENDS.items())[1:]:
        lowest = above_conventional(values, Names(prefix))
        yield Aim(f"streams over {backend}: times a conventional one", lowest, least=1)
    device = share(idle, "conn", "character", "256k")
    yield Aim("256k by connection: times that of a character device", device, least=1)
    for what, name, copies in (
        ("a connection", "link.conn.copies", 1),
        ("a connection that pulls", "link.conn.copies.pull", 1),
        ("a conventional read and write", "link.conventional.copies", 3),
        ("read and write of a character device", "link.character.copies", 2),
        ("a connection over the loopback", "link.loopback.conn.copies", 1),
        ("a connection over ivshmem", "link.ivshmem.conn.copies", 2),
    ):
        yield Aim(f"copies by {what}", values.get(name), copies, copies)


# The lines of drawings: transport and mode by title.
RTT_LINES = {
    "bare words": ("raw", ""),
    "ring channel": ("ring", ""),
    "connection": ("conn", ""),
    "connection that pulls": ("conn", ".pull"),
    "character device": ("character", ""),
    "TCP": ("tcp", ""),
}
STREAM_LINES = {
    "memcpy into the window": ("memcpy", ""),
    "ring channel": ("ring", ""),
    "engine alone": ("engine", ""),
    "connection": ("conn", ""),
    "connection that pulls": ("conn", ".pull"),
    "stream through rings": ("conn", ".rings"),
    "conventional": ("conventional", ""),
    "character device": ("character", ""),
    "TCP": ("tcp", ""),
}


def drawings(values: Values) -> list[Drawing]:
    """Returns all drawings."""
    found = []
    for prefix, title in BACKENDS.items():
        names, file = Names(prefix), prefix.replace(".", "-")
        rtt, stream = f"Round trips over {title}, median", f"Streams over {title}"
        trips = lines(values, RTT_LINES, names.rtt, 1e3)
        found.append(Drawing(f"{file}-rtt.svg", rtt, "bytes", "us", trips))
        rates = lines(values, STREAM_LINES, names.stream, 1)
        found.append(Drawing(f"{file}-stream.svg", stream, "bytes", "MB/s", rates))
    return found


def lines(
    values: Values, kinds: Mapping[str, tuple[str, str]], name: Callable[..., str], unit: float
) -> list[Line]:
    """Returns a line of points by size for each kind."""
    found: list[Line] = []
    for title, (transport, mode) in kinds.items():
        of = (
            (length, values.get(name(transport, size, mode=mode))) for size, length in SIZES.items()
        )
        found.append((title, [(float(x), y / unit) for x, y in of if y is not None]))
    return found
