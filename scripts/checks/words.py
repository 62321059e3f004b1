# SPDX-License-Identifier: GPL-2.0
"""Finds words that must not come back (scripts/checks/words) in the files that it is given."""

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
LITERAL = re.compile(r"``[^`]*``")


@dataclass
class Rules:
    """The contents of the list."""

    paths: list[str] = field(default_factory=list)
    excepted: list[str] = field(default_factory=list)
    words: list[tuple[re.Pattern[str], str]] = field(default_factory=list)

    def covers(self, path: str) -> bool:
        """Returns true if `path` is checked."""
        inside = any(path == top or path.startswith(f"{top}/") for top in self.paths)
        return inside and path not in self.excepted


def parse(text: str) -> Rules:
    """Reads the list.

    Raises ValueError for a line outside of a section, or a word without a replacement.
    """
    rules = Rules()
    section = ""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        if line in ("[paths]", "[except]", "[words]"):
            section = line
        elif section == "[paths]":
            rules.paths.append(line)
        elif section == "[except]":
            rules.excepted.append(line)
        elif section == "[words]":
            word, tab, better = line.partition("\t")
            if not tab:
                raise ValueError(f"no replacement: {line}")
            rules.words.append((re.compile(rf"\b(?:{word})\b", re.IGNORECASE), better))
        else:
            raise ValueError(f"outside of a section: {line}")
    return rules


def findings(rules: Rules, path: str, text: str) -> Iterator[str]:
    """Yields a message for each listed word in `text`."""
    for number, line in enumerate(text.splitlines(), 1):
        checked = LITERAL.sub("", line) if path.endswith(".rst") else line
        for word, better in rules.words:
            for found in word.finditer(checked):
                yield f"{path}:{number}: {found[0]!r}: write {better}"


def check(rules: Rules, paths: Sequence[str]) -> list[str]:
    """Returns the messages for those of `paths` that the list covers."""
    messages: list[str] = []
    for path in filter(rules.covers, paths):
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        messages += findings(rules, path, text)
    return messages


def main() -> int:
    """Prints all messages; returns 1 if there are any."""
    messages = check(parse((HERE / "words").read_text(encoding="utf-8")), sys.argv[1:])
    print("\n".join(messages), end="\n" if messages else "")
    return 1 if messages else 0


if __name__ == "__main__":
    sys.exit(main())
