# SPDX-License-Identifier: GPL-2.0
"""Which tests a pattern (ONLY=) selects."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Selection:
    """Tests of one flavour, that is, a way to boot the nodes; the usual one has no name.

    Tests of another flavour are called FLAVOUR/NAME. The name of a test alone does not select it
    there too: that would make every short run a long one.
    """

    pattern: re.Pattern[str]
    flavour: str = ""

    def full_name(self, name: str) -> str:
        """What a test is called."""
        return f"{self.flavour}/{name}" if self.flavour else name

    def __contains__(self, name: str) -> bool:
        if not self.pattern.pattern:
            return True
        plain = bool(self.pattern.search(name))
        if not self.flavour:
            return plain
        return not plain and bool(self.pattern.search(self.full_name(name)))
