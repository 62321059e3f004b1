# SPDX-License-Identifier: GPL-2.0
"""nodes test: host tests, kselftest and our own cases, side by side, and one closing line."""

import argparse
import math
import os
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext

from .. import cases, change, host_tests, plan
from ..cases.registry import CASES
from ..console import say, write
from ..durations import Durations
from ..errors import NodesError
from ..kernel import DEBUG, SUFFIX
from ..ktap import TestCounts
from ..locks import Lock
from ..outcome import Outcome, Report
from ..paths import CACHE, SELFTESTS
from ..plan import Test
from ..repeats import Repeats
from ..retries import Retries, Unstable
from ..schedule import Schedule
from ..selection import expression, select
from ..starvation import Starvation
from ..workers import Fleet, Workers

# What a set of nodes keeps busy.
CORES_PER_JOB = 2
# Of what is known of a failure, the end: there an exception says what it is.
LAST_LINES = 8
# Where the names are.
LIST = "build/kselftest/kselftest-list.txt and scripts/nodes/cases have the names"


def cores() -> int:
    """The processors that this process may use."""
    return os.process_cpu_count() or 1


def default_jobs() -> int:
    """How many sets of nodes have the processors that they need."""
    return max(1, cores() // CORES_PER_JOB)


def node_tests() -> list[Test]:
    """All tests that need nodes, from what is built and what this package holds."""
    programs = (SELFTESTS / "kselftest-list.txt").read_text().split()
    connected = sorted(f"uldma:{path.name}" for path in SELFTESTS.glob("uldma/uldma_conn*_peer"))
    cases.load()
    return plan.node_tests(programs, connected, CASES, unit_tests=DEBUG)


def leave_out(tests: Sequence[Test], counts: TestCounts) -> list[Test]:
    """What the debug kernel has time for; the rest is counted."""
    for why, count in Counter(test.too_long for test in tests if test.too_long).items():
        counts.leave_out(count, f"{why}; by name they run on the debug kernel, too")
    return [test for test in tests if not test.too_long]


def leave_for_other_days(tests: Sequence[Test], revision: str, counts: TestCounts) -> list[Test]:
    """What was touched since a revision, and the day's part of the rest; others are counted."""
    base, files = change.files_since(revision)
    day = change.today()
    chosen = change.choose(tests, change.touched_by(files), day)
    part = f"the part of day {day % change.PARTS + 1} of {change.PARTS}"
    say(f"{len(files)} files changed since {base}: {len(chosen)} tests, with {part}")
    why = f"not touched since {base}, and not {part}; make test{SUFFIX} runs all"
    counts.leave_out(len(tests) - len(chosen), why)
    return chosen


def choose(options: argparse.Namespace, counts: TestCounts) -> list[Test]:
    """The tests of this run."""
    tests: list[Test] = []
    if not options.host:
        tests += node_tests()
        if DEBUG and not options.only.pattern:
            tests = leave_out(tests, counts)
        if options.smoke:
            tests = change.smoke(tests)
        if options.changed:
            tests = leave_for_other_days(tests, options.changed, counts)
    if not options.nodes:
        tests += host_tests.tests(max(1, cores() // options.jobs))
    chosen = select(options.only, tests)
    if options.only.pattern and not chosen:
        raise NodesError(f"no test is called {options.only.pattern!r}; {LIST}")
    return chosen


def rounds(tests: Sequence[Test], options: argparse.Namespace) -> list[Sequence[Test]]:
    """What runs before what: if time may end, that which its end should not keep from running."""
    if options.within == math.inf or options.only.pattern:
        return [tests]
    base, files = change.files_since(options.changed or change.AUTO)
    first, then, rest = change.in_rounds(tests, change.touched_by(files), change.today())
    say(f"{len(first)} tests first, for {len(files)} files changed since {base}")
    # Only those of the day are left where a revision was given.
    return [first, [*then, *rest]] if options.changed else [first, then, rest]


def print_summary(report: Report, began: float, unstable: Sequence[Unstable] = ()) -> None:
    """Say what took long, what did not run and what failed; the totals are the last line."""
    counts = report.counts
    say("what took longest:")
    for line in report.longest():
        write(line)
    for name, why in counts.skipped:
        write(f"skipped: {name}: {why}")
    for count, why in counts.left_out:
        write(f"skipped: {count} tests: {why}")
    for name in counts.failed:
        write(f"FAILED: {name}")
        # Whoever reads only the end of a log, as of a CI, sees the cause there.
        for line in counts.troubles.get(name, "").splitlines()[-LAST_LINES:]:
            write(f"    {line}")
    for test in unstable:
        write(f"unstable: {test.name}: {test.log}")
        for line in test.said.splitlines()[-LAST_LINES:]:
            write(f"    {line}")
    if counts.failed:
        write(f"The logs are in build/logs; one test again: make test{SUFFIX} ONLY=name")
    say(f"{counts.total} tests in {time.monotonic() - began:.0f} s")
    write(counts.closing_line())


def run_all(
    tests: Sequence[Test], options: argparse.Namespace, durations: Durations, report: Report
) -> list[Unstable]:
    """Run all tests that time is left for, and count the others; which are unstable."""
    end, left, fleet = time.monotonic() + options.within, 0, Fleet()
    failures: list[tuple[Test, Outcome]] = []
    for some in rounds(tests, options):
        repeated = [test for test in some for _ in range(options.repeat)]
        schedule = Schedule(repeated, durations, options.jobs, lambda: time.monotonic() >= end)
        workers = Workers(schedule, durations, report, fleet)
        workers.run(options.jobs)
        failures += workers.failures
        left += schedule.waiting()
    report.counts.leave_out(left, f"{options.within:g} s are over; make test{SUFFIX} runs all")
    if options.retry:
        return Retries(report, durations, fleet, options.retry).run(failures)
    return []


def main(arguments: Sequence[str]) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog=f"make test{SUFFIX}")
    parser.add_argument("--host", action="store_true", help="only the host's tests")
    parser.add_argument("--nodes", action="store_true", help="only the nodes' tests")
    parser.add_argument(
        "--only", type=expression, default="", metavar="REGEX", help="only tests of this name"
    )
    parser.add_argument(
        "--jobs", type=int, default=default_jobs(), help="as many sets of nodes at a time"
    )
    parser.add_argument(
        "--changed",
        default="",
        metavar="REVISION",
        help="only what was touched since, and a part of the rest that differs from day to day; "
        f"{change.AUTO!r}: since the last day's first commit",
    )
    parser.add_argument(
        "--smoke", action="store_true", help="only a few tests, which cross each part once"
    )
    parser.add_argument(
        "--within",
        type=float,
        default=math.inf,
        metavar="SECONDS",
        help="begin no test after so many seconds: what the last day's changes touch comes first, "
        "and those that are left are counted as skipped",
    )
    parser.add_argument(
        "--retry",
        type=float,
        default=0,
        metavar="SECONDS",
        help="for CI: what fails on nodes, but for what is a defect in any case, runs twice more, "
        "alone and within so many seconds after all others; what passes then is listed as unstable",
    )
    parser.add_argument(
        "--repeat",
        type=int,
        default=1,
        metavar="NUMBER",
        help="each test that often; all its runs are one result, which tells how many passed",
    )
    parser.add_argument(
        "--starved", action="store_true", help="with a load that takes the processors beside it"
    )
    options = parser.parse_args(arguments)
    if min(options.jobs, options.repeat) < 1:
        parser.error("there has to be one job at least, and one run of each test")
    if options.repeat > 1 and options.retry:
        parser.error("--retry would excuse the failures that --repeat looks for")
    # The nodes' own locks come and go.
    lock = Lock(f"test{SUFFIX}", "run")
    began = time.monotonic()
    report = Repeats() if options.repeat > 1 else Report()
    tests = choose(options, report.counts)
    durations = Durations(CACHE / f"test-durations{SUFFIX}.json")
    try:
        with Starvation(cores()) if options.starved else nullcontext():
            unstable = run_all(tests, options, durations, report)
    finally:
        durations.save()
        lock.release()
    for line in report.close():
        write(line)
    print_summary(report, began, unstable)
    return 1 if report.counts.failed or not report.counts.total else 0
