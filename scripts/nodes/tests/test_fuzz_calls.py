# SPDX-License-Identifier: GPL-2.0
"""The calls that uldma_fuzz knows, held against the header."""

import re
import unittest

from ..paths import REPO

HEADER = (REPO / "include/uapi/linux/uldma.h").read_text()
CALLS = (REPO / "tools/testing/selftests/uldma/uldma_fuzz_calls.c").read_text()


class EveryCall(unittest.TestCase):
    """The numbers of the header."""

    def test_is_in_the_table(self) -> None:
        """A number that is not there is taken for one that fails with ENOTTY."""
        numbers = re.findall(r"^\t(ULDMA_CMD_\w+) = 0x", HEADER, re.MULTILINE)
        self.assertGreater(len(numbers), 40)
        self.assertEqual(sorted(numbers), sorted(re.findall(r"ULDMA_CMD_\w+", CALLS)))
