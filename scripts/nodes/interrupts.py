# SPDX-License-Identifier: GPL-2.0
"""The interrupts of a node, as /proc/interrupts counts them."""

import re

from .node import Node


def counts(node: Node, handler: str) -> dict[int, int]:
    """How often each interrupt that has a handler of this name has interrupted, by its number."""
    found = {}
    for line in node.check("cat /proc/interrupts").splitlines():
        match = re.match(rf"^ *(\d+):((?: +\d+)+) .* {re.escape(handler)}$", line)
        if match:
            found[int(match[1])] = sum(map(int, match[2].split()))
    return found
