# SPDX-License-Identifier: GPL-2.0
"""What the bench says of the machine, and how it compares numbers of cores."""

import argparse
import json
import os
import tempfile
import unittest
from pathlib import Path
from unittest import mock

from .. import results
from ..commands import bench
from ..machine import Machine
from ..results import Figure

MACHINE = Machine("tcg", "a processor", 2, 4, 0.25)


class BenchTest(unittest.TestCase):
    """Figures, and on what they depend."""

    def test_machine(self) -> None:
        """Each figure in a file says where it was measured."""
        figure = Figure("ring.rtt.p50", 3.0, "ns", floor=2.0)
        with tempfile.TemporaryDirectory() as name:
            place = Path(name)
            with (
                mock.patch.object(results, "RESULTS", place),
                mock.patch.object(results, "machine", lambda: MACHINE),
            ):
                results.write("ring", [figure])
            [entry] = json.loads((place / "ring.json").read_text())
            self.assertEqual(results.read(place / "ring.json"), [figure])
        for key, value in {"accelerator": "tcg", "cores": 2, "host_cores": 4, "load": 0.25}.items():
            self.assertEqual(entry[key], value)
        self.assertEqual(entry["ratio"], 1.5)

    def test_side_by_side(self) -> None:
        """A column for each run, and no line for what has nothing to be compared with."""
        one = [Figure("ring.rtt.p50", 9.0, "ns", floor=3.0), Figure("tcp.rtt.p50", 1.0, "ns")]
        two = [Figure("ring.rtt.p50", 4.0, "ns", floor=2.0), Figure("dma.x", 1.0, "ns", rival=4.0)]
        head, _, *rows = results.table_by_run({"1 core": one, "2 cores": two}).splitlines()
        self.assertEqual(head.split("  ")[0], "figure (its ratio)")
        self.assertEqual(
            [row.split() for row in rows],
            [["ring.rtt.p50", "ns", "9", "(3)", "4", "(2)"], ["dma.x", "ns", "-", "1", "(0.25)"]],
        )

    def test_cores(self) -> None:
        """Only as many as there are."""
        with mock.patch.object(os, "sched_getaffinity", lambda _: {1, 4, 6}):
            self.assertEqual(bench.counts_of_cores("1,3"), [1, 3])
            for text in ("0", "1,4", "-1"):
                with self.assertRaises(argparse.ArgumentTypeError):
                    bench.counts_of_cores(text)
            for text in ("", "two", "1,,2"):
                with self.assertRaises(ValueError):
                    bench.counts_of_cores(text)
