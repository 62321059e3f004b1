# SPDX-License-Identifier: GPL-2.0
"""The module of a node: when it can go, and that it comes back."""

from .node import Node
from .polling import wait_until

# A process that was killed holds the device until its memory is gone.
IDLE_TIMEOUT = 10.0


def unload(node: Node) -> None:
    """Unload the module as soon as no process uses it any more."""
    wait_until(
        lambda: node.check("cat /sys/module/uldma/refcnt").strip() == "0",
        IDLE_TIMEOUT,
        f"node {node.name}: the module is not in use",
    )
    node.check("rmmod uldma && ! test -e /dev/uldma0")


def reload(node: Node, options: str = "") -> None:
    """Load the module anew, with these parameters."""
    unload(node)
    node.check(f"modprobe uldma {options} && test -c /dev/uldma0")
