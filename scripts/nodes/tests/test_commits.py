# SPDX-License-Identifier: GPL-2.0
"""The check of the form of commits."""

import contextlib
import io
import unittest

from checks import commits

BODY = "\n\nIt says why.\n"


class CommitsTest(unittest.TestCase):
    """Messages and sizes of commits."""

    def assert_problem(self, expected: str, message: str, changed: int = 1) -> None:
        """There is one problem, and it is the expected one."""
        found = commits.problems(message, changed)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def test_good_ones(self) -> None:
        """Subjects that are right."""
        for subject in ("uldma: lib: do it", "uldma: do it", "ci: do it", "uldma: a/b.rs: do it"):
            with self.subTest(subject=subject):
                self.assertEqual(commits.problems(subject + BODY, 999), [])

    def test_subject(self) -> None:
        """Subjects that are wrong."""
        self.assert_problem("begin", "selftests: uldma: do it" + BODY)
        self.assert_problem("begin", "uldma:do it" + BODY)
        self.assert_problem("columns", "uldma: lib: " + "x" * 64 + BODY)

    def test_body(self) -> None:
        """A body is present, separated and wrapped."""
        self.assert_problem("no body", "uldma: lib: do it\n")
        self.assert_problem("blank", "uldma: lib: do it\nIt says why.\n")
        self.assert_problem("wrap", "uldma: lib: do it\n\n" + "word " * 16)

    def test_lines_that_cannot_be_wrapped(self) -> None:
        """Quoted output, tags and addresses may be longer."""
        long = "x" * 80
        for line in (f"    make {long}", f"Fixes: {long} {long}", f"https://{long}"):
            with self.subTest(line=line):
                self.assertEqual(commits.problems(f"ci: do it\n\nWhy.\n{line}\n", 1), [])

    def test_size(self) -> None:
        """A large commit is mechanical and says so."""
        self.assert_problem("split", "uldma: lib: do it" + BODY, 1000)
        self.assertEqual(commits.problems("uldma: move it\n\nMechanical.\n", 5000), [])

    def test_changed_lines(self) -> None:
        """Binary files count as none, renamed ones by what differs."""
        self.assertEqual(commits.changed_lines("3\t4\ta\n-\t-\tb.png\n1\t0\t{a => b}/c\n"), 8)

    def test_without_history(self) -> None:
        """An unknown base is said and skipped."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            self.assertEqual(commits.main(["0" * 40]), 0)
        self.assertIn("skipped: ", output.getvalue())
