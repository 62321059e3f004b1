# SPDX-License-Identifier: GPL-2.0
"""Counts lines of code for the table "Sizes" of Documentation/uldma/link.rst; runs at the top.

A line of code is neither blank nor a comment, nor part of an item at the top level that is compiled
for unit tests only. rustfmt as the kernel uses it gives each import a line of its own, so imports
are counted apart.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

DRIVER = Path("drivers/uldma")
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
SEGMENTS = ("link/segment.rs", "link/segment/*.rs", "link/window_alloc.rs")
NETWORK = ("link/network.rs", "link/message/network.rs")
Row = tuple[tuple[str, ...], tuple[str, ...]]
# Rows of the core, each with its files, and with those of them that are counted elsewhere.
CORE: dict[str, Row] = {
    "link": (("link.rs", "link/**/*.rs"), WORKER + SEGMENTS + NETWORK),
    "connection": (("connection.rs", "connection/*.rs"), ()),
    "the progress worker": (WORKER, ("link/progress_worker/tests.rs",)),
    "queue.rs": (("dma/queue.rs", "dma/queue/*.rs"), ()),
}
BESIDE: dict[str, Row] = {
    "segments": (SEGMENTS, ()),
    "adapter": (("hw/adapter.rs", "hw/adapter/*.rs", "driver/adapter.rs"), ()),
    "ivshmem": (("hw/ivshmem.rs", "driver/ivshmem.rs"), ()),
    "loopback": (("hw/loopback.rs", "driver/loopback.rs"), ()),
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


def size(rows: dict[str, Row]) -> tuple[int, int]:
    """Prints both counts of each row, and returns their sums."""
    lines = others = 0
    for name, (patterns, without) in rows.items():
        counts = [count(path.read_text("utf-8")) for path in files(patterns) - files(without)]
        row = (sum(all_of for all_of, _ in counts), sum(rest for _, rest in counts))
        print(f"{name:20} {row[0]:6} {row[1]:6}")
        lines, others = lines + row[0], others + row[1]
    return lines, others


def main() -> None:
    """Prints the table."""
    lines, others = size(CORE)
    print(f"{'core of the link':20} {lines:6} {others:6}")
    size(BESIDE)


if __name__ == "__main__":
    main()
