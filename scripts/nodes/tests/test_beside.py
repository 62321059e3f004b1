# SPDX-License-Identifier: GPL-2.0
"""Setting up the toolchain root: what is done side by side, and in which order."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from ..paths import REPO

BESIDE = """
set -euo pipefail
. scripts/lib/beside.sh
"""
# The part of scripts/root that plans. A stage is a directory; what builds it, and what runs inside,
# writes down when it begins and ends.
ENSURE = """
set -euo pipefail
. scripts/lib/log.sh
. scripts/lib/beside.sh
eval "$(sed -n '/^ensure() {/,/^}/p; /^build() {/,/^}/p' scripts/root)"
FETCHED=$CACHE/.new-fetched
stage_ready() { [ -d "$CACHE/$1" ]; }
stage() { stage_ready "$1" || { "$2" "$CACHE/$1"; mkdir "$CACHE/$1"; }; }
stage_begin() { :; }
stage_end() { :; }
stage_remove() { rm -rf "$@"; }
series_recall() { SERIES=7.3; }
host_tools() { :; }
note() { echo "$1" >>"$CACHE/order"; }
kernel_fetch() { note 'fetch begins'; mkdir "$FETCHED"; echo '7.2 7.2.9' >"$FETCHED/choice"; }
build_root() {
	until grep -qs 'fetch begins' "$CACHE/order"; do :; done
	note 'root'
}
build_pytools() { note 'pytools'; }
build_kernel() {
	[ "$PARTS" = modules ] || until grep -qs -- '--no-kernel' "$CACHE/order"; do :; done
	note "kernel $SERIES"
}
enter() { note "enter $*"; }
"""


class BesideTest(unittest.TestCase):
    """Work beside other work."""

    def run_script(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run it with the functions at hand."""
        return subprocess.run(
            ["bash", "-c", BESIDE + script],
            capture_output=True,
            text=True,
            check=False,
            cwd=REPO,
            timeout=60,
        )

    def test_together(self) -> None:
        """Neither waits for the other, and both have to be waited for."""
        done = self.run_script("""
            pipe=$(mktemp -u); mkfifo "$pipe"
            speak() { echo hello >"$pipe"; }
            beside speech speak
            read -r word <"$pipe"
            beside_wait_all
            rm "$pipe"
            echo "$word"
        """)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "hello\n", ""))

    def test_failure(self) -> None:
        """What fails beside fails where it is waited for, once."""
        done = self.run_script("beside bad false; echo on; beside_wait bad; echo never")
        self.assertEqual((done.returncode, done.stdout), (1, "on\n"))
        done = self.run_script("beside good true; beside_wait good; beside_wait good; echo end")
        self.assertEqual((done.returncode, done.stdout), (0, "end\n"))

    def test_end(self) -> None:
        """What was begun does not outlive the shell, nor does what it has started."""
        # As a shell does between fork and exec, they lose a SIGTERM.
        done = self.run_script("""
            trap '' TERM
            hold() { sleep 600 & wait; }
            beside held hold
            exit 3
        """)
        # The sleeper has our standard output open, so that this comes when it has gone.
        self.assertEqual(done.returncode, 3)


class EnsureTest(unittest.TestCase):
    """What is built beside what, from nothing."""

    def order(self, parts: str) -> list[str]:
        """Build parts of the tree in an empty cache, then once more; what happened."""
        with tempfile.TemporaryDirectory() as cache:
            done = subprocess.run(
                ["bash", "-c", ENSURE + "build $PARTS; note again; build $PARTS"],
                capture_output=True,
                text=True,
                check=False,
                cwd=REPO,
                timeout=60,
                env={"PATH": os.environ["PATH"], "CACHE": cache, "PARTS": parts},
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertFalse((Path(cache) / ".new-fetched").exists())
            return (Path(cache) / "order").read_text().splitlines()

    def test_cold(self) -> None:
        """The kernel comes while the root is made, the tools are built while it is prepared."""
        for tools in ("tools", "tools-of-run"):
            with self.subTest(tools):
                order = self.order(f"modules {tools}")
                again = order.index("again")
                self.assertLess(order.index("fetch begins"), order.index("root"))
                beside = f"enter --no-kernel scripts/build {tools}"
                self.assertLess(order.index(beside), order.index("kernel 7.2"))
                module = order.index("enter scripts/build modules")
                self.assertLess(order.index("kernel 7.2"), module)
                self.assertIn("pytools", order[:again])
                # Nothing is built twice the first time; later all parts at once.
                self.assertEqual(order[again + 1 :], [f"enter scripts/build modules {tools}"])

    def test_no_tools(self) -> None:
        """What needs a kernel waits for it."""
        order = self.order("modules")
        self.assertLess(order.index("kernel 7.2"), order.index("enter scripts/build modules"))
        self.assertFalse(any("--no-kernel" in line for line in order))
