# SPDX-License-Identifier: GPL-2.0
"""Floors of the driver and of the library: a folder uses only folders below it.

python3 -m nodes.floors, which scripts/lint runs. The root file of a crate lists its floors, from
the top to the bottom, in a table of its comment; the page about the design has that of the driver,
too.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PAGE = Path("Documentation/uldma/design.rst")
SECTION = "Folders of the driver"

ROW = re.compile(r"^//! \| (\S.*?) \|", re.MULTILINE)
NAMES = re.compile(r"`(\w+)`")
FOLDER = re.compile(r"^``(\w+)/``", re.MULTILINE)
# The line below a heading, and no border of a table.
HEADING = re.compile(r"^\S.*\n=+$", re.MULTILINE)
COMMENT = re.compile(r"//[^\n]*")
USE = re.compile(r"\buse\s+crate::\{(.*?)\};", re.DOTALL)
PATH = re.compile(r"\bcrate::(\w+)")
NAME = re.compile(r"\s*(\w+)")


@dataclass(frozen=True)
class Crate:
    """A crate: its folder, and the file that declares its floors and lists them under a heading."""

    folder: Path
    root: str
    heading: str
    # What a macro makes in the root.
    others: frozenset[str] = frozenset()


CRATES = (
    Crate(
        Path("drivers/uldma"),
        "uldma_main.rs",
        "//! The module is built in floors.",
        frozenset({"module_parameters", "LocalModule", "THIS_MODULE"}),
    ),
    Crate(Path("tools/uldma/lib/src"), "lib.rs", "//! # Floors"),
)


def listed_in(crate: Crate) -> list[str]:
    """The floors that the root lists, from the top to the bottom."""
    _, _, table = (crate.folder / crate.root).read_text().partition(crate.heading)
    return [name for row in ROW.findall(table) for name in NAMES.findall(row)]


def used(text: str) -> Iterator[str]:
    """The names that the text of a file has after crate::."""
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


def problems(crate: Crate) -> Iterator[str]:
    """Every import that goes up or through the root, and every file without a floor."""
    floors = listed_in(crate)
    is_there = set()
    for path in sorted(crate.folder.rglob("*.rs")):
        name = str(path.relative_to(crate.folder))
        floor = name.split("/", maxsplit=1)[0].removesuffix(".rs")
        if name == crate.root:
            continue
        is_there.add(floor)
        if floor not in floors:
            yield f"{path}: {floor} is no floor: list it in {crate.root}"
            continue
        above = floors[: floors.index(floor)]
        for other in sorted(set(used(path.read_text())) - crate.others):
            if other in above:
                yield f"{path}: uses crate::{other}, which is above {floor}"
            elif other not in floors:
                yield f"{path}: uses crate::{other}, which is no floor: name it where it is"
    for floor in floors:
        if floor not in is_there:
            yield f"{crate.folder / crate.root}: lists {floor}, which is not there"


def folders(crate: Crate, page: Path, section: str) -> Iterator[str]:
    """Every difference between the folders of a crate and those that a section of a page lists."""
    floors = listed_in(crate)
    there = [floor for floor in floors if (crate.folder / floor).is_dir()]
    _, _, text = page.read_text().partition(f"{section}\n===")
    told = FOLDER.findall(HEADING.split(text, maxsplit=1)[0])
    if told != there:
        yield f"{page}: the folders are {', '.join(there)}, and not {', '.join(told)}"


def main() -> int:
    """Print the problems; fail if there are any."""
    found = [problem for crate in CRATES for problem in problems(crate)]
    found += folders(CRATES[0], PAGE, SECTION)
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
