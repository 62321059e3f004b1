# SPDX-License-Identifier: GPL-2.0
"""Counting of test results from KTAP, libtest and our own cases."""

import re
from dataclasses import dataclass, field

# "ok 1 name", "not ok 2 name", "ok 3 name # SKIP reason"; kselftest's runner
# puts "# " before the lines of a program, KUnit four spaces before those of a suite.
KTAP_NEST = re.compile(r"# ?| {4}")
KTAP_RESULT = re.compile(r"^(?P<nest>(?:# ?| {4})*)(?P<bad>not )?ok \d+(?: -)? ?(?P<name>.*)$")
KTAP_SKIP = re.compile(r"^(?P<name>.*?)\s*#\s*SKIP\s*(?P<why>.*)$", re.IGNORECASE)
KTAP_TODO = re.compile(r"#\s*(TODO|XFAIL)", re.IGNORECASE)
LIBTEST_RESULT = re.compile(
    r"^test (?P<name>.+?) \.\.\. (?P<verdict>ok|FAILED|ignored)(?:, (?P<why>.*))?$"
)
# What a test that failed has printed, its panic included.
LIBTEST_OUTPUT = re.compile(
    r"^---- (?P<name>.+?) stdout ----\n(?P<said>.*?)(?=^---- |^failures:$|\Z)",
    re.DOTALL | re.MULTILINE,
)


def _depth(match: re.Match[str]) -> int:
    return len(KTAP_NEST.findall(match["nest"]))


def without_successes(text: str) -> str:
    """The KTAP of a program without its cases that passed, and without what they printed."""
    lines = text.splitlines()
    results = list(map(KTAP_RESULT.match, lines))
    deepest = max(map(_depth, filter(None, results)), default=0)
    kept: list[str] = []
    case: list[str] = []
    for line, result in zip(lines, results, strict=True):
        case.append(line)
        if not result:
            continue
        if result["bad"] or _depth(result) < deepest:
            kept += case
        case = []
    return "\n".join(kept + case)


@dataclass
class TestCounts:
    """The numbers of tests that passed, failed and were skipped."""

    passed: int = 0
    failed: list[str] = field(default_factory=list)
    # Of a failure by name, what is known beside it.
    troubles: dict[str, str] = field(default_factory=dict)
    # Tests that failed and then passed.
    unstable: list[str] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)
    # Many tests at once: how many, and why.
    left_out: list[tuple[int, str]] = field(default_factory=list)

    def add_pass(self) -> None:
        """Count a success."""
        self.passed += 1

    def add_fail(self, name: str, trouble: str = "") -> None:
        """Count a failure, of which a text may say more."""
        self.failed.append(name)
        if trouble:
            self.troubles[name] = trouble

    def add_skip(self, name: str, why: str) -> None:
        """Count a test that could not run."""
        self.skipped.append((name, why or "no reason given"))

    def leave_out(self, count: int, why: str) -> None:
        """Count that many tests as skipped, which have the reason in common."""
        if count:
            self.left_out.append((count, why))

    def merge(self, other: "TestCounts") -> None:
        """Count what another has counted."""
        self.passed += other.passed
        self.failed += other.failed
        self.troubles |= other.troubles
        self.skipped += other.skipped
        self.left_out += other.left_out

    def forgive(self, name: str, counts: "TestCounts") -> None:
        """Take back the failures of a test that have been merged: the test is unstable."""
        for failure in counts.failed:
            self.failed.remove(failure)
            self.troubles.pop(failure, None)
        self.unstable.append(name)

    @property
    def skips(self) -> int:
        """How many tests were skipped, one by one or many at once."""
        return len(self.skipped) + sum(count for count, _ in self.left_out)

    @property
    def total(self) -> int:
        """How many tests there were."""
        return self.passed + len(self.failed) + self.skips + len(self.unstable)

    def closing_line(self) -> str:
        """The last line of a test run."""
        line = f"{self.passed} passed, {len(self.failed)} failed, {self.skips} skipped"
        return f"{line}, {len(self.unstable)} unstable" if self.unstable else line

    def add_ktap(self, program: str, text: str) -> int:
        """Count the cases of a program, the innermost results of its KTAP; how many."""
        found = list(filter(None, map(KTAP_RESULT.match, text.splitlines())))
        deepest = max(map(_depth, found), default=0)
        before = self.total
        for match in found:
            if _depth(match) < deepest:
                continue
            name = f"{program}: {match['name']}"
            skip = KTAP_SKIP.match(match["name"])
            if skip:
                self.add_skip(f"{program}: {skip['name']}", skip["why"])
            elif match["bad"] and not KTAP_TODO.search(match["name"]):
                self.add_fail(name)
            else:
                self.add_pass()
        return self.total - before

    def add_libtest(self, text: str) -> int:
        """Count the cases of cargo test; how many there were."""
        before = self.total
        said = {match["name"]: match["said"].strip() for match in LIBTEST_OUTPUT.finditer(text)}
        for match in filter(None, map(LIBTEST_RESULT.match, text.splitlines())):
            if match["verdict"] == "ok":
                self.add_pass()
            elif match["verdict"] == "FAILED":
                self.add_fail(match["name"], said.get(match["name"], ""))
            else:
                self.add_skip(match["name"], match["why"] or "ignored")
        return self.total - before
