# SPDX-License-Identifier: GPL-2.0
"""Numbers in the documentation that the source has, too."""

import re
import unittest
from pathlib import Path

from ..paths import REPO

DOCUMENTS = REPO / "Documentation/uldma"
HARDWARE = REPO / "drivers/uldma/hw"


def constant(path: Path, name: str) -> int:
    """A constant of the driver."""
    found = re.search(rf"const {name}: u32 = (\d+);", path.read_text())
    assert found, name
    return int(found[1])


class ContextsTest(unittest.TestCase):
    """How many contexts there are."""

    def test_overview(self) -> None:
        """The overview has the numbers."""
        every = constant(HARDWARE / "layout.rs", "DEFAULT_CONTEXTS")
        kernel = 1 + constant(HARDWARE / "adapter.rs", "KERNEL_QUEUES")
        text = " ".join((DOCUMENTS / "overview.rst").read_text().split())
        self.assertIn(f"the model has {every} unless", text)
        self.assertIn(f"The kernel keeps {kernel} of them", text)
        self.assertIn(f"so that {every - kernel} are left for programs", text)

    def test_others(self) -> None:
        """No other document repeats them."""
        default = re.compile(r"contexts[^.;|]{0,20}by default|contexts per device \(\d")
        for path in [REPO / "README.md", *DOCUMENTS.glob("*.rst")]:
            with self.subTest(path=path):
                self.assertNotRegex(path.read_text(), default)
