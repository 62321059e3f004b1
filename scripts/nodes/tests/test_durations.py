# SPDX-License-Identifier: GPL-2.0
"""Remembering how long tests take."""

import tempfile
import unittest
from pathlib import Path

from .. import host_tests
from ..durations import BOOT, LONG_TESTS, TEST, Durations
from ..kernel import scaled
from ..topologies import HOST
from .fakes import make_test, make_topology, planned_tests


class DurationsTest(unittest.TestCase):
    """What was noted is known in the next run."""

    def setUp(self) -> None:
        """Have a place for the file."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name) / "below" / "durations.json"

    def test_unknown(self) -> None:
        """What never ran is taken to be like others; where no node is, none is booted."""
        durations = Durations(self.path)
        self.assertEqual(durations.of(make_test("a")), TEST)
        self.assertEqual(durations.of_boot(make_topology()), BOOT)
        self.assertEqual(durations.of_boot(HOST), 0)

    def test_long(self) -> None:
        """What is known to be long, and is still there, is taken to be so before it has run."""
        durations = Durations(self.path)
        tests = {test.name: test for test in (*planned_tests(), *host_tests.tests(1))}
        for name, seconds in LONG_TESTS.items():
            with self.subTest(name):
                self.assertEqual(durations.of(tests[name]), scaled(seconds))

    def test_known(self) -> None:
        """Two runs at the same time add to the file, and the later one wins."""
        one, other = Durations(self.path), Durations(self.path)
        one.note(make_test("a"), 3.14)
        one.note_boot(make_topology("x"), 7)
        other.note(make_test("a"), 4)
        other.note(make_test("b", "x"), 5)
        one.save()
        other.save()
        durations = Durations(self.path)
        self.assertEqual(durations.of(make_test("a")), 4)
        self.assertEqual(durations.of(make_test("b", "x")), 5)
        self.assertEqual(durations.of_boot(make_topology("x")), 7)

    def test_garbage(self) -> None:
        """A file that holds anything else is as good as none."""
        self.path.parent.mkdir()
        for text in ("", "[1]", '{"a": "b"}', '{"a": null}'):
            self.path.write_text(text)
            self.assertEqual(Durations(self.path).of(make_test("a")), TEST)
