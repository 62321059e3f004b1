# SPDX-License-Identifier: GPL-2.0
"""What the kselftest programs are made of."""

import re
from collections.abc import Mapping
from pathlib import Path

INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
GENERATED = re.compile(r"^TEST_GEN_PROGS(_EXTENDED)?\s*[:+]?=(.*)$", re.MULTILINE)
# "$(OUTPUT)/a $(OUTPUT)/b: more.c"
RULE = re.compile(r"^((?:\$\(OUTPUT\)/\w+\s*)+):(.*)$", re.MULTILINE)


class Selftests:
    """The programs by their sources, as the Makefile and the sources' includes tell."""

    def __init__(self, makefile: str, sources: Mapping[str, str]) -> None:
        """The sources are texts by the names of their files."""
        self.runnable: list[str] = []
        self.extended: list[str] = []
        for extended, names in GENERATED.findall(makefile):
            (self.extended if extended else self.runnable).extend(names.split())
        roots = {name: {f"{name}.c"} for name in (*self.runnable, *self.extended)}
        for targets, sources_of in RULE.findall(makefile):
            for name in re.findall(r"\)/(\w+)", targets):
                roots[name].update(sources_of.split())
        self._files = {name: _closure(files, sources) for name, files in roots.items()}

    @staticmethod
    def read(directory: Path) -> "Selftests":
        """Those of a directory."""
        sources = {path.name: path.read_text() for path in directory.glob("*.[ch]")}
        return Selftests((directory / "Makefile").read_text(), sources)

    def programs_of(self, file: str) -> list[str]:
        """The programs that a file is a part of."""
        return [name for name, files in self._files.items() if file in files]


def _closure(files: set[str], sources: Mapping[str, str]) -> set[str]:
    """The files, and all that they include."""
    found: set[str] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        if file not in found:
            found.add(file)
            waiting += INCLUDE.findall(sources.get(file, ""))
    return found
