# SPDX-License-Identifier: GPL-2.0
"""Drawings of figures, as SVG."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from .fits import Point
from .tables import plain

type Line = tuple[str, Sequence[Point]]

WIDTH, HEIGHT = 900, 560
# Of the area inside the axes.
LEFT, RIGHT, TOP, BOTTOM = 76, 888, 44, 508
LEGEND = 18
# Distinct also beside each other; methods are many.
COLOURS = (
    *("#e6194b", "#3cb44b", "#ffe119", "#0082c8", "#f58231", "#911eb4", "#46f0f0", "#f032e6"),
    *("#d2f53c", "#fabebe", "#008080", "#e6beff", "#aa6e28", "#800000", "#aaffc3", "#808000"),
    *("#ffd7b4", "#000080", "#808080", "#000000"),
)


@dataclass(frozen=True)
class Axis:
    """A range of values on a part of the drawing, and the values that have a line and a label."""

    low: float
    high: float
    ticks: Sequence[float]
    place: Callable[[float], float]


def linear(values: Sequence[float], start: float, end: float) -> Axis:
    """Returns an axis from zero to above the highest value."""
    high = max(values) * 1.1 or 1.0
    step = 10 ** math.floor(math.log10(high))
    step = next(it for it in (step / 5, step / 2, step) if high / it <= 12)
    ticks = [step * at for at in range(math.floor(high / step) + 1)]
    return Axis(0, high, ticks, lambda value: start + (end - start) * value / high)


def logarithmic(low: float, high: float, start: float, end: float) -> Axis:
    """Returns an axis by powers of ten; one that spans few of them has lines between them, too."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 4 else (1,)
    ticks = [step * 10.0**power for power in decades for step in steps]
    scale = (end - start) / math.log10(high / low)
    within = [tick for tick in ticks if low <= tick <= high]
    return Axis(low, high, within, lambda value: start + scale * math.log10(value / low))


def element(name: str, text: str | None = None, **attributes: float | str) -> str:
    """Returns an element; attributes have "-" where their keywords have "_"."""
    found = "".join(
        f' {key.replace("_", "-")}="{value if isinstance(value, str) else plain(round(value, 2))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{found}/>" if text is None else f"<{name}{found}>{escape(text)}</{name}>"


def label(text: str, x: float, y: float, size: int = 11, anchor: str = "middle") -> str:
    """Returns a text at a place."""
    return element("text", text, x=x, y=y, font_size=size, text_anchor=anchor)


@dataclass(frozen=True)
class Drawing:
    """Lines with their names, and what the axes say."""

    file: str
    title: str
    x: str
    y: str
    lines: Sequence[Line]
    logarithmic: bool = True

    def write(self, directory: Path) -> None:
        """Writes the file in a directory; no file if there are no points."""
        if self._drawn():
            size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
            root = f'<svg {size} xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">'
            (directory / self.file).write_text("\n".join([root, *self._elements(), "</svg>", ""]))

    def _drawn(self) -> list[Line]:
        """Returns the lines that have points; zero has no place on a logarithmic axis."""
        lines = [
            (name, [(x, y) for x, y in points if not self.logarithmic or min(x, y) > 0])
            for name, points in self.lines
        ]
        return [(name, points) for name, points in lines if points]

    def _elements(self) -> Iterator[str]:
        lines = self._drawn()
        x, y = self._axes([point for _, points in lines for point in points])
        yield element("rect", width=WIDTH, height=HEIGHT, fill="white")
        yield label(self.title, WIDTH / 2, 28, 20)
        yield from self._mesh(x, y)
        yield label(self.x, (LEFT + RIGHT) / 2, HEIGHT - 12, 12)
        middle = (TOP + BOTTOM) / 2
        turned = label(self.y, 20, middle, 12)
        yield f'<g transform="rotate(-90 20 {plain(middle)})">{turned}</g>'
        for number, (_, points) in enumerate(lines):
            yield from self._line([(x.place(at), y.place(value)) for at, value in points], number)
        yield from self._legend([name for name, _ in lines])

    def _axes(self, points: Sequence[Point]) -> tuple[Axis, Axis]:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if not self.logarithmic:
            return linear(xs, LEFT, RIGHT), linear(ys, BOTTOM, TOP)
        # From power of ten to power of ten, so that each axis of values has a label.
        low, high = math.floor(math.log10(min(ys))), math.ceil(math.log10(max(ys)))
        return (
            logarithmic(min(xs) / 1.3, max(xs) * 1.3, LEFT, RIGHT),
            logarithmic(10.0**low, 10.0 ** max(high, low + 1), BOTTOM, TOP),
        )

    @staticmethod
    def _mesh(x: Axis, y: Axis) -> Iterator[str]:
        for tick in x.ticks:
            at = x.place(tick)
            yield element("line", x1=at, y1=TOP, x2=at, y2=BOTTOM, stroke="#ddd")
            yield label(plain(tick), at, BOTTOM + 16)
        for tick in y.ticks:
            at = y.place(tick)
            yield element("line", x1=LEFT, y1=at, x2=RIGHT, y2=at, stroke="#ddd")
            yield label(plain(tick), LEFT - 6, at + 4, anchor="end")
        frame = f"M{LEFT} {TOP}V{BOTTOM}H{RIGHT}"
        yield element("path", d=frame, fill="none", stroke="black")

    @staticmethod
    def _line(points: Sequence[Point], number: int) -> Iterator[str]:
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        yield element("polyline", points=path, fill="none", stroke=colour, stroke_width=2)
        for x, y in points:
            yield element("circle", cx=x, cy=y, r=3, fill=colour)

    @staticmethod
    def _legend(names: Sequence[str]) -> Iterator[str]:
        width, height = 50 + 7 * max(map(len, names)), LEGEND * len(names) + 8
        place = f"M{LEFT + 8} {TOP + 8}h{width}v{height}h-{width}z"
        yield element("path", d=place, fill="white", fill_opacity=0.8, stroke="black")
        for number, name in enumerate(names):
            at = TOP + 12 + LEGEND * (number + 0.5)
            colour = COLOURS[number % len(COLOURS)]
            ends = f"M{LEFT + 16} {plain(at)}H{LEFT + 36}"
            yield element("path", d=ends, stroke=colour, stroke_width=2)
            yield label(name, LEFT + 44, at + 4, 12, "start")
