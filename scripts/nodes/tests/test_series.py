# SPDX-License-Identifier: GPL-2.0
"""Choosing the kernel: what scripts/root makes of what an archive offers and the cache has."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from ..paths import REPO

# What choosing needs of scripts/root. Here a stage is ready if a directory of its name exists, and
# the archive has no packages but those on standard input.
PREPARE = """
set -euo pipefail
. scripts/lib/log.sh
. scripts/root.d/config.sh
read -ra KERNEL_SERIES_TESTED <<<"$TESTED"
. scripts/root.d/series.sh
stage_ready() { [ -d "$CACHE/$1-$SERIES" ]; }
kernel_apt() {
	case "$2 $3" in
	*update) cat >"$1/packages" ;;
	*pkgnames) grep -v ' ' "$1/packages" ;;
	*madison) sed -n 's/ / | /p' "$1/packages" ;;
	esac
}
"""
RECALL = 'series_recall; echo "$SERIES"'
AVAILABLE = """
host_tools() { :; }
stage_begin() { :; }
stage_end() { :; }
stage_remove() { rm -r "$1"; }
LOGS=$CACHE/logs
series_available
"""
ASK = 'series_ask >&2; echo "$SERIES $KREL"'
PARTS = ("linux-binary", "linux-modules", "linux-headers")


def kernel(patch: str, *missing: str) -> list[str]:
    """The packages of a release, as series_packages prints them, without some."""
    release = f"{patch}+deb13-cloud-amd64"
    series = patch.rpartition(".")[0]
    source = f"linux-source-{series}"
    names = [f"linux-binary-unsigned-{release}"]
    names += [f"{part}-{release}" for part in PARTS if part not in missing]
    if "linux-source" not in missing:
        names += [source, f"{source} {patch}-1~bpo13+1"]
    return names


def run(
    script: str, *kernels: list[str], tested: str = "7.3 7.2", cache: str = "/nowhere", **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a part of the choice; the archive offers these kernels, and an old one."""
    packages = [
        *("linux-image-6.12.94+deb13-cloud-amd64", "linux-headers-6.12.94+deb13-cloud-amd64"),
        *("linux-source-6.12", "linux-source-6.12 6.12.94-1", "linux-base", "linux-libc-dev"),
        *(name for names in kernels for name in names),
    ]
    return subprocess.run(
        ["bash", "-c", PREPARE + script],
        input="".join(f"{package}\n" for package in packages),
        capture_output=True,
        text=True,
        check=False,
        cwd=REPO,
        env={"PATH": os.environ["PATH"], "CACHE": cache, "LOGS": cache, "TESTED": tested, **env},
    )


def choose(*kernels: list[str], picked: str = "") -> subprocess.CompletedProcess[str]:
    """Choose from an archive that offers these kernels."""
    return run("series_choose", *kernels, KERNEL_SERIES=picked)


class SeriesTest(unittest.TestCase):
    """Newest tested, next tested, newest of all; never half a kernel."""

    def assert_chosen(self, result: subprocess.CompletedProcess[str], patch: str) -> None:
        """Check that this release is chosen."""
        series = patch.rpartition(".")[0]
        self.assertEqual(
            result.stdout,
            f"{series} {patch}+deb13-cloud-amd64 {patch}-1~bpo13+1\n",
            result.stderr,
        )

    def assert_refused(self, result: subprocess.CompletedProcess[str], *words: str) -> None:
        """Check that nothing is chosen, and that the error has these words."""
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        for word in words:
            self.assertIn(word, result.stderr)

    def test_newest_tested(self) -> None:
        """The newest tested series, of it the newest release, whatever the order."""
        for kernels in (["7.2.12", "7.3.4", "7.3.10"], ["7.3.10", "7.3.4", "7.2.12"]):
            result = choose(*map(kernel, kernels))
            self.assert_chosen(result, "7.3.10")
            self.assertEqual(result.stderr, "")

    def test_incomplete(self) -> None:
        """A release without one of its parts is as none."""
        for missing in (*PARTS, "linux-source"):
            with self.subTest(missing):
                self.assert_chosen(choose(kernel("7.3.4", missing), kernel("7.2.12")), "7.2.12")
                self.assert_chosen(choose(kernel("7.3.5", missing), kernel("7.3.4")), "7.3.4")
        result = choose(kernel("7.3.4", "linux-modules"), kernel("7.2.12"))
        self.assertIn("7.3.4+deb13-cloud-amd64, but not all of it", result.stderr)

    def test_source_of_another_release(self) -> None:
        """The source has to be of the same version; 7.3.4 is not 7.3.40."""
        self.assert_refused(
            choose(kernel("7.3.4", "linux-source"), ["linux-source-7.3 7.3.40-1~bpo13+1"]),
            "7.3.4+deb13-cloud-amd64",
        )

    def test_only_older(self) -> None:
        """The next older tested one, without a word."""
        result = choose(kernel("7.2.12"))
        self.assert_chosen(result, "7.2.12")
        self.assertEqual(result.stderr, "")

    def test_newer_beside(self) -> None:
        """A newer, untested series is noted, not taken."""
        result = choose(kernel("7.4.1"), kernel("7.3.4"))
        self.assert_chosen(result, "7.3.4")
        self.assertIn("series 7.4 is newer and untested", result.stderr)

    def test_none_tested(self) -> None:
        """The newest of all, numerically, with a note that says so."""
        result = choose(kernel("7.9.3"), kernel("7.10.1"), kernel("7.1.2"))
        self.assert_chosen(result, "7.10.1")
        for word in ("not tested with series 7.10", "7.3 7.2", "7.10 7.9 7.1", "KERNEL_SERIES="):
            self.assertIn(word, result.stderr)

    def test_picked(self) -> None:
        """A picked series is taken, tested or not; one that is not is noted."""
        archive = (kernel("7.4.1"), kernel("7.3.4"), kernel("7.2.12"))
        result = choose(*archive, picked="7.2")
        self.assert_chosen(result, "7.2.12")
        self.assertEqual(result.stderr, "")
        result = choose(*archive, picked="7.4")
        self.assert_chosen(result, "7.4.1")
        self.assertIn("not tested with series 7.4", result.stderr)

    def test_picked_missing(self) -> None:
        """A picked series is never exchanged for another."""
        for picked in ("7.2", "7.30", "3.4", "7", "7.3.4", "7.3 7.2", "junk", ".*", "@", "*", "-n"):
            with self.subTest(picked):
                self.assert_refused(
                    choose(kernel("7.3.4"), picked=picked),
                    f"of series {picked}.",
                    "Complete series: 7.3;",
                    "tested with: 7.3 7.2",
                )

    def test_nothing(self) -> None:
        """An archive without any complete kernel is told from one that lacks a series."""
        self.assert_refused(choose(), "Complete series: none;", "newest image: 6.12.94+")


