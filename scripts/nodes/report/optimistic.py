# SPDX-License-Identifier: GPL-2.0
"""Memory that is not pinned: how its figures are compared, as tables and as drawings.

Names are opt.hit.DIRECTION.SIZE.WAY, opt.miss.SIZE.WAY.WHAT, opt.load.WAY.WHAT and so on. A way is
"pinned", or a mode of optimistic regions.
"""

import re
from collections.abc import Iterator, Sequence

from . import optimistic_misses, paper
from .drawing import Drawing, Line
from .tables import Aim, Cell, aims_table, ratio, row, table
from .values import Values

PINNED = "pinned"
# Modes of optimistic regions. They differ by what they do about a page that is missing only.
AT_ONCE = {"at-once": "exception at once"}
MODES = {**AT_ONCE, "look-up": "look-up", "page-in": "page-in"}
WAYS = {PINNED: "pinned", **MODES}
WAYS_WITHOUT_MISSES = {PINNED: "pinned", **AT_ONCE}
SIZES = {"64": 64, "4k": 4 << 10, "8k": 8 << 10, "64k": 64 << 10, "256k": 256 << 10}
# How the owner of what soft-RoCE reads registers it.
RXE = {PINNED: "pinned", "odp": "ODP"}
DIRECTIONS = ("read", "write")
STATES = {"without": "no area", "idle": "an idle area", "valid": "an area, all pages valid"}
# Pages that the device does not know, by what the owner has of them, or how many they are.
MISSES = {
    "miss.64": "mapped",
    "miss.64k": "16 mapped",
    "fault.cached": "in the page cache",
    "fault.swapped": "in swap",
}
MISS_COUNTS = ("tries", "requests", "filled", "faulted")
PINS = re.compile(r"opt\.pins\.([a-z-]+)\.(\d+)")


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    found = [
        hits(values),
        exceptions(values),
        rivals(values),
        misses(values),
        load(values),
        registration(values),
        reclaim(values),
        pins(values),
        *optimistic_misses.tables(values),
        aims_table(aims(values)),
    ]
    if any(found):
        note = "The paper's times are of its machine: they are in no ratio."
        if values.emulated:
            note += "\nThe nodes are emulated: compare ratios of one run, and counts."
        found.insert(0, f"{note}\n")
    return found


def measured(rows: Sequence[list[str]]) -> list[list[str]]:
    """Returns the rows that have any figure."""
    return [cells for cells in rows if any(cell != "-" for cell in cells[1:])]


def times(values: Values, name: str) -> Cell:
    """Returns the ratio of a figure to its floor."""
    figure = values.figure(name)
    return figure.ratio if figure else None


def hits(values: Values) -> str | None:
    """Transfers of pages that are there, beside pinned ones."""
    rows = [
        row(
            f"{direction} {size}",
            [
                values.micro(f"{start}.{PINNED}"),
                *(
                    cell
                    for mode in AT_ONCE
                    for cell in (values.micro(f"{start}.{mode}"), times(values, f"{start}.{mode}"))
                ),
                *(values.micro(f"{start}.{way}.p99") for way in WAYS_WITHOUT_MISSES),
            ],
        )
        for direction in DIRECTIONS
        for size in SIZES
        for start in [f"opt.hit.{direction}.{size}"]
    ]
    modes = [word for mode in AT_ONCE.values() for word in (mode, "ratio")]
    head = ["transfer", PINNED, *modes, *(f"{it}, p99" for it in WAYS_WITHOUT_MISSES.values())]
    return table("Pages that are there (T_RDMA), median us", head, measured(rows))


def exceptions(values: Values) -> str | None:
    """Transfers of 64 bytes of a page that is missing, beside hits and beside the paper's."""
    rows = []
    for mode, title in MODES.items():
        hit = values.get(f"opt.exception.{mode}.hit")
        for name, what in (
            (f"opt.exception.{mode}", "without a request"),
            (f"opt.miss.64.{mode}.exception", "with a request"),
        ):
            if (time := values.get(name)) is not None:
                cells = [time / 1e3, ratio(time, hit), paper.EXCEPTION]
                rows.append(row(f"{title}, {what}", cells))
    title = "An exception (T_exc), 64 bytes: median us"
    return table(title, ["", "time", "by hit", "paper, us"], rows)


def rivals(values: Values) -> str | None:
    """Reads by soft-RoCE of memory that is pinned or paged in, beside reads by the engine."""
    theirs = [f"{way}{it}" for way in RXE for it in ("", ".first")]
    rows = [
        row(
            size,
            [
                *(values.micro(f"opt.hit.read.{size}.{way}") for way in WAYS_WITHOUT_MISSES),
                *(values.micro(f"opt.rxe.{size}.{it}") for it in theirs),
            ],
        )
        for size in SIZES
        if values.get(f"opt.rxe.{size}.{PINNED}") is not None
    ]
    titles = [f"soft-RoCE, {title}{it}" for title in RXE.values() for it in ("", ", first")]
    head = ["bytes", *WAYS_WITHOUT_MISSES.values(), *titles]
    return table("Reads, and those by soft-RoCE, which has no exception: median us", head, rows)


