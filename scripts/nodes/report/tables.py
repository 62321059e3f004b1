# SPDX-License-Identifier: GPL-2.0
"""Tables, and aims that are met or missed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

type Cell = float | None


def number(value: Cell) -> str:
    """Formats a figure with about three digits; a missing one is a dash."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def plain(value: float) -> str:
    """Formats a value with all its digits and without an exponent."""
    return f"{value:.10f}".rstrip("0").rstrip(".")


def ratio(value: Cell, base: Cell) -> Cell:
    """Returns value by base; none if either is missing or the base is zero."""
    return value / base if value is not None and base else None


def row(name: str, cells: Iterable[Cell]) -> list[str]:
    """Returns a row of numbers after its name."""
    return [name, *map(number, cells)]


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Returns a table below its title; none if it has no rows."""
    if not rows:
        return None
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        first, *rest = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]
        return f" {' | '.join(padded)} "

    rule = "+".join("-" * (width + 2) for width in widths)
    return "\n".join([title, line(head), rule, *map(line, rows), ""])


@dataclass(frozen=True)
class Aim:
    """A figure, None if it was not measured, that should be neither less nor more than a limit."""

    what: str
    value: Cell
    least: Cell = None
    most: Cell = None

    def row(self) -> list[str] | None:
        """Returns the row of the table; none if the figure was not measured."""
        if self.value is None:
            return None
        met = (self.least is None or self.value >= self.least) and (
            self.most is None or self.value <= self.most
        )
        return [self.what, number(self.value), self._limit(), "met" if met else "missed"]

    def _limit(self) -> str:
        least, most = (None if it is None else plain(it) for it in (self.least, self.most))
        if least is None:
            return f"<= {most}"
        if most is None:
            return f">= {least}"
        return f"= {least}" if least == most else f"{least} to {most}"


def aims_table(aims: Iterable[Aim]) -> str | None:
    """Returns the table of the aims whose figures were measured."""
    rows = [found for aim in aims if (found := aim.row())]
    return table("Aims", ["what", "worst", "aim", ""], rows)
