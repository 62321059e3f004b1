# SPDX-License-Identifier: GPL-2.0
"""Which part of the tests runs for a change: what it touches, and a part of the rest each day.

Only days with commits count. A part that had its turn on a day of the calendar without any would
wait for another round, and what no change touches could fail for weeks.
"""

import re
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from . import touched
from .errors import NodesError
from .paths import REPO
from .plan import Order, Test
from .sources import Selftests
from .topologies import HOST

# In as many days with commits each test runs at least once.
PARTS = 4
DAY = 24 * 60 * 60
# Tests of a topology that has no more stay together, since they are not worth more than one boot.
FEW = 8
# For CHANGED=: what is newer than a day, seen from the newest commit.
AUTO = "auto"


def _git(*arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=REPO, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NodesError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def _a_day_ago() -> str:
    """The newest commit that was a day old when the last one was made, or the first of all."""
    now = int(_git("log", "-1", "--format=%ct"))
    found = _git("rev-list", "-1", f"--before={now - DAY}", "HEAD")
    return (found or _git("rev-list", "--max-parents=0", "HEAD")).split()[0]


def files_since(revision: str) -> tuple[str, list[str]]:
    """The revision, and the files that have changed since it, committed or not."""
    revision = _a_day_ago() if revision == AUTO else revision
    names = _git("diff", "--name-only", "--merge-base", revision, "--").splitlines()
    return _git("rev-parse", "--short", revision).strip(), names


def today() -> int:
    """How many days had commits, up to that of the newest one."""
    return len(set(_git("log", "--format=%cs").split()))


def touched_by(files: Iterable[str]) -> list[str]:
    """The patterns of the tests that a change of these files touches."""
    cases = {path.stem: path.read_text() for path in (REPO / touched.CASES).glob("*.py")}
    selftests = Selftests.read(REPO / touched.SELFTESTS)
    return sorted(set(touched.patterns(files, selftests, cases)))


def choose(tests: Sequence[Test], patterns: Sequence[str], day: int) -> list[Test]:
    """The tests of a day.

    Those that a pattern is found in, the day's part of the others, and what is first on the nodes
    of any of these. The parts are made by name, so that they stay the same from day to day.
    """
    sizes = Counter(test.topology.name for test in tests)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for test in tests:
        group = test.topology.name if sizes[test.topology.name] <= FEW else test.name
        groups[group].add(test.name)
    todays = sorted(groups)[day % PARTS :: PARTS]
    chosen = set[str]().union(*(groups[group] for group in todays))
    return _with_first(tests, chosen | _found(tests, patterns))


def in_rounds(tests: Sequence[Test], patterns: Sequence[str], day: int) -> list[list[Test]]:
    """All tests: what is touched and what needs no node, the rest of a day's, and the others.

    Where time ends before the tests do, those that are left out have their day, too.
    """
    first = {test.name for test in _with_first(tests, _found(tests, patterns))}
    todays = {test.name for test in choose(tests, patterns, day)}
    rounds: tuple[list[Test], list[Test], list[Test]] = ([], [], [])
    for test in tests:
        later = test.topology is not HOST and test.name not in first
        rounds[later + (later and test.name not in todays)].append(test)
    return list(rounds)


def smoke(tests: Sequence[Test]) -> list[Test]:
    """Tests that cross each part of the driver once, each on the first nodes that run it."""
    chosen: set[str] = set()
    for what in touched.BROAD:
        found = [test for test in tests if re.search(what, test.name)]
        chosen.update(test.name for test in found if test.topology is found[0].topology)
    return _with_first(tests, chosen)


def _found(tests: Sequence[Test], patterns: Sequence[str]) -> set[str]:
    names = (test.name for test in tests)
    return {name for name in names if any(re.search(what, name) for what in patterns)}


def _with_first(tests: Sequence[Test], chosen: set[str]) -> list[Test]:
    topologies = {test.topology.name for test in tests if test.name in chosen}
    return [
        test
        for test in tests
        if test.name in chosen or (test.order is Order.FIRST and test.topology.name in topologies)
    ]
