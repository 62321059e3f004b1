# SPDX-License-Identifier: GPL-2.0
"""Messages by each technique: how their figures are compared, as tables and as drawings.

Names are sem.send.TECHNIQUE.SIZE, sem.recv.TECHNIQUE.SIZE, sem.pair.SENDING.RECEIVING.SIZE,
sem.match.stream.SIZE and so on, and those of a paced engine end with ".paced".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from ..results import Figure
from . import paper
from .drawing import Drawing, Line
from .tables import Aim, Cell, aims_table, ratio, row, table
from .values import Values

SIZES = {
    "8": 8,
    "64": 64,
    "256": 256,
    "1k": 1 << 10,
    "4k": 4 << 10,
    "16k": 16 << 10,
    "64k": 64 << 10,
    "256k": 256 << 10,
    "1m": 1 << 20,
}
LARGEST = "1m"
PACED = ".paced"
# Runs: the end of their names, by what tables say of them.
RUNS = {"the engine at full speed": "", "an engine of 250 MB/s": PACED}
# Techniques of the paper by direction; others are ours.
DMA = ("copy-dma", "direct-dma", "v2p-dma", "pex-dma")
PAIR = "sem.pair."
COUNTS = ("syscalls", "mmio", "irqs", "doorbells", "switches", "shootdowns")
CPUS = (1, 2, 4)


def relate(figures: Sequence[Figure]) -> list[Figure]:
    """Appends the figures that are called by no size: sem.match.rtt and what is counted."""
    values = Values(figures)
    found = list(figures)
    for suffix in RUNS.values():
        for name, of in (
            ("sem.match.rtt", "sem.match.rtt.8.p50"),
            *(
                (f"sem.match.{what}_per_message", f"sem.match.stream.64k.{what}_per_message")
                for what in COUNTS
            ),
        ):
            if figure := values.figure(of + suffix):
                found.append(Figure(name + suffix, figure.value, figure.unit))
    return found


def techniques(values: Values, direction: str, suffix: str) -> list[str]:
    """Returns the techniques that were measured alone, in the order of their figures."""
    start = f"sem.{direction}."
    names = (name.removeprefix(start) for name in values.names() if name.startswith(start))
    sized = (name.split(".") for name in names)
    ends = [part for part in suffix.split(".") if part]
    return list(dict.fromkeys(it[0] for it in sized if it[2:] == ends and it[1] in SIZES))


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    found: list[str | None] = []
    for what, suffix in RUNS.items():
        found += [
            alone(values, "send", suffix, f"Figure 2: senders alone, {what}, MB/s"),
            alone(values, "recv", suffix, f"Figure 3: receivers alone, {what}, MB/s"),
            pairs(values, suffix, f"Senders and receivers, 1 MiB, {what}, MB/s"),
            beside_sides(values, suffix, f"The same, by the slower of the sides alone, {what}"),
            matched(values, suffix, f"Messages without copies, {what}, MB/s"),
            slots(values, suffix, f"Slots of 64 KiB, {what}, MB/s"),
            mtus(values, suffix, f"1 MiB by size of the slots (MTU), senders alone, {what}, MB/s"),
        ]
    wanted = list(aims(values))
    found += [
        peaks(values, "send", "Figure 2", paper.SEND_PEAKS),
        peaks(values, "recv", "Figure 3", paper.RECEIVE_PEAKS),
        crossovers(values),
        *(overwritten(values, *run) for run in RUNS.items()),
        trips(values),
        counts(values),
        processors(values),
        aims_table(wanted),
    ]
    if any(found):
        found.insert(0, reference(values))
    missing = [f"  {aim.what}" for aim in wanted if aim.value is None]
    if missing and any(found):
        found.append("\n".join(["Not measured:", *missing, ""]))
    return found


def reference(values: Values) -> str:
    """What the paper measured, and what can be compared with it."""
    lines = [
        f"The paper's machine: {paper.SEMANTICS_MACHINE}.",
        "Its curves of figures 2 and 3 cannot be read; its peaks and its crossover are compared.",
    ]
    if values.emulated:
        lines.append("The nodes are emulated: compare ratios of one run, and counts.")
    return "\n".join([*lines, ""])


def by_size(cells: Callable[[str], Iterable[Cell]]) -> list[list[str]]:
    """Returns a row for each size that has any cell."""
    rows = ((size, list(cells(size))) for size in SIZES)
    return [row(size, found) for size, found in rows if any(cell is not None for cell in found)]


def alone(values: Values, direction: str, suffix: str, title: str) -> str | None:
    """One side alone, by size and technique."""
    names = techniques(values, direction, suffix)

    def cells(size: str) -> Iterator[Cell]:
        figures = [values.figure(f"sem.{direction}.{name}.{size}{suffix}") for name in names]
        yield next((figure.floor for figure in figures if figure), None)
        yield from (figure.value if figure else None for figure in figures)

    return table(title, ["size", "engine", *names], by_size(cells) if names else [])


def peaks(values: Values, direction: str, title: str, theirs: Mapping[str, float]) -> str | None:
    """The paper's peaks beside ours with a paced engine, and both by DirectDMA."""
    base = "direct-dma"
    names = techniques(values, direction, PACED)
    ours = {name: values.get(f"sem.{direction}.{name}.{LARGEST}{PACED}") for name in names}
    best = ours.get(base) or max((it for it in ours.values() if it is not None), default=None)
    rows = [
        row(name, [value, ratio(value, best), peak, ratio(peak, theirs[base])])
        for name, value in ours.items()
        for peak in [theirs.get(name)]
    ]
    return table(
        f"{title}: 1 MiB with a paced engine beside the paper's peaks, MB/s",
        ["technique", "ours", "by the best", "paper", "by DirectDMA"],
        rows,
    )