class ChosenTest(unittest.TestCase):
    """What was chosen is kept, and no longer than it is good."""

    def setUp(self) -> None:
        """Make an empty cache."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.cache = Path(directory.name)

    def run_here(self, script: str, *kernels: list[str], **env: str) -> str:
        """What a part of the choice says."""
        result = run(script, *kernels, cache=str(self.cache), **env)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.strip()

    def ask(self, *patches: str, **env: str) -> str:
        """Choose by the archive, and have the kernel's stage built."""
        said = self.run_here(ASK, *map(kernel, patches), **env)
        (self.cache / f"kernel-{said.split()[0]}").mkdir(exist_ok=True)
        for file in (self.cache / ".new-fetched").iterdir():
            file.unlink()
        (self.cache / ".new-fetched").rmdir()
        return said

    def test_nothing_chosen(self) -> None:
        """The newest tested series may be in the cache already; it is looked for first."""
        self.assertEqual(self.run_here(RECALL), "7.3")

    def test_kept(self) -> None:
        """A choice is kept with its kernel, for one list of tested series."""
        self.assertEqual(self.ask("7.2.12"), "7.2 7.2.12+deb13-cloud-amd64")
        self.assertEqual(self.run_here(RECALL), "7.2")
        self.assertEqual(self.run_here(RECALL, tested="7.4 7.3 7.2"), "7.4")
        (self.cache / "kernel-7.2").rmdir()
        self.assertEqual(self.run_here(RECALL), "7.3")

    def test_anew(self) -> None:
        """The archive may be asked again, and has the last word."""
        for patch in ("7.4.1", "7.2.12", "7.3.4", "7.2.13"):
            self.ask(patch)
            self.assertEqual(self.run_here(RECALL), patch.rpartition(".")[0])

    def test_picked(self) -> None:
        """A picked series changes no choice."""
        self.ask("7.3.4", "7.2.12")
        self.assertEqual(
            self.ask("7.3.4", "7.2.12", KERNEL_SERIES="7.2"), "7.2 7.2.12+deb13-cloud-amd64"
        )
        self.assertEqual(self.run_here(RECALL, KERNEL_SERIES="7.2"), "7.2")
        self.assertEqual(self.run_here(RECALL), "7.3")

    def test_hidden(self) -> None:
        """ULDMA_HIDE_KERNELS makes an archive that lacks a series of one that has it."""
        both = ("7.3.4", "7.2.12")
        self.assertEqual(self.ask(*both, ULDMA_HIDE_KERNELS=r"7\.3")[:3], "7.2")
        self.assertEqual(self.ask(*both, ULDMA_HIDE_KERNELS=r"7\.2")[:3], "7.3")
        self.assertEqual(self.ask(*both, ULDMA_HIDE_KERNELS="modules-7.3")[:3], "7.2")
        result = run(ASK, cache=str(self.cache), ULDMA_HIDE_KERNELS="linux")
        self.assertEqual(result.returncode, 1)
        self.assertRegex(result.stderr, "^(uldma: .*\n)+$")
        self.assertIn("newest image: none", result.stderr)

    def test_available(self) -> None:
        """Tested series that the cache has, or the archive; each once, the newest first."""
        (self.cache / "kernel-7.2").mkdir()
        self.assertEqual(self.run_here(AVAILABLE), "7.2")
        self.assertEqual(self.run_here(AVAILABLE, kernel("7.3.4")).split(), ["7.3", "7.2"])
        self.assertEqual(self.run_here(AVAILABLE, kernel("7.4.1")), "7.2")
        half = kernel("7.3.4", "linux-modules")
        self.assertEqual(self.run_here(AVAILABLE, half), "7.2")
        self.assertFalse((self.cache / ".new-fetched").exists())
