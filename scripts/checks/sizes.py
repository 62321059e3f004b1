# SPDX-License-Identifier: GPL-2.0
"""Compares the table "Sizes" of Documentation/uldma/link.rst with the code; runs at the top.

Prints each row that is wrong and fails, or corrects the table: sizes.py --update.

A line of code is neither blank nor a comment, nor part of an item at the top level that is compiled
for unit tests only. rustfmt as the kernel uses it gives each import a line of its own, so imports
are counted apart.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

DRIVER = Path("drivers/uldma")
PAGE = Path("Documentation/uldma/link.rst")
TEST = re.compile(r"#\[(?:kunit_tests\(|cfg\(test\))")
# The last line of an item at the top level.
END = re.compile(r"\}|[a-z].*;$")
IMPORT = re.compile(r"(?:pub(?:\([a-z ]+\))? )?use ")

WORKER = (
    "link/progress_worker.rs",
    "link/progress_worker/*.rs",
    "link/adaptive_poll.rs",
    "link/polling.rs",
    "link/doorbell_cost.rs",
    "link/turnaround.rs",
    "link/peer/doorbell.rs",
)
SEGMENTS = ("link/segment.rs", "link/segment/*.rs", "link/window_alloc.rs", "link/window_range.rs")
NETWORK = ("link/message/network.rs",)
Row = tuple[tuple[str, ...], tuple[str, ...]]
# Rows of the core by how they begin, each with its files, and with those of them that are counted
# elsewhere.
CORE: dict[str, Row] = {
    "``link``:": (("link.rs", "link/**/*.rs"), WORKER + SEGMENTS + NETWORK),
    "``connection``:": (("connection.rs", "connection/*.rs"), ()),
    "the progress worker,": (WORKER, ("link/progress_worker/tests.rs",)),
    "``queue.rs``:": (("dma/queue.rs", "dma/queue/*.rs"), ()),
}
SUM = "**core of the link**"
BESIDE: dict[str, Row] = {
    "window segments:": (SEGMENTS, ()),
    "adapter:": (("hw/adapter.rs", "hw/adapter/*.rs", "driver/adapter.rs"), ()),
    "ivshmem:": (("hw/ivshmem.rs", "driver/ivshmem.rs"), ()),
    "loopback:": (("hw/loopback.rs", "driver/loopback.rs"), ()),
}


def code(text: str) -> Iterator[str]:
    """Yields the lines of code, without their indentation."""
    in_test = False
    for line in text.splitlines():
        if in_test:
            in_test = not END.match(line)
        elif TEST.match(line):
            in_test = True
        elif line.strip() and not line.lstrip().startswith("//"):
            yield line.strip()


def count(text: str) -> tuple[int, int]:
    """Returns the number of lines of code, and of those that are no imports."""
    lines = others = 0
    in_import = False
    for line in code(text):
        in_import = in_import or IMPORT.match(line) is not None
        lines += 1
        others += not in_import
        in_import = in_import and not line.endswith(";")
    return lines, others


def files(patterns: Iterable[str]) -> set[Path]:
    """Returns the files of the driver that the patterns name.

    Raises FileNotFoundError for a pattern that names none: a file was moved.
    """
    found: set[Path] = set()
    for pattern in patterns:
        matches = set(DRIVER.glob(pattern))
        if not matches:
            raise FileNotFoundError(f"{DRIVER / pattern}: correct the list of files")
        found |= matches
    return found


def size(row: Row) -> tuple[int, int]:
    """Returns both counts of a row."""
    patterns, without = row
    counts = [count(path.read_text("utf-8")) for path in files(patterns) - files(without)]
    return sum(lines for lines, _ in counts), sum(others for _, others in counts)


def sizes() -> dict[str, tuple[int, int]]:
    """Returns what the table has to say, by the beginnings of its rows."""
    core = {name: size(row) for name, row in CORE.items()}
    both = (sum(lines for lines, _ in core.values()), sum(others for _, others in core.values()))
    return core | {SUM: both} | {name: size(row) for name, row in BESIDE.items()}


def corrected(text: str, name: str, counts: tuple[int, int]) -> str:
    """Returns the page with these counts in the row that begins so.

    Raises ValueError if there is no such row, or more than one.
    """
    row = re.compile(rf"^({re.escape(name)}.*?  )(\**\d+\** +)(\**\d+\**)(?= |$)", re.MULTILINE)

    def new(match: re.Match[str]) -> str:
        # The columns keep their places.
        cells = [
            re.sub(r"\d+", str(lines), cell.rstrip()).ljust(len(cell))
            for lines, cell in zip(counts, (match[2], match[3]), strict=True)
        ]
        return match[1] + "".join(cells)

    page, rows = row.subn(new, text)
    if rows != 1:
        raise ValueError(f"{PAGE}: {rows} rows of sizes for {name}")
    return page


def main() -> int:
    """Checks the table, or corrects it."""
    page = PAGE.read_text("utf-8")
    wrong = 0
    for name, counts in sizes().items():
        right = corrected(page, name, counts)
        if right != page:
            print(f"{PAGE}: {name}: {counts[0]} lines, {counts[1]} without imports")
            wrong += 1
        page = right
    if "--update" in sys.argv[1:]:
        PAGE.write_text(page, "utf-8")
        return 0
    if wrong:
        print("correct the table: python3 scripts/checks/sizes.py --update")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
