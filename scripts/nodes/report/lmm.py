# SPDX-License-Identifier: GPL-2.0
"""Registration of memory: how its figures are compared, as tables and as drawings."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from ..results import Figure
from . import fits, paper
from .drawing import Drawing, Line
from .tables import Aim, Cell, aims_table, number, ratio, row, table
from .values import Values

# Sizes of the paper's tables, and their pages.
_SIZES = (
    *("4k", "8k", "16k", "32k", "64k", "128k", "256k"),
    *("512k", "1m", "2m", "4m", "8m", "16m"),
)
SIZES = {size: 1 << power for power, size in enumerate(_SIZES)}
# Each series with its rival and its floor, which come before it.
SERIES: dict[str, tuple[str | None, str | None]] = {
    "io_uring": (None, None),
    "mlock": (None, None),
    "ibv_reg_mr": (None, None),
    "ibv_reg_mr.again": (None, "ibv_reg_mr"),
    "first": ("io_uring", None),
    "again": ("io_uring", "first"),
    "cached": ("io_uring", "first"),
    "mlock-mode": (None, "first"),
    "io_uring.shared": (None, None),
    "mlock.shared": (None, None),
    "ibv_reg_mr.shared": (None, None),
    "first.shared": ("io_uring.shared", None),
    "alone.shared": ("io_uring.shared", None),
    "second.shared": ("io_uring.shared", "alone.shared"),
    "again.shared": ("io_uring.shared", "first.shared"),
    "mlock-mode.shared": (None, "first.shared"),
    "shm-ctl.shared": (None, "first.shared"),
    "io_uring.huge": (None, None),
    "mlock.huge": (None, None),
    "ibv_reg_mr.huge": (None, None),
    "first.huge": ("io_uring.huge", None),
    "again.huge": ("io_uring.huge", "first.huge"),
}
PHASES = ("register", "deregister")
KINDS = ("lmm", "lmm.min", "lmm.cold")
# Pages locked, or areas.
COUNTS = tuple(10**power for power in range(6))
# Sizes up to which a first registration may take a bit longer.
SMALL = 4


def fitted(values: Values, phase: str, series: str) -> fits.Line | None:
    """Returns the line through the times of a series."""
    times = ((pages, values.get(f"lmm.{phase}.{series}.{it}")) for it, pages in SIZES.items())
    return fits.line([(float(pages), time) for pages, time in times if time is not None])


def relate(figures: Sequence[Figure]) -> list[Figure]:
    """Puts rivals and floors beside the figures of all sizes; appends lmm.fit.PHASE.SERIES.fixed
    and .page."""
    values = Values(figures)
    beside: dict[str, tuple[float | None, float | None]] = {}
    lines: dict[str, Figure] = {}
    for phase in PHASES:
        for series, bases in SERIES.items():
            for start in (f"{kind}.{phase}" for kind in KINDS):
                for size in SIZES:
                    rival, floor = (values.get(f"{start}.{base}.{size}") for base in bases)
                    beside[f"{start}.{series}.{size}"] = (rival, floor)
            line = fitted(values, phase, series)
            for part in ("fixed", "page") if line else ():
                start = f"lmm.fit.{phase}"
                of = (lines.get(f"{start}.{base}.{part}") for base in bases)
                rival, floor = (figure.value if figure else None for figure in of)
                name = f"{start}.{series}.{part}"
                lines[name] = Figure(name, getattr(line, part), "ns", floor, rival)
    found = []
    for figure in figures:
        if figure.name in beside:
            rival, floor = beside[figure.name]
            found.append(replace(figure, floor=floor, rival=rival))
        else:
            found.append(figure)
    return [*found, *lines.values()]


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    return [
        against_io_uring(values, "", "private memory"),
        against_io_uring(values, ".shared", "shared memory"),
        against_io_uring(values, ".huge", "private memory of huge pages"),
        against_verbs(values),
        papers_tables(values),
        lines(values),
        mlock_mode(values, ".shared", "Figure 7: shared memory"),
        mlock_mode(values, "", "Figure 8: private memory"),
        again(values),
        many(values),
        load(values),
        counts(values),
        aims_table(aims(values)),
    ]


def by_size(
    values: Values, series: str, cells: Callable[[int, str], Iterable[Cell]]
) -> list[list[str]]:
    """Returns a row for each size that has a figure lmm.register.SERIES.SIZE."""
    return [
        row(size, cells(index, size))
        for index, size in enumerate(SIZES)
        if values.get(f"lmm.register.{series}.{size}") is not None
    ]


def against_io_uring(values: Values, kind: str, what: str) -> str | None:
    """First registrations beside io_uring's."""

    def cells(_: int, size: str) -> list[Cell]:
        def of(prefix: str, series: str) -> Cell:
            return values.micro(f"lmm.{prefix}register.{series}{kind}.{size}")

        def share(prefix: str) -> Cell:
            return ratio(of(prefix, "first"), of(prefix, "io_uring"))

        return [
            *(of("", "first"), of("", "io_uring"), share(""), share("min."), share("cold.")),
            *(of("", "mlock"), of("de", "first"), of("de", "io_uring"), of("de", "mlock")),
        ]

    return table(
        f"First registration of {what}, median us",
        [
            *("size", "register", "io_uring", "ratio", "of minima", "cold", "mlock"),
            *("deregister", "io_uring", "munlock"),
        ],
        by_size(values, f"first{kind}", cells),
    )