def pairs(values: Values, suffix: str, title: str) -> str | None:
    """The rates of senders and receivers together."""
    return by_pair(values, suffix, title, rate_of_pair)


def by_pair(
    values: Values,
    suffix: str,
    title: str,
    cell: Callable[[Values, tuple[str, str], str], Cell],
) -> str | None:
    """What `cell` says of pairs: a row for each sender, a column for each receiver."""
    found = measured_pairs(values, suffix)
    receivers = list(dict.fromkeys(receiver for _, receiver in found))
    rows = [
        row(sender, [cell(values, (sender, it), suffix) for it in receivers])
        for sender in dict.fromkeys(sender for sender, _ in found)
    ]
    return table(title, ["sender by receiver", *receivers], rows)


def measured_pairs(values: Values, suffix: str) -> list[tuple[str, str]]:
    """The pairs of a sender and a receiver that were measured with the largest message."""
    ends = [LARGEST, *(part for part in suffix.split(".") if part)]
    parts = [name.removeprefix(PAIR).split(".") for name in values.names() if PAIR in name]
    return [(it[0], it[1]) for it in parts if it[2:] == ends]


def rate_of_pair(values: Values, pair: tuple[str, str], suffix: str) -> Cell:
    """How fast the largest message goes by a pair."""
    return values.get(f"{PAIR}{'.'.join(pair)}.{LARGEST}{suffix}")


def of_slower_side(values: Values, pair: tuple[str, str], suffix: str) -> Cell:
    """How much of the rate of its slower side alone a pair has (C-054)."""
    sides = (
        values.get(f"sem.{direction}.{name}.{LARGEST}{suffix}")
        for direction, name in zip(("send", "recv"), pair, strict=True)
    )
    alone_rates = [rate for rate in sides if rate is not None]
    rate = rate_of_pair(values, pair, suffix)
    return ratio(rate, min(alone_rates)) if len(alone_rates) == 2 else None


def beside_sides(values: Values, suffix: str, title: str) -> str | None:
    """Pairs beside their slower side alone."""
    return by_pair(values, suffix, title, of_slower_side)


def matched(values: Values, suffix: str, title: str) -> str | None:
    """Messages without copies beside the engine alone, connections and TCP."""

    def cells(size: str) -> list[Cell]:
        figure = values.figure(f"sem.match.stream.{size}{suffix}")
        if figure is None:
            return []
        conn, tcp = (values.get(f"sem.{it}.stream.{size}{suffix}") for it in ("conn", "tcp"))
        floor = figure.floor
        return [figure.value, floor, figure.ratio, conn, ratio(conn, floor), tcp]

    head = ["size", "messages", "engine", "ratio", "connection", "ratio", "TCP"]
    return table(title, head, by_size(cells))


def slots(values: Values, suffix: str, title: str) -> str | None:
    """With one slot, a copy and a transfer cannot overlap."""
    rows = []
    for count in ("1", "2", "4", "8"):
        copied, direct = (
            values.get(f"sem.slots.{it}.{count}{suffix}") for it in ("copy-dma", "direct-dma")
        )
        if copied is not None:
            rows.append(row(count, [copied, direct, ratio(copied, direct)]))
    return table(title, ["slots", "CopyDMA", "DirectDMA", "ratio"], rows)


def mtus(values: Values, suffix: str, title: str) -> str | None:
    """Slots of different sizes."""

    def cells(size: str) -> list[Cell]:
        found = [values.figure(f"sem.mtu.{it}.{size}{suffix}") for it in DMA]
        if not any(found):
            return []
        return [it.value if it else None for it in found] + [
            it.ratio if it else None for it in found
        ]

    return table(title, ["MTU", *DMA, *(f"{it} to engine" for it in DMA)], by_size(cells))