def misses(values: Values) -> str | None:
    """The time until the page is there: by a hint after an exception, or in one transfer."""
    rows = []
    for mode, title in MODES.items():
        for kind, what in MISSES.items():
            start = f"opt.{kind}.{mode}"
            cells = [values.micro(start), values.micro(f"{start}.p99")]
            counts = [values.get(f"{start}.{it}") for it in MISS_COUNTS]
            theirs = paper.INLINE_RPC if kind == "miss.64" and cells[0] is not None else None
            rows.append(row(f"{title}, {what}", [*cells, *counts, theirs]))
    return table(
        "From a miss until the transfer has its pages, us, and counts by miss",
        ["", "median", "p99", *MISS_COUNTS, "paper's RPC, us"],
        measured(rows),
    )


def load(values: Values) -> str | None:
    """Reads of 8 KiB while the owner gives up pages and touches them again."""
    counts = (
        *("reads", "missed", "exceptions", "requests", "discards", "retractions"),
        *("invalidations", "k"),
    )
    rows = [
        row(title, [values.get(f"opt.load.{way}.{what}") for what in ("rate", *counts)])
        for way, title in WAYS.items()
    ]
    return table(
        "Reads of 8 KiB while the owner gives up pages: MB/s, and counts",
        ["", "rate", *counts],
        measured(rows),
    )


def registration(values: Values) -> str | None:
    """Registration of much memory, whose pages are there or not."""
    rows = []
    for kind, title in {"warm": "pages are there", "cold": "pages are not"}.items():
        for way, name in WAYS_WITHOUT_MISSES.items():
            start = f"opt.register.{kind}.{way}"
            cells = [values.micro(start), times(values, start)]
            ended = f"opt.deregister.{kind}.{way}"
            cells += [values.micro(ended), times(values, ended), values.get(f"{start}.pins")]
            rows.append(row(f"{name}, {title}", cells))
    mib = values.get("opt.register.mib") or 0
    return table(
        f"Registration of {mib:.0f} MiB, median us",
        ["", "register", "ratio", "deregister", "ratio", "pages pinned"],
        measured(rows),
    )


def reclaim(values: Values) -> str | None:
    """The time to have the kernel write memory to swap."""
    rows = [
        row(
            title,
            [
                values.micro(f"opt.reclaim.{state}"),
                times(values, f"opt.reclaim.{state}"),
                times(values, f"opt.reclaim.min.{state}"),
                values.get(f"opt.reclaim.{state}.pages"),
            ],
        )
        for state, title in STATES.items()
    ]
    head = ["", "time", "ratio", "of minima", "pages"]
    return table("Reclaim by MADV_PAGEOUT, median us", head, measured(rows))


def pins_over_time(values: Values, end: str = "") -> dict[str, list[tuple[float, float]]]:
    """Returns milliseconds and pinned pages by way."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name in values.names():
        matched = PINS.fullmatch(name.removesuffix(end))
        if matched and name.endswith(end) and (pages := values.get(name)) is not None:
            found.setdefault(matched[1], []).append((float(matched[2]), pages))
    return found


def most_pins(values: Values, way: str, end: str = "") -> Cell:
    """Returns how many more pages were pinned at a time than at first: others pin some, too."""
    points = pins_over_time(values, end).get(way)
    return max(pages for _, pages in points) - points[0][1] if points else None


def pins(values: Values) -> str | None:
    """The most pages that were pinned at a time under the load."""
    rows = [
        row(title, [most_pins(values, way), most_pins(values, way, ".machine")])
        for way, title in WAYS.items()
    ]
    return table(
        "Pages pinned under this load, more than before",
        ["", "VmPin", "of the machine"],
        measured(rows),
    )


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""
    for mode, title in MODES.items():
        ratios = [
            found
            for direction in DIRECTIONS
            for size in SIZES
            if (found := times(values, f"opt.hit.{direction}.{size}.{mode}")) is not None
        ]
        yield Aim(f"hit, {title}: times pinned", max(ratios, default=None), most=1.1)
        yield Aim(
            f"exception without a request, {title}: hits",
            times(values, f"opt.exception.{mode}"),
            most=2,
        )
        yield Aim(
            f"invalidations by retraction (k), {title}",
            values.get(f"opt.load.{mode}.k"),
            most=0,
        )
        for kind in ("warm", "cold"):
            part = times(values, f"opt.register.{kind}.{mode}")
            yield Aim(f"registration, {kind}, {title}: part of pinned", part, most=0.01)
        yield Aim(f"pages pinned, {title}", most_pins(values, mode), most=0)
    yield Aim(
        "reclaim of an idle area: times that without", times(values, "opt.reclaim.idle"), most=1.1
    )


def drawings(values: Values) -> list[Drawing]:
    """Returns the drawings of hits by size, and of what is pinned over time."""
    lines: list[Line] = []
    for direction in DIRECTIONS:
        for way, title in WAYS_WITHOUT_MISSES.items():
            of = ((at, values.micro(f"opt.hit.{direction}.{it}.{way}")) for it, at in SIZES.items())
            points = [(float(at), time) for at, time in of if time is not None]
            lines.append((f"{direction}, {title}", points))
    over_time = pins_over_time(values)
    pinned: list[Line] = [(title, over_time.get(way, [])) for way, title in WAYS.items()]
    return [
        Drawing("optimistic-hits.svg", "Pages that are there", "bytes", "us", lines),
        Drawing(
            "optimistic-pins.svg",
            "Pages pinned by the owner while it gives up pages",
            "ms",
            "pages",
            pinned,
            logarithmic=False,
        ),
        *optimistic_misses.drawings(values),
    ]