def against_verbs(values: Values) -> str | None:
    """ibv_reg_mr() beside uldma, by kind of memory, and of memory that is registered already."""

    def cells(_: int, size: str) -> Iterator[Cell]:
        def of(phase: str, series: str) -> Cell:
            return values.micro(f"lmm.{phase}.{series}.{size}")

        for own, rival in (
            ("first", "ibv_reg_mr"),
            ("first.shared", "ibv_reg_mr.shared"),
            ("first.huge", "ibv_reg_mr.huge"),
            ("again", "ibv_reg_mr.again"),
        ):
            time = of("register", rival)
            yield from (time, ratio(of("register", own), time))
        yield from (of("deregister", "ibv_reg_mr"), of("deregister", "first"))

    rows = by_size(values, "ibv_reg_mr", cells)
    if not rows and values.starting_with("lmm.register.first."):
        return "ibv_reg_mr(): not measured; the messages above say why\n"
    return table(
        "ibv_reg_mr() on soft-RoCE, median us, and uldma's time by its",
        [
            *("size", "private", "ratio", "shared", "ratio", "huge", "ratio", "again", "ratio"),
            *("deregister", "uldma's"),
        ],
        rows,
    )


def papers_tables(values: Values) -> str | None:
    """The paper's tables 1 and 2."""

    def cells(index: int, size: str) -> list[Cell]:
        def of(phase: str, series: str) -> Cell:
            return values.micro(f"lmm.{phase}.{series}.shared.{size}")

        first, second = of("register", "alone"), of("register", "second")
        theirs = (paper.FIRST_REGISTER[index], paper.SECOND_REGISTER[index])
        return [
            *(second, of("deregister", "second")),
            *(theirs[1], paper.SECOND_DEREGISTER[index]),
            *(first, of("deregister", "alone")),
            *(theirs[0], paper.FIRST_DEREGISTER[index]),
            None if first is None or second is None else first - second,
            theirs[0] - theirs[1],
        ]

    return table(
        "Tables 1 and 2: shared memory that another process has registered, and that none has, "
        "median us, beside the paper's",
        [
            *("size", "T1 register", "deregister", "paper", "paper"),
            *("T2 register", "deregister", "paper", "paper", "T2 - T1", "paper"),
        ],
        by_size(values, "second.shared", cells),
    )


def lines(values: Values) -> str | None:
    """The lines through all series, and through the paper's tables."""
    rows = []
    for series in (
        *("first", "first.shared", "second.shared", "alone.shared", "again", "again.shared"),
        *("cached", "first.huge", "io_uring", "io_uring.shared", "io_uring.huge"),
        *("ibv_reg_mr", "ibv_reg_mr.shared", "ibv_reg_mr.huge", "ibv_reg_mr.again", "mlock"),
        *("mlock-mode", "mlock-mode.shared", "shm-ctl.shared"),
    ):
        found = [fitted(values, phase, series) for phase in PHASES]
        if found[0]:
            rows.append(row(series, of_lines(found, 1e3)))
    if not rows:
        return None
    for name, columns in (
        ("paper: Table 1", (paper.SECOND_REGISTER, paper.SECOND_DEREGISTER)),
        ("paper: Table 2", (paper.FIRST_REGISTER, paper.FIRST_DEREGISTER)),
    ):
        theirs = [fits.line(paper_points(column)) for column in columns]
        rows.append(row(name, of_lines(theirs, 1)))
    return table(
        "Fixed cost, cost per page, and their ratio, us",
        ["series", "register", "per page", "ratio", "deregister", "per page", "ratio"],
        rows,
    )


