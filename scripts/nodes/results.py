# SPDX-License-Identifier: GPL-2.0
"""Measured figures: a table, and build/results/*.json."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .machine import machine
from .paths import RESULTS


@dataclass(frozen=True)
class Figure:
    """A measured value, the machine's floor, and the rival that a user would choose instead."""

    name: str
    value: float
    unit: str
    floor: float | None = None
    rival: float | None = None

    @property
    def ratio(self) -> float | None:
        """Returns value by floor, or by rival if it has no floor."""
        base = self.floor if self.floor is not None else self.rival
        return self.value / base if base else None

    @staticmethod
    def parse(entry: dict[str, Any]) -> "Figure":
        """Parses a figure; the ratio is derived anew."""
        return Figure(
            entry["name"], entry["value"], entry["unit"], entry.get("floor"), entry.get("rival")
        )


def write(name: str, figures: Sequence[Figure]) -> None:
    """Writes NAME.json, which says of each figure on what machine it was measured."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    where = asdict(machine())
    entries = [asdict(figure) | {"ratio": figure.ratio} | where for figure in figures]
    new = RESULTS / f"{name}.new"
    new.write_text(json.dumps(entries, indent=1) + "\n")
    new.rename(RESULTS / f"{name}.json")


def read(path: Path) -> list[Figure]:
    """Reads a file that write() wrote."""
    return [Figure.parse(entry) for entry in json.loads(path.read_text())]


def number(value: float | None) -> str:
    """Formats a figure with its significant digits."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Formats columns, the first to the left, the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]

    def line(row: Sequence[str]) -> str:
        first, *rest = [
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        return "  ".join([first, *rest]).rstrip()

    return "\n".join([line(head), "  ".join("-" * width for width in widths), *map(line, rows)])


def figures_table(figures: Sequence[Figure]) -> str:
    """Formats all figures, one per line."""
    rows = [
        [f.name, number(f.value), f.unit, number(f.floor), number(f.rival), number(f.ratio)]
        for f in figures
    ]
    return table(["figure", "value", "unit", "floor", "rival", "ratio"], rows)


def table_by_run(runs: Mapping[str, Sequence[Figure]]) -> str:
    """Formats the figures that have a floor or a rival, with a column for each run."""
    names: dict[str, Figure] = {}
    values: dict[tuple[str, str], str] = {}
    for run, figures in runs.items():
        for figure in figures:
            if figure.ratio is not None:
                names.setdefault(figure.name, figure)
                values[figure.name, run] = f"{number(figure.value)} ({number(figure.ratio)})"
    rows = [
        [name, figure.unit, *(values.get((name, run), "-") for run in runs)]
        for name, figure in names.items()
    ]
    return table(["figure (its ratio)", "unit", *runs], rows)
