# SPDX-License-Identifier: GPL-2.0
"""What a run of tests says at its end."""

import time
import unittest
from unittest import mock

from ..commands import test as command
from ..outcome import Outcome, Report


class SummaryTest(unittest.TestCase):
    """The lines that a person reads first."""

    def test_failures_have_their_cause(self) -> None:
        """A log may be kept from its end on only: the cause is beside the name, the totals last."""
        report = Report(mock.Mock())
        outcome = Outcome("nodes:leftovers")
        lines = [f"line {number}" for number in range(command.LAST_LINES + 1)]
        outcome.fail("nodes:leftovers", "\n".join(lines))
        outcome.counts.add_fail("program: case")
        report.add(outcome)
        with mock.patch.object(command, "write") as write, mock.patch.object(command, "say"):
            command.print_summary(report, time.monotonic())
        said = [call.args[0] for call in write.call_args_list]
        first = said.index("FAILED: nodes:leftovers")
        self.assertEqual(
            said[first + 1 : said.index("FAILED: program: case")],
            [f"    {line}" for line in lines[1:]],
        )
        self.assertEqual(said[-1], "0 passed, 2 failed, 0 skipped")