def of_lines(found: Sequence[fits.Line | None], unit: float) -> Iterator[Cell]:
    """Yields what the table has of each line."""
    for line in found:
        if line:
            yield from (line.fixed / unit, line.page / unit, ratio(line.fixed, line.page))
        else:
            yield from (None, None, None)


def paper_points(column: Sequence[float]) -> list[fits.Point]:
    """Returns pages and cost of each size of the paper."""
    return [(float(pages), cost) for pages, cost in zip(SIZES.values(), column, strict=True)]


def mlock_mode(values: Values, kind: str, title: str) -> str | None:
    """The paper's figures 7 and 8."""

    def cells(_: int, size: str) -> list[Cell]:
        def of(series: str) -> Cell:
            return values.micro(f"lmm.register.{series}{kind}.{size}")

        without, mode = of("first"), of("mlock-mode")
        return [
            *(without, mode, ratio(mode, without)),
            None if mode is None or without is None else mode - without,
            *(of("shm-ctl"), of("mlock"), of("io_uring")),
        ]

    return table(
        f"{title} with and without mlock() by the library, median us",
        [
            *("size", "without", "with", "ratio", "difference"),
            *("shmctl()", "mlock alone", "io_uring"),
        ],
        by_size(values, f"mlock-mode{kind}", cells),
    )


def again(values: Values) -> str | None:
    """Memory that is registered already, and pins that the cache has."""

    def cells(_: int, size: str) -> list[Cell]:
        names = ("first", "again", "cached")
        first, second, cached = (values.micro(f"lmm.register.{it}.{size}") for it in names)
        ends = (values.micro(f"lmm.deregister.{it}.{size}") for it in names)
        return [first, second, ratio(first, second), cached, ratio(first, cached), *ends]

    return table(
        "Registered already, and pins found in the cache, private memory, median us",
        [
            *("size", "first", "again", "times less", "cached", "times less"),
            *("deregister", "again", "cached"),
        ],
        by_size(values, "again", cells),
    )


def many(values: Values) -> str | None:
    """One more registration with many pages or areas."""
    rows = []
    for count in COUNTS:
        found = [values.figure(f"lmm.{name}.{count}") for name in ("pages", "lmas", "lmas.new")]
        cells: list[Cell] = []
        for figure in found:
            both = (figure.value, figure.rival) if figure else (None, None)
            cells += [None if cell is None else cell / 1e3 for cell in both]
        if any(found):
            rows.append(row(str(count), cells))
    return table(
        "One more registration of one page, with so many pages locked, or so many areas, median us",
        ["pages, areas", "pages", "io_uring", "areas", "io_uring", "not locked", "io_uring"],
        rows,
    )


def load(values: Values) -> str | None:
    """Merged and separate areas under the same load."""
    rows = []
    for kind in ("merge", "apart"):
        start = f"lmm.load.{kind}"
        if values.get(f"{start}.register") is not None:
            cells = [values.get(f"{start}.{it}") for it in ("areas.most", "areas.left", "memory")]
            cells += [values.micro(f"{start}.{it}") for it in ("register", "deregister", "whole")]
            rows.append(row(kind, cells))
    return table(
        "Areas merged or left apart, under the same load",
        ["areas", "most", "left", "KiB", "register us", "deregister us", "whole again us"],
        rows,
    )


def counts(values: Values) -> str | None:
    """Everything that is counted."""
    names = ("syscalls", "pins", "cache", "mmio", "invalidations")
    figures = [figure for name in names for figure in values.starting_with(f"lmm.{name}.")]
    return table(
        "Counts, each of one registration",
        ["what", "count"],
        [[figure.name, number(figure.value)] for figure in figures],
    )