def crossover(values: Values, small: str, large: str, suffix: str) -> str | None:
    """Returns the least size from which on `large` is not slower than `small`, or that there is
    none; none at all if they were not measured."""
    rates = [
        (size, values.get(f"{small}.{size}{suffix}"), values.get(f"{large}.{size}{suffix}"))
        for size in SIZES
    ]
    measured = [(size, ahead, other) for size, ahead, other in rates if ahead and other]
    if not measured:
        return None
    below = [size for size, ahead, other in measured if ahead > other]
    if not below:
        return f"from {measured[0][0]} on, the least measured"
    sizes = [size for size, _, _ in measured]
    after = sizes[sizes.index(below[-1]) + 1 :]
    return f"from {after[0]} on" if after else f"none up to {sizes[-1]}"


CROSSOVERS = (
    ("sem.send.pio", "sem.send.direct-dma", f"{paper.PIO_AHEAD} bytes"),
    ("sem.send.copy-dma", "sem.send.v2p-dma", "-"),
    ("sem.send.copy-dma", "sem.send.pex-dma", "-"),
    ("sem.recv.copy-dma", "sem.recv.v2p-dma", "-"),
    ("sem.recv.copy-dma", "sem.recv.pex-dma", "exists, no value"),
)


def crossovers(values: Values) -> str | None:
    """Sizes from which on one technique is faster than another."""
    rows = []
    for small, large, theirs in CROSSOVERS:
        cells = [crossover(values, small, large, suffix) for suffix in RUNS.values()]
        if any(cells):
            name = f"{large.removeprefix('sem.')} ahead of {small.removeprefix('sem.')}"
            rows.append([name, *(cell or "-" for cell in cells), theirs])
    return table("Crossovers by size", ["what", *RUNS, "paper"], rows)


def overwritten(values: Values, what: str, suffix: str) -> str | None:
    """Senders by page exchange that leave their pages alone, or write to all of them at once."""

    def cells(size: str) -> list[Cell]:
        rates = [values.get(f"sem.overwrite.{it}.{size}{suffix}") for it in ("v2p-dma", "0", "100")]
        if rates[1] is None:
            return []
        copies = (values.get(f"sem.overwrite.{it}.{size}.copies{suffix}") for it in ("0", "100"))
        return [*rates, ratio(rates[1], rates[0]), ratio(rates[2], rates[0]), *copies]

    return table(
        f"Senders by page exchange beside V2PDMA, {what}: MB/s, and the part of bytes that was "
        "copied",
        ["size", "V2PDMA", "0 % written", "100 %", "ratio", "ratio", "0 % copied", "100 %"],
        by_size(cells),
    )


def trips(values: Values) -> str | None:
    """Round trips; the engine's speed matters little."""
    rows = []
    median = ".8.p50"
    for name in values.names():
        if not name.startswith("sem.") or not name.endswith(median) or "rtt" not in name:
            continue
        start = name.removesuffix(median)
        cells = [
            values.micro(f"{start}.{size}.{quantile}")
            for size in ("8", "4k")
            for quantile in ("p50", "p99")
        ]
        what = start.removeprefix("sem.").replace("rtt.", "", 1).removesuffix(".rtt")
        rows.append(row(what.replace(".", " to "), cells))
    return table(
        "Round trips by technique, us",
        ["", "8 bytes p50", "p99", "4 KiB p50", "p99"],
        rows,
    )


def counts(values: Values) -> str | None:
    """What both nodes do for one message of a stream."""
    rows = []
    kinds = (("send", "sem.send."), ("recv", "sem.recv."), ("match", "sem.match.stream"))
    for suffix in RUNS.values():
        for direction, start in kinds:
            names = (
                [f"{start}{it}" for it in techniques(values, direction, suffix)]
                if direction != "match"
                else [start]
            )
            for name in names:
                for size in ("4k", "64k"):
                    cells = [
                        values.get(f"{name}.{size}.{what}_per_message{suffix}") for what in COUNTS
                    ]
                    if cells[0] is not None:
                        end = suffix.replace(".", ", ")
                        rows.append(row(f"{name.removeprefix('sem.')} {size}{end}", cells))
    return table(
        "Counts by message of a stream, of both nodes",
        ["", "system calls", "MMIO", "interrupts", "doorbells", "switches", "shoot-downs"],
        rows,
    )


