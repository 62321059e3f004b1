# SPDX-License-Identifier: GPL-2.0
"""Memory that is not pinned: how often a page is missed, and what a disk costs then.

Names are opt.entries.LIMIT.PATTERN, opt.tlb.PATTERN.ENTRIES, opt.stale.PATTERN.SIZE,
opt.disk.COURSE and opt.u-net.PATTERN.READS.
"""

import re

from .drawing import Drawing, Line
from .tables import Cell, row, table
from .values import Values

PATTERNS = ("uniform", "zipf", "sequential")
# The process has a quarter of the pages that the device may know.
PART = 4
COURSES = {
    "hit": "the page is there",
    "page-in": "a transfer that waits for the disk",
    "exception": "one that ends",
    "message": "one that ends, a message, the disk, one more",
    "behind.page-in": "of a page that is there, behind one that waits",
    "behind.exception": "of a page that is there, behind one that ends",
}


def by_number(values: Values, pattern: re.Pattern[str]) -> dict[str, dict[int, float]]:
    """Returns the figures whose names match, by a word of the name and by a number in it."""
    found: dict[str, dict[int, float]] = {}
    for name in values.names():
        matched = pattern.fullmatch(name)
        if matched and (value := values.get(name)) is not None:
            found.setdefault(matched["word"], {})[int(matched["number"])] = value
    return found


def by_entries(values: Values) -> dict[str, dict[int, float]]:
    """Returns the part of the reads that miss, by what has the translations, and by its entries."""
    cache = re.compile(r"opt\.tlb\.(?P<word>[a-z-]+)\.(?P<number>\d+)")
    limit = re.compile(r"opt\.entries\.(?P<number>\d+)\.(?P<word>[a-z-]+)")
    found = {f"LRU cache, {word}": rates for word, rates in by_number(values, cache).items()}
    for word, rates in by_number(values, limit).items():
        found[f"driver, {word}"] = {number // PART: rate for number, rate in rates.items()}
    return found


def numbers_table(title: str, corner: str, found: dict[str, dict[int, float]]) -> str | None:
    """Returns a table with a column for each number."""
    numbers = sorted({number for rates in found.values() for number in rates})
    rows = [row(word, [rates.get(it) for it in numbers]) for word, rates in found.items()]
    return table(title, [corner, *map(str, numbers)], rows)


def miss_rate(values: Values) -> str | None:
    """Reads of pages that a cache of the device, or the driver with a limit, has not."""
    title = "Part of reads of one of 4096 pages that miss, by entries"
    return numbers_table(title, "entries", by_entries(values))


def stale(values: Values) -> dict[str, dict[int, float]]:
    """Returns the parts of reads that are exceptions, and of those whose pages had gone."""
    exceptions = re.compile(r"opt\.stale\.(?P<word>[a-z-]+)\.(?P<number>\d+)")
    absent = re.compile(r"opt\.stale\.(?P<word>[a-z-]+)\.(?P<number>\d+)\.absent")
    return {
        **{f"{word}, exceptions": it for word, it in by_number(values, exceptions).items()},
        **{f"{word}, not in memory": it for word, it in by_number(values, absent).items()},
    }


def stale_rate(values: Values) -> str | None:
    """Exceptions by reads of 8 KiB of a file that only the peer reads."""
    title = "Part of reads that are stale, by hundredths of the owner's memory"
    return numbers_table(title, "hundredths", stale(values))


def disk(values: Values) -> str | None:
    """Reads of a page that is on a disk."""
    rows = []
    for course, title in COURSES.items():
        figure = values.figure(f"opt.disk.{course}")
        if figure:
            cells: list[Cell] = [values.micro(figure.name), values.micro(f"{figure.name}.p99")]
            rows.append(row(title, [*cells, figure.ratio]))
    reads = values.get("opt.disk.reads") or 0
    title = f"64 bytes of a page that is on a disk, us, {reads:.0f} reads each"
    return table(title, ["transfer", "median", "p99", "by hit"], rows)


def pins_by_reads(values: Values) -> dict[str, dict[int, float]]:
    """Returns the pages that are pinned if each is that was missed, by reads."""
    return by_number(values, re.compile(r"opt\.u-net\.(?P<word>[a-z-]+)\.(?P<number>\d+)"))


def u_net(values: Values) -> str | None:
    """What is pinned if each page is that was missed."""
    title = "Pages pinned if each of 512 is at its first miss (U-Net/MM), by reads of one"
    return numbers_table(title, "reads", pins_by_reads(values))


def tables(values: Values) -> list[str | None]:
    """Returns all tables."""
    return [miss_rate(values), stale_rate(values), disk(values), u_net(values)]


def lines(found: dict[str, dict[int, float]]) -> list[Line]:
    """Returns a line for each word."""
    return [
        (word, [(float(number), value) for number, value in sorted(rates.items())])
        for word, rates in found.items()
    ]


def drawings(values: Values) -> list[Drawing]:
    """Returns the drawings of miss rates by entries, of stale rates, and of what is pinned."""
    return [
        Drawing(
            f"optimistic-{name}.svg",
            title,
            what,
            unit,
            lines(found(values)),
            logarithmic=name == "misses",
        )
        for name, title, what, unit, found in (
            ("misses", "Reads that miss, by what is known", "entries", "part", by_entries),
            ("stale", "Reads of a file that are stale", "hundredths of memory", "part", stale),
            ("u-net", "Pages pinned at their first miss", "reads", "pages", pins_by_reads),
        )
    ]