def aims(values: Values) -> Iterator[Aim]:
    """Yields the aims."""

    def first(kind: str, sizes: Sequence[str]) -> Cell:
        start = "lmm.register"
        ratios = (
            ratio(
                values.get(f"{start}.first{kind}.{size}"),
                values.get(f"{start}.io_uring{kind}.{size}"),
            )
            for size in sizes
        )
        return max((found for found in ratios if found is not None), default=None)

    def growth(name: str) -> Cell:
        most, few = (values.get(f"lmm.{name}.min.{count}") for count in (100_000, 10))
        return ratio(most, few)

    sizes = list(SIZES)
    small, large = sizes[:SMALL], sizes[SMALL:]
    for kind, what in (("", "private"), (".shared", "shared")):
        yield Aim(f"first, {what}, to 32k: times io_uring's", first(kind, small), most=1.5)
        yield Aim(f"first, {what}, from 64k: times io_uring's", first(kind, large), most=1.2)
    largest = (values.get(f"lmm.register.{series}.16m") for series in ("first", "again"))
    yield Aim("16m again: times cheaper than first", ratio(*largest), least=50)
    yield Aim("one more with 100,000 pages: times that with 10", growth("pages"), most=1.5)
    yield Aim("one more with 100,000 areas: times that with 10", growth("lmas"), most=3)
    accesses = values.get("lmm.mmio.register.first")
    yield Aim("accesses to the device to register", accesses, most=0)


# Each drawing by size: file, title, phase and series.
DRAWINGS = (
    (
        *("lmm-register.svg", "Registration of private memory", "register"),
        (
            *("first", "io_uring", "first.huge", "io_uring.huge", "ibv_reg_mr"),
            *("ibv_reg_mr.again", "mlock", "cached", "again"),
        ),
    ),
    (
        *("lmm-deregister.svg", "Deregistration of private memory", "deregister"),
        ("first", "io_uring", "ibv_reg_mr", "again", "cached", "mlock"),
    ),
    (
        "lmm-table1-2.svg",
        *("Tables 1 and 2: registration of shared memory", "register"),
        (
            *("alone.shared", "second.shared", "io_uring.shared"),
            *("ibv_reg_mr.shared", "again.shared"),
        ),
    ),
    (
        "lmm-figure7.svg",
        *("Figure 7: shared memory with and without mlock() by the library", "register"),
        (
            *("first.shared", "mlock-mode.shared", "shm-ctl.shared"),
            *("mlock.shared", "io_uring.shared"),
        ),
    ),
    (
        "lmm-figure8.svg",
        *("Figure 8: private memory with and without mlock() by the library", "register"),
        ("first", "mlock-mode", "mlock", "io_uring"),
    ),
)


def drawings(values: Values) -> list[Drawing]:
    """Returns all drawings."""
    found = []
    for file, title, phase, names in DRAWINGS:
        drawn = [series_line(values, phase, name) for name in names]
        if file == "lmm-figure8.svg":
            drawn.append(relation(drawn[0], drawn[1]))
        found.append(Drawing(file, title, "KiB", "us", drawn))
    title, x = "One more registration of one page", "pages locked, or locked memory areas"
    return [*found, Drawing("lmm-lmas.svg", title, x, "us", many_lines(values))]


def series_line(values: Values, phase: str, series: str) -> Line:
    """Returns microseconds over KiB of a series."""
    times = ((4.0 * pages, f"lmm.{phase}.{series}.{size}") for size, pages in SIZES.items())
    found = ((x, values.micro(name)) for x, name in times)
    return series, [(x, time) for x, time in found if time is not None]


def relation(without: Line, mode: Line) -> Line:
    """Returns the paper's bottommost line: the second series by the first."""
    pairs = zip(without[1], mode[1], strict=False)
    return "with by without (no unit)", [(x, time / base) for (x, base), (_, time) in pairs]


def many_lines(values: Values) -> list[Line]:
    """Returns microseconds over pages, and over areas."""
    labels = {
        "pages": "pages locked",
        "lmas": "areas, page is locked",
        "lmas.new": "areas, page is not locked",
    }
    found: list[Line] = []
    for name, label in labels.items():
        times = ((float(count), values.micro(f"lmm.{name}.{count}")) for count in COUNTS)
        found.append((label, [(x, time) for x, time in times if time is not None]))
    return found