def processors(values: Values) -> str | None:
    """Pins, which change no page table, beside page exchanges, on more and more processors."""
    rows = []
    for direction in ("send", "recv", "overwrite"):
        for name in techniques(values, direction, f".cpus{CPUS[0]}"):
            start = f"sem.{direction}.{name}.64k"
            rates = [values.get(f"{start}.cpus{cpus}") for cpus in CPUS]
            flushes = [values.get(f"{start}.shootdowns_per_message.cpus{cpus}") for cpus in CPUS]
            rows.append(row(f"{direction} {name}", [*rates, *flushes]))
    return table(
        "64 KiB by processors of the nodes, all busy in the same memory: MB/s, and TLB shoot-downs "
        "by message",
        ["", *(f"{cpus} CPUs" for cpus in CPUS), *(f"by {cpus}" for cpus in CPUS)],
        rows,
    )


def spread(values: Values, direction: str, suffix: str) -> Cell:
    """Returns how much less the slowest DMA technique moves than the fastest one, in percent."""
    rates = [values.get(f"sem.{direction}.{name}.{LARGEST}{suffix}") for name in DMA]
    found = [rate for rate in rates if rate is not None]
    return 100 * (1 - min(found) / max(found)) if len(found) > 1 else None


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""

    def share(name: str) -> Cell:
        figure = values.figure(name)
        return figure.ratio if figure else None

    yield Aim(
        "CopyDMA by 2 slots: times by 1 slot",
        ratio(*(values.get(f"sem.slots.copy-dma.{it}") for it in (2, 1))),
        least=1.2,
    )
    yield Aim(
        "1 MiB buffered over V2PDMA, paced: times CopyDMA",
        ratio(*(values.get(f"sem.send.{it}.{LARGEST}{PACED}") for it in ("buffered", "copy-dma"))),
        least=0.9,
    )
    beside = [of_slower_side(values, it, PACED) for it in measured_pairs(values, PACED)]
    rates = [it for it in beside if it is not None]
    yield Aim(
        "1 MiB by the worst pair, paced: times its slower side", min(rates, default=None), least=0.8
    )
    for direction, what in (("send", "senders"), ("recv", "receivers")):
        percent = spread(values, direction, PACED)
        yield Aim(f"DMA {what} of 1 MiB, paced: percent apart", percent, most=6)
    stream = "sem.match.stream.64k"
    yield Aim("64k matched: part of a paced engine's rate", share(f"{stream}{PACED}"), least=0.9)
    yield Aim("64k matched: part of the engine's rate", share(stream), least=0.6)
    for what, name in (("system calls", "syscalls"), ("MMIO", "mmio")):
        worst = values.get(f"sem.match.{name}_per_message")
        yield Aim(f"64k matched: {what} by message", worst, most=0.05)
    small = (values.get(f"sem.send.{it}.64") for it in ("pio", "direct-dma"))
    yield Aim("64 bytes by PIO: times DirectDMA", ratio(*small), least=1)
    large = (values.get(f"sem.send.{it}.{LARGEST}{PACED}") for it in ("pio", "direct-dma"))
    yield Aim("1 MiB by PIO: times DirectDMA, paced", ratio(*large), most=1)
    conn = share("sem.conn.stream.256k")
    yield Aim("256k by a connection: part of the engine's rate", conn, least=0.6)


def drawings(values: Values) -> list[Drawing]:
    """Returns all drawings."""
    found = []
    for what, suffix in RUNS.items():
        end = suffix.replace(".", "-")
        for direction, title in (
            ("send", "Figure 2: senders alone"),
            ("recv", "Figure 3: receivers alone"),
        ):
            names = techniques(values, direction, suffix)
            rates = lines(values, {it: f"sem.{direction}.{it}" for it in names}, suffix)
            file = f"semantics-{direction}{end}.svg"
            found.append(Drawing(file, f"{title}, {what}", "bytes", "MB/s", rates))
        streams = {
            "engine alone": "sem.engine.stream",
            "messages": "sem.match.stream",
            "connection": "sem.conn.stream",
            "TCP": "sem.tcp.stream",
        }
        for name, title, series in (
            ("match", "Messages without copies", streams),
            (
                *("mtu", "1 MiB by size of the slots"),
                {it: f"sem.mtu.{it}" for it in ("copy-dma", "direct-dma")},
            ),
        ):
            rates = lines(values, series, suffix)
            file = f"semantics-{name}{end}.svg"
            found.append(Drawing(file, f"{title}, {what}", "bytes", "MB/s", rates))
    return found


def lines(values: Values, series: Mapping[str, str], suffix: str) -> list[Line]:
    """Returns a line of points by size for each series."""
    found: list[Line] = []
    for title, name in series.items():
        points = ((length, values.get(f"{name}.{size}{suffix}")) for size, length in SIZES.items())
        found.append((title, [(float(x), y) for x, y in points if y is not None]))
    return found
