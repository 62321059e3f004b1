# SPDX-License-Identifier: GPL-2.0
"""Remains of tests on a node that is no longer used: pins, locks, the driver's objects."""

import time

from .cluster import Cluster
from .errors import Defect
from .kernel import scaled
from .node import Node
from .polling import pause

# The last reference to a file may be dropped by a work item after its process is gone.
SETTLE_TIMEOUT = 5.0
PINS = "cat /proc/sys/vm/stat_refresh; grep nr_foll_pin_ /proc/vmstat"
LOCKS = "grep -E '^(Name|VmPin|VmLck):' /proc/[0-9]*/status 2>/dev/null"
USAGE = "grep -s . /sys/kernel/debug/uldma[0-9]*/usage /dev/null || true"
# Says why something may be left: what the device has not confirmed stays until it is unbound.
HEALTH = "grep -s ' [^0]' /sys/kernel/debug/uldma[0-9]*/health /dev/null || true"


def pins(node: Node) -> int:
    """How many pages are pinned, of whatever process."""
    counts = dict(line.split() for line in node.check(PINS).splitlines())
    return int(counts["nr_foll_pin_acquired"]) - int(counts["nr_foll_pin_released"])


def wait_unpinned(cluster: Cluster) -> None:
    """Wait until a test that has ended has no page pinned any more.

    The next one counts the pins of the whole machine, and none shall end while it does.
    """
    for name, node in cluster.nodes.items():
        began = time.monotonic()
        while left := pins(node):
            if time.monotonic() - began > scaled(SETTLE_TIMEOUT):
                raise Defect(f"{left} pages stay pinned on node {name}")
            pause(began)


def _held(node: Node) -> list[str]:
    """One line for each process with pinned or locked memory."""
    names: dict[str, str] = {}
    found = []
    # A process may end while it is looked at, so the exit status says nothing.
    for line in node.run(LOCKS).stdout.splitlines():
        path, key, value = line.split(":", 2)
        process = path.split("/")[2]
        if key == "Name":
            names[process] = value.strip()
        elif value.split()[0] != "0":
            found.append(f"process {process} ({names.get(process)}): {key} {value.strip()}")
    return found


def _used(node: Node) -> list[str]:
    """One line for each counter of the driver that is not zero."""
    found = []
    for line in node.check(USAGE).splitlines():
        path, _, counter = line.partition(":")
        if counter.split()[1] != "0":
            found.append(f"{path.split('/')[4]}: {counter}")
    return found


def find(node: Node) -> list[str]:
    """What is left on a node."""
    left = [*_held(node), *_used(node)]
    pinned = pins(node)
    if pinned:
        left.append(f"{pinned} pages pinned (nr_foll_pin_acquired - nr_foll_pin_released)")
    return left


def check(pair: Cluster) -> None:
    """Fail unless every node is as it was before the first test."""
    began = time.monotonic()
    deadline = began + scaled(SETTLE_TIMEOUT)
    while True:
        left = [f"node {name}: {what}" for name, node in pair.nodes.items() for what in find(node)]
        if not left:
            return
        if time.monotonic() > deadline:
            for name, node in pair.nodes.items():
                left += [f"node {name}: {line}" for line in node.check(HEALTH).splitlines()]
            raise Defect("left behind by the tests:\n" + "\n".join(left))
        pause(began)
