# SPDX-License-Identifier: GPL-2.0
"""The adapter is taken from the kernel, found again, and reset, all of it under load.

The machine keeps it: QEMU 11.1 ends by an assertion of its own when a vfio-user device is deleted.
"""

from dataclasses import replace

from .. import ends, leftovers
from ..cluster import Cluster
from ..ends import End
from ..load import Load, works
from .registry import case

TIMES = 3
TIMEOUT = 60.0


def place_of(end: End) -> str:
    """Where sysfs has the adapter."""
    return end.node.check(f"readlink -f /sys/class/misc/uldma{end.device}/device").strip()


@case
def removed_and_found(pair: Cluster) -> None:
    """The driver lets go in time, leaves nothing behind, and takes the device when it is back."""
    for _ in range(TIMES):
        a, b = ends.of(pair)
        ends.wait_up((a, b))
        with Load(a, b) as load:
            load.wait_flow()
            a.node.check(f"echo 1 >{place_of(a)}/remove && ! test -e {a.path}", TIMEOUT)
            load.expect_witness()
            load.stop()
            a.node.check(f"echo 1 >/sys/bus/pci/rescan && test -c {a.path}", TIMEOUT)
            load.expect_witness()
        works(pair)


@case
def reset_by_sysfs(pair: Cluster) -> None:
    """What the administrator resets works again at the latest when the driver is bound anew."""
    config = replace(pair.config, port=True)
    with Cluster(f"{pair.scenario}-port", config) as nodes:
        for _ in range(TIMES):
            a, b = ends.of(nodes)
            ends.wait_up((a, b))
            with Load(a, b) as load:
                load.wait_flow()
                a.node.check(f"echo 1 >{place_of(a)}/reset", TIMEOUT)
                load.expect_witness()
                load.stop()
                again = a.unbind()
                a.node.check(again, TIMEOUT)
                load.expect_witness()
            works(nodes)
            nodes.check_logs()
        leftovers.check(nodes)
