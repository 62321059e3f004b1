# SPDX-License-Identifier: GPL-2.0
"""Lines and cost models through measured points."""

from collections.abc import Sequence
from dataclasses import dataclass

type Point = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A fixed cost and a cost per page."""

    fixed: float
    page: float


def line(points: Sequence[Point]) -> Line | None:
    """Fits a line to (pages, cost); none for fewer than two sizes, or if anything costs nothing.

    The errors are relative: sizes span three powers of ten, and with absolute errors the largest
    alone would decide.
    """
    if len({x for x, _ in points}) < 2 or not all(y for _, y in points):
        return None
    w = wx = wy = wxx = wxy = 0.0
    for x, y in points:
        weight = 1 / (y * y)
        w += weight
        wx += weight * x
        wy += weight * y
        wxx += weight * x * x
        wxy += weight * x * y
    determinant = w * wxx - wx * wx
    return Line((wxx * wy - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant)


def slope(points: Sequence[Point]) -> float | None:
    """Returns the growth of y by x, by least squares; none for fewer than two values of x."""
    if not points:
        return None
    x, y = (sum(column) / len(points) for column in zip(*points, strict=True))
    xy = sum((at - x) * (value - y) for at, value in points)
    xx = sum((at - x) ** 2 for at, _ in points)
    return xy / xx if xx else None


@dataclass(frozen=True)
class Accesses:
    """Stores, loads and nanoseconds of one initiation."""

    stores: float
    loads: float
    time: float


@dataclass(frozen=True)
class Model:
    """The cost of an initiation: a fixed part, and one for each store and each load."""

    fixed: float
    store: float
    load: float

    def cost(self, stores: float, loads: float) -> float:
        """Returns the cost of an initiation with so many stores and loads."""
        return self.fixed + stores * self.store + loads * self.load


def model(points: Sequence[Accesses]) -> Model | None:
    """Fits a cost model by least squares of relative errors, as methods differ by more than a
    power of ten; none if the points do not determine all three parts."""
    # Normal equations: three rows of four.
    rows = [[0.0] * 4 for _ in range(3)]
    for point in (point for point in points if point.time):
        terms = (1.0, point.stores, point.loads, point.time)
        for above, left in zip(rows, terms, strict=False):
            for column, right in enumerate(terms):
                above[column] += left * right / point.time**2
    solved = solve(rows)
    return Model(*solved) if solved else None


def solve(rows: list[list[float]]) -> list[float] | None:
    """Solves linear equations by Gauss and Jordan, with the largest element of each column
    first; none if they are singular."""
    # Relative to the given elements, as these have a unit.
    tiny = 1e-9 * max(abs(cell) for row in rows for cell in row)
    for column in range(len(rows)):
        largest = max(range(column, len(rows)), key=lambda at: abs(rows[at][column]))
        rows[column], rows[largest] = rows[largest], rows[column]
        pivot = rows[column]
        if abs(pivot[column]) <= tiny:
            return None
        for number, row in enumerate(rows):
            if number != column:
                factor = row[column] / pivot[column]
                rows[number] = [
                    cell - factor * above for cell, above in zip(row, pivot, strict=True)
                ]
    return [row[-1] / row[at] for at, row in enumerate(rows)]
