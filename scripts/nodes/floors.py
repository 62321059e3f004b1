# SPDX-License-Identifier: GPL-2.0
"""Floors of the driver: a folder uses only folders below it.

python3 -m nodes.floors DIRECTORY, which scripts/lint runs.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

# From the top to the bottom; a folder has a file of its name beside it.
FLOORS = (
    "driver",
    "user",
    "device",
    "net",
    "connection",
    "dma",
    "link",
    "mem",
    "user_abi",
    "hw",
    "params",
    "uapi",
    "kernel_ext",
)
# The root of the crate: it declares the folders, and the module! macro has its items there.
ROOT = "uldma_main"
# Imports that go up all the same: (file, folder that it uses), with the reason.
ALLOWED: Mapping[tuple[str, str], str] = {}

COMMENT = re.compile(r"//[^\n]*")
USE = re.compile(r"\buse\s+crate::\{(.*?)\};", re.DOTALL)
PATH = re.compile(r"\bcrate::(\w+)")
NAME = re.compile(r"\s*(\w+)")


def used(text: str) -> Iterator[str]:
    """The folders that the text of a file names after crate::."""
    code = COMMENT.sub("", text)
    yield from PATH.findall(code)
    for group in USE.findall(code):
        depth = 0
        start = 0
        for at, char in enumerate(f"{group},"):
            depth += (char == "{") - (char == "}")
            if char == "," and depth == 0:
                if name := NAME.match(group[start:at]):
                    yield name[1]
                start = at + 1


def problems(driver: Path) -> Iterator[str]:
    """Every import that goes up, every file without a floor, every exception that is not needed."""
    needed = set()
    for path in sorted(driver.rglob("*.rs")):
        name = str(path.relative_to(driver))
        floor = name.split("/", maxsplit=1)[0].removesuffix(".rs")
        if floor == ROOT:
            continue
        if floor not in FLOORS:
            yield f"{name}: {floor} is no floor: add it to FLOORS"
            continue
        above = FLOORS[: FLOORS.index(floor)]
        for other in sorted(set(used(path.read_text())).intersection(above)):
            needed.add((name, other))
            if (name, other) not in ALLOWED:
                yield f"{name}: uses crate::{other}, which is above {floor}"
    for name, other in ALLOWED:
        if (name, other) not in needed:
            yield f"{name}: does not use crate::{other} any more: remove the exception"


def main() -> int:
    """Print the problems; fail if there are any."""
    found = list(problems(Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
