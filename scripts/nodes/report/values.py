# SPDX-License-Identifier: GPL-2.0
"""Measured figures by their names."""

import json
from collections.abc import Iterable
from pathlib import Path

from ..results import Figure


class Values:
    """Figures by name. If two have the same name, the first one counts."""

    def __init__(self, figures: Iterable[Figure], emulated: bool = False) -> None:
        """emulated is true if the nodes ran on an emulator."""
        self.emulated = emulated
        self._figures: dict[str, Figure] = {}
        for figure in figures:
            self._figures.setdefault(figure.name, figure)

    @staticmethod
    def read(path: Path) -> "Values":
        """Reads a file of figures, which says of each figure on what machine it was measured."""
        entries = json.loads(path.read_text())
        emulated = any(entry.get("accelerator") == "tcg" for entry in entries)
        return Values((Figure.parse(entry) for entry in entries), emulated)

    def figure(self, name: str) -> Figure | None:
        """Returns a figure."""
        return self._figures.get(name)

    def get(self, name: str) -> float | None:
        """Returns the value of a figure."""
        figure = self._figures.get(name)
        return figure.value if figure else None

    def micro(self, name: str) -> float | None:
        """Returns the microseconds of a figure in nanoseconds."""
        value = self.get(name)
        return None if value is None else value / 1e3

    def names(self) -> list[str]:
        """Returns all names, in the order of the figures."""
        return list(self._figures)

    def starting_with(self, prefix: str) -> list[Figure]:
        """Returns the figures whose names start with a prefix."""
        return [figure for name, figure in self._figures.items() if name.startswith(prefix)]
