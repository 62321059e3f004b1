# SPDX-License-Identifier: GPL-2.0
"""Tests of the report of perftest, which is not always JSON."""

import unittest

from ..commands.soft_roce import numbers

REPORT = """{
"test_info": {
"Device": "rxe0",
"Mtu": 1024
},
"results": {
"MsgSize": 64,
"t_max": 136238.02,
"t_stdev": -nan,
"t_avg": nan,
"percentile_99.9": 0.50
}
}
"""


class NumbersTest(unittest.TestCase):
    """What is a number in a report."""

    def test_what_is_none_is_left_out(self) -> None:
        """Other words, and the quotients of nothing, are no figures."""
        self.assertEqual(
            numbers(REPORT),
            {"Mtu": 1024.0, "MsgSize": 64.0, "t_max": 136238.02, "percentile_99.9": 0.5},
        )
