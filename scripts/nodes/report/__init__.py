# SPDX-License-Identifier: GPL-2.0
"""Turns measured figures into tables and drawings, beside the papers' values and the aims.

The probes (uldma-bench) print bare figures. Each part of the bench has a module here:
``relate`` puts floors and rivals beside its figures, ``tables`` prints them, and ``drawings``
draws them.
"""

from collections.abc import Sequence
from pathlib import Path

from . import initiation, link, lmm, network, optimistic, semantics
from .values import Values

PARTS = {
    "lmm": lmm,
    "initiation": initiation,
    "link": link,
    "semantics": semantics,
    "network": network,
    "optimistic": optimistic,
}


def render(part: str, values: Values) -> str:
    """Returns the tables of a part, without those whose figures were not measured."""
    tables: Sequence[str | None] = PARTS[part].tables(values)
    return "\n".join(table for table in tables if table is not None)


def show(part: str, directory: Path) -> str:
    """Returns the tables of PART.json in a directory, and draws PART-*.svg beside it."""
    values = Values.read(directory / f"{part}.json")
    draw(part, values, directory)
    return render(part, values)


def draw(part: str, values: Values, directory: Path) -> None:
    """Draws a part as PART-*.svg in a directory, without drawings that have no points."""
    for drawing in PARTS[part].drawings(values):
        drawing.write(directory)
