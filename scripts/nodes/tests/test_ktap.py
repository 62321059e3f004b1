# SPDX-License-Identifier: GPL-2.0
"""Counting results."""

import unittest

from ..ktap import TestCounts, without_successes

KSELFTEST = """TAP version 13
1..1
# selftests: uldma: dummy
# TAP version 13
# 1..4
# #  RUN           x.good ...
# #            OK  x.good
# ok 1 x.good
# ok 2 x.skipped # SKIP no peer
# not ok 3 x.bad
# not ok 4 x.known # TODO later
# # Totals: pass:1 fail:1 xfail:0 xpass:0 skip:1 error:0
not ok 1 selftests: uldma: dummy # exit=1
"""

KUNIT = """KTAP version 1
1..1
    KTAP version 1
    # Subtest: suite
    # module: x
    1..3
    ok 1 good
    not ok 2 bad
    ok 3 skipped # SKIP no reason
    # suite: pass:1 fail:1 skip:1 total:3
not ok 1 suite
"""

LIBTEST = """running 3 tests
test ring::wraps ... ok
test ring::slow ... ignored, takes an hour
test ring::bad ... FAILED

failures:

---- ring::bad stdout ----

thread 'ring::bad' panicked at src/ring.rs:7:9:
round 5


failures:
    ring::bad

test src/lib.rs - Ring (line 12) ... ok
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out
"""

FAILURE = """# #  RUN           x.bad ...
# # x.c:12:bad:Expected 0 (0) == 5 (5)
# #          FAIL  x.bad
# not ok 2 x.bad"""


class TestWithoutSuccesses(unittest.TestCase):
    """What a person needs to see of a program that failed."""

    def test_cases_that_passed_are_left_out(self) -> None:
        """The failed case stays with its own lines, and the lines of the program itself."""
        good = "# #  RUN           x.good ...\n# #            OK  x.good\n# ok 1 x.good"
        after = "# #  RUN           x.later ...\n# ok 3 x.later # SKIP no peer"
        end = "# # FAILED: 1 / 2 tests passed.\nnot ok 1 selftests: uldma: x # exit=1"
        self.assertEqual(
            without_successes("\n".join([good, FAILURE, after, end])), f"{FAILURE}\n{end}"
        )

    def test_what_was_cut_off_stays(self) -> None:
        """The lines of a case without a result say where the program crashed."""
        self.assertEqual(without_successes("# ok 1 a\n# #  RUN  b"), "# #  RUN  b")
        self.assertEqual(without_successes("killed"), "killed")


class TestCountsTest(unittest.TestCase):
    """What counts and what does not."""

    def test_ktap_counts_innermost_results(self) -> None:
        """The runner's own line for a program is not one more test."""
        counts = TestCounts()
        self.assertEqual(counts.add_ktap("p", KSELFTEST), 4)
        self.assertEqual(counts.closing_line(), "2 passed, 1 failed, 1 skipped")
        self.assertEqual(counts.failed, ["p: x.bad"])
        self.assertEqual(counts.skipped, [("p: x.skipped", "no peer")])

    def test_ktap_of_kunit(self) -> None:
        """A suite is not one more test either."""
        counts = TestCounts()
        self.assertEqual(counts.add_ktap("k", KUNIT), 3)
        self.assertEqual(counts.closing_line(), "1 passed, 1 failed, 1 skipped")

    def test_ktap_program_without_cases(self) -> None:
        """A program that only exits counts by the runner's line."""
        counts = TestCounts()
        self.assertEqual(counts.add_ktap("p", "TAP version 13\n1..1\nok 1 selftests: u: p\n"), 1)
        self.assertEqual(counts.passed, 1)

    def test_ktap_crash(self) -> None:
        """No result at all is told to the caller."""
        self.assertEqual(TestCounts().add_ktap("p", "Segmentation fault\n"), 0)

    def test_libtest(self) -> None:
        """Unit and documentation tests of cargo."""
        counts = TestCounts()
        self.assertEqual(counts.add_libtest(LIBTEST), 4)
        self.assertEqual(counts.closing_line(), "2 passed, 1 failed, 1 skipped")
        self.assertEqual(counts.skipped, [("ring::slow", "takes an hour")])
        panic = "thread 'ring::bad' panicked at src/ring.rs:7:9:\nround 5"
        self.assertEqual(counts.troubles, {"ring::bad": panic})

    def test_merge(self) -> None:
        """All that another has counted is added; tests that were left out are skipped ones."""
        counts, other = TestCounts(), TestCounts()
        counts.add_pass()
        other.add_ktap("p", KSELFTEST)
        other.leave_out(3, "no time")
        other.leave_out(0, "never said")
        other.add_fail("q", "not within 5 s")
        counts.merge(other)
        self.assertEqual(counts.closing_line(), "3 passed, 2 failed, 4 skipped")
        self.assertEqual(counts.total, 9)
        self.assertEqual(counts.troubles, {"q": "not within 5 s"})
        self.assertEqual(counts.left_out, [(3, "no time")])
