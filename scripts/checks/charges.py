# SPDX-License-Identifier: GPL-2.0
"""Finds what a caller's control group or address space could make wait below a lock of a device.

A charge to a control group sleeps above its memory.high, and a process holds the lock of its
address space for as long as it likes. So a caller takes memory before a lock of the driver, or
memory that is charged to no process. The same holds inside of the gate, as unbind waits for all
that are there. The text of the driver tells most of that: a function waits if it names one of
WAITS, or calls a function of the driver that waits. No line calls one while a guard lives, inside
of a closure of `Tpt::with`, in a method that changes what is behind a lock, or in a function that
is handed the bound device. The check does not see calls through a trait, and takes a method for
that of its name if there is only one.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

DRIVER = Path("drivers/uldma")
# What waits for a caller.
WAITS = re.compile(r"\b(GFP_KERNEL_ACCOUNT|mmap_read_lock|mmap_write_lock|mmap_lock_killable)\b")
# A lock, and the types that are named in its contents; what an Arc shares is not behind it.
LOCK = re.compile(r"\b(?:Mutex|SpinLock|BhLock)<(.*)>,?$")
SHARED = re.compile(r"\b(?:Arc|ARef)<(?:dyn )?[\w:]+(?:<[^<>]*>)?>")
NAME = re.compile(r"\b[A-Z]\w*\b")
FUNCTION = re.compile(r"^(\s*)(?:pub(?:\([^)]*\))? )?(?:const |unsafe |async )*fn (\w+)")
IMPL = re.compile(r"^impl(?:<.*?>)? (?:[\w:<>', ]+ for )?(\w+)")
STRUCT = re.compile(r"^(?:pub(?:\([^)]*\))? )?(?:struct|enum) (\w+)")
GUARD = re.compile(
    r"^(\s*)(if )?let (?:mut )?(?:Some\()?(\w+)\)? = .*\.(?:lock|try_enter|enter)\(\)"
    r"(?:\?|\.ok_or\([\w:]+\)\?)?(?:;| else \{| \{)$"
)
# Only who is inside of the gate, or binds the device, has one of these.
BOUND = re.compile(r"\bHw<'|&(?:'\w+ )?Device<(?:device::)?Bound>")
# What a function is handed calls such a one, and what it returns is not handed to it.
NOT_HANDED = re.compile(r"\bFn\w*\([^)]*\)|->.*")
CLOSURE = re.compile(r"^(\s*).*\.(?:with|with_tables)\((?:[^|]*, )?(?:move )?\|(?:mut )?(\w+)\|")
CALL = re.compile(r"(?:\b([A-Z]\w*)::|\bself\.|\.|\b)(\w+)\(")
COMMENT = re.compile(r"(?<!:)//.*$")
# What waits all the same, with the reason.
ALLOWED = {
    "RunArray::new": "16 pages at most, for which the device has to be bound: unbind waits once",
    "IntervalNotifier::new": "once for an open file, below a lock of that file alone",
    "Shared::new": "the driver binds the device, before a user can find it",
    "Reception::new": "a worker of the device makes it, which is in no control group",
}


@dataclass
class Function:
    """A function of the driver."""

    path: Path
    owner: str | None
    name: str
    first: int
    lines: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """How calls name it."""
        return f"{self.owner}::{self.name}" if self.owner else self.name

    @property
    def head(self) -> str:
        """What stands before its body; parameters can have braces, too."""
        head = ""
        for line in self.lines:
            head += line.strip() + " "
            if line.endswith(("{", ";", "}")) and head.count("(") == head.count(")"):
                break
        return head

    @property
    def has_self(self) -> bool:
        """Whether it is called with an object."""
        return re.search(r"\(\s*&(?:'\w+ )?mut self\b", self.head) is not None

    @property
    def is_inside(self) -> bool:
        """Whether its callers are inside of the gate."""
        return BOUND.search(NOT_HANDED.sub("", self.head)) is not None


def code_of(path: Path) -> list[str]:
    """Return the lines of a file without its comments and its tests."""
    lines = [COMMENT.sub("", line).rstrip() for line in path.read_text().splitlines()]
    tests = next((at for at, line in enumerate(lines) if line.startswith("#[kunit_tests")), None)
    return lines[:tests]


def functions_of(path: Path, lines: list[str]) -> Iterator[Function]:
    """Yield the functions of a file, which rustfmt has indented."""
    owner = None
    current: tuple[str, Function] | None = None
    for number, line in enumerate(lines, 1):
        if current:
            indent, function = current
            function.lines.append(line)
            if line in (f"{indent}}}", f"{indent};"):
                yield function
                current = None
            continue
        if found := IMPL.match(line):
            owner = found[1]
        elif line == "}":
            owner = None
        elif found := FUNCTION.match(line):
            if not line.endswith((";", "}")):
                current = found[1], Function(path, owner, found[2], number, [line])
            elif line.endswith("}"):
                yield Function(path, owner, found[2], number, [line])


def locked_types(files: dict[Path, list[str]]) -> set[str]:
    """Return the types behind locks, with those of their fields."""
    fields: dict[str, set[str]] = {}
    locked: set[str] = set()
    for lines in files.values():
        struct = None
        for line in lines:
            if found := STRUCT.match(line):
                struct = found[1]
            elif line == "}":
                struct = None
            text = SHARED.sub("", line)
            if found := LOCK.search(text.strip()):
                locked |= set(NAME.findall(found[1]))
            elif struct and ": " in text:
                fields.setdefault(struct, set()).update(NAME.findall(text.split(": ", 1)[1]))
    more = locked
    while more:
        more = set().union(*(fields.get(name, set()) for name in more)) - locked
        locked |= more
    return locked


class Driver:
    """What is known of all functions."""

    def __init__(self, root: Path) -> None:
        paths = sorted(path for path in root.rglob("*.rs") if "tests" not in path.stem)
        files = {path: code_of(path) for path in paths}
        self.functions = [f for path, lines in files.items() for f in functions_of(path, lines)]
        self.locked = locked_types(files)
        self.by_name: dict[str, list[Function]] = {}
        for function in self.functions:
            self.by_name.setdefault(function.name, []).append(function)
        self.waiting = self._waiting()

    def callees(self, line: str, caller: Function) -> Iterator[Function]:
        """Yield the functions that a line calls, as far as their names tell."""
        for owner, name in CALL.findall(line):
            named = self.by_name.get(name, [])
            if owner:
                wanted = caller.owner if owner == "Self" else owner
                yield from (f for f in named if f.owner == wanted)
            elif len(named) == 1:
                yield named[0]

    def why(self, line: str, caller: Function) -> str | None:
        """Return what in a line waits for a caller."""
        if found := WAITS.search(line):
            return found[0]
        waiting = (f.key for f in self.callees(line, caller) if id(f) in self.waiting)
        return next(waiting, None)

    def _waiting(self) -> set[int]:
        functions = [f for f in self.functions if f.key not in ALLOWED]
        waiting = {id(f) for f in functions if any(map(WAITS.search, f.lines))}
        while True:
            more = {
                id(f)
                for f in functions
                if id(f) not in waiting
                and any(id(g) in waiting for line in f.lines for g in self.callees(line, f))
            }
            if not more:
                return waiting
            waiting |= more

    def findings(self) -> Iterator[str]:
        """Yield a line for each place where a lock waits for a caller."""
        for function in (f for f in self.functions if f.key not in ALLOWED):
            for number, line, lock in self.below_locks(function):
                why = self.why(line, function)
                if why:
                    place = f"{function.path}:{number}"
                    yield f"{place}: {function.key}: {why} below {lock}"

    def below_locks(self, function: Function) -> Iterator[tuple[int, str, str]]:
        """Yield the lines of a function that run below a lock, with the lock's name."""
        everywhere = ""
        if function.is_inside:
            everywhere = "the gate"
        elif function.has_self and function.owner in self.locked:
            everywhere = f"the lock of {function.owner}"
        guards: list[tuple[int, str]] = []
        for number, line in enumerate(function.lines, function.first):
            indent = len(line) - len(line.lstrip())
            if line:
                guards = [(at, name) for at, name in guards if indent >= at]
            if dropped := re.match(r"\s*drop\((\w+)\);", line):
                guards = [(at, name) for at, name in guards if name != dropped[1]]
            if number > function.first and (guards or everywhere):
                yield number, line, f"guard `{guards[-1][1]}`" if guards else everywhere
            if found := GUARD.match(line):
                guards.append((indent + bool(found[2]), found[3]))
            elif found := CLOSURE.match(line):
                guards.append((indent + 1, found[2]))


def main() -> int:
    """Print what waits."""
    found = list(Driver(DRIVER).findings())
    for line in found:
        print(line)
    if found:
        print("take the memory before the lock, or charge it to no process")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
