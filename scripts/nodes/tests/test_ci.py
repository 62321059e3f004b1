# SPDX-License-Identifier: GPL-2.0
"""What CI has time for: .ci/run with commands that take no time, but say how long they would."""

import os
import shutil
import subprocess
import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path

from ..paths import REPO

MINUTE = 60
# Seconds of each command on two cores, where the kernels are in the cache. Tests take what they
# get: they end this long after their time.
WARM = {
    "make root": 10,
    "make lint": 350,
    "make kunit": 100,
    "make build": 420,
    "make test ": 120,
    "make test-debug ": 300,
    "make smoke ": 260,
    "make smoke-debug ": 400,
    "make bench ": 60,
    "scripts/lint module": 60,
}
# The same from nothing.
COLD = {
    **WARM,
    "make root": 9 * MINUTE,
    "make lint": 500,
    "make kunit": 400,
    "make debug-kernel": 20 * MINUTE,
    "ensure --rdma": 150,
    "ensure --network": 60,
}
COMMAND = """#!/bin/sh
# Names itself, and lets the time of the table go by; a test with WITHIN= takes all of that, too.
line="${0##*/} $*"
case $line in
"root series") printf '7.3\\n7.2\\n'; exit ;;
"root ready --debug") exit "$COLD" ;;
*nodes.accel) echo tcg; exit ;;
esac
echo "$line" >>"$PLACE/commands"
seconds=0
while IFS='|' read -r pattern taken; do
	case $line in *"$pattern"*) seconds=$taken ;; esac
done <"$PLACE/table"
case $line in *WITHIN=*) within=${line##*WITHIN=}; seconds=$((seconds + ${within%% *})) ;; esac
echo $(($(cat "$PLACE/clock") + seconds)) >"$PLACE/clock"
case $line in *"$FAILS"*) exit 1 ;; esac
"""
# Kills what takes longer.
TIMEOUT = """#!/bin/sh
limit=$2
shift 2
began=$(cat "$PLACE/clock")
"$@" || exit
[ $(($(cat "$PLACE/clock") - began)) -le "$limit" ] || exit 124
"""


class CiTest(unittest.TestCase):
    """All of it ends in time, and what matters most is never left out."""

    def run_ci(self, table: Mapping[str, int], *, cold: bool = False, fails: str = "none") -> int:
        """How long it takes; the commands that it has run, and what it says, are kept."""
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            for directory in (".ci", "scripts", "bin"):
                (place / directory).mkdir()
            shutil.copy(REPO / ".ci/run", place / ".ci/run")
            programs = {"bin/make": COMMAND, "scripts/root": COMMAND, "bin/timeout": TIMEOUT}
            programs["bin/date"] = '#!/bin/sh\ncat "$PLACE/clock"\n'
            for path, text in programs.items():
                (place / path).write_text(text)
                (place / path).chmod(0o755)
            (place / "clock").write_text("1000\n")
            (place / "commands").write_text("")
            (place / "table").write_text("".join(f"{key}|{table[key]}\n" for key in table))
            done = subprocess.run(
                [".ci/run"],
                cwd=place,
                capture_output=True,
                text=True,
                check=False,
                env={
                    "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
                    "PLACE": name,
                    "COLD": str(int(cold)),
                    "FAILS": fails,
                },
            )
            self.assertEqual(done.stderr, "")
            self.status = done.returncode
            self.said = done.stdout.splitlines()
            self.commands = (place / "commands").read_text().splitlines()
            return int((place / "clock").read_text()) - 1000

    def runs(self, command: str) -> bool:
        """Whether a command has run."""
        return any(command in line for line in self.commands)

    def left_out(self, what: str) -> bool:
        """Whether that was said at the end."""
        last = self.said[self.said.index(next(s for s in self.said if " s: make root" in s)) :]
        return any(line.startswith(f"ci: left out: {what}") for line in last)

    def test_warm(self) -> None:
        """Where the kernels are built there is time for the other series and the debug kernel."""
        self.assertLessEqual(self.run_ci(WARM), 50 * MINUTE)
        self.assertEqual(self.status, 0)
        for command in ("lint", "kunit", "test ", "smoke ", "debug-kernel", "test-debug "):
            self.assertTrue(self.runs(f"make {command}"), command)
        self.assertFalse(self.runs("smoke-debug"))
        self.assertTrue(self.left_out("make smoke-debug KERNEL_SERIES=7.2"))

    def test_cold(self) -> None:
        """From nothing, all that is left out is what comes after the tests on the stock kernel."""
        self.assertLess(self.run_ci(COLD, cold=True), 75 * MINUTE)
        self.assertEqual(self.status, 0)
        [tests] = [line for line in self.commands if line.startswith("make test ")]
        self.assertIn("WITHIN=900 ", tests)
        for what in ("the module and its tests, KERNEL_SERIES=7.2", "the debug kernels"):
            self.assertTrue(self.left_out(what), what)

    def test_slow(self) -> None:
        """Further runs of tests that have failed, and tests that are long, have their time, too."""
        table = {**COLD, "make test ": 900}
        self.assertLess(self.run_ci(table, cold=True), 75 * MINUTE)
        self.assertEqual(self.status, 0)

    def test_short(self) -> None:
        """What a short run of tests leaves is the debug kernel's."""
        quick = {key: seconds // 4 for key, seconds in WARM.items()}
        self.assertLessEqual(self.run_ci({**quick, "make test ": -1000}), 50 * MINUTE)
        for command in ("test-debug ", "bench "):
            self.assertTrue(self.runs(f"make {command}"), command)

    def test_failure(self) -> None:
        """It ends at once, with the times of what has run."""
        self.run_ci(WARM, fails="make test ")
        self.assertEqual((self.status, self.commands[-1].startswith("make test ")), (1, True))
        self.assertRegex(self.said[-1], "^ci: [0-9]+ s in all$")
        self.assertTrue(any(" s: make test CHANGED=auto" in line for line in self.said))
