# SPDX-License-Identifier: GPL-2.0
"""The adapter is taken from the kernel, found again, and reset, all of it under load.

The machine keeps it: QEMU 11.1 ends by an assertion of its own when a vfio-user device is deleted.
"""

from dataclasses import replace
from functools import partial

from .. import endpoints, leftovers
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..load import Load, works
from ..polling import wait_until
from .registry import case, expect
from .stalled import health

RESET = "adapter was reset"
TIMES = 3
TIMEOUT = 60.0


def place_of(end: Endpoint) -> str:
    """Where sysfs has the adapter."""
    return end.node.check(f"readlink -f /sys/class/misc/uldma{end.device}/device").strip()


def resets_in_log(end: Endpoint) -> int:
    """Returns the number of resets in the log of an endpoint's node."""
    return int(end.node.check(f"dmesg | grep -c '{RESET}' || true"))


def has_reset_in_log(end: Endpoint, times: int) -> bool:
    """Returns true if the log has so many resets."""
    return resets_in_log(end) >= times


def transfers(end: Endpoint) -> bool:
    """Whether a program transfers something now."""
    return not end.node.run(end.command("dma --size 64K --timeout 3"), TIMEOUT).rc


@case
def removed_and_found(pair: Cluster) -> None:
    """The driver lets go in time, leaves nothing behind, and takes the device when it is back."""
    for _ in range(TIMES):
        a, b = endpoints.of(pair)
        endpoints.wait_up((a, b))
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
    """What was reset does nothing, of which one line tells, until the driver is bound anew."""
    config = replace(pair.config, port=True)
    with Cluster(f"{pair.scenario}-port", config) as nodes:
        for times in range(1, TIMES + 1):
            a, b = endpoints.of(nodes)
            endpoints.wait_up((a, b))
            with Load(a, b) as load:
                load.wait_flow()
                a.node.check(f"echo 1 >{place_of(a)}/reset", TIMEOUT)
                wait_until(partial(has_reset_in_log, a, times), TIMEOUT, "the reset is told of")
                expect(health(a)["reset"] == 1, f"the device was reset: {health(a)}")
                load.expect_witness()
                # With all programs running, and none that ends before.
                again = a.unbind()
                a.node.check(again, TIMEOUT)
                expect(health(a)["reset"] == 0, f"the device is new: {health(a)}")
                wait_until(partial(transfers, a), TIMEOUT, "programs find the device again")
                load.expect_witness()
                load.stop()
            works(nodes)
            told = resets_in_log(a)
            expect(told == times, f"{times} resets, and {told} lines of them")
            nodes.check_logs()
        leftovers.check(nodes)


@case
def reset_while_sick(pair: Cluster) -> None:
    """A device that answers nothing is reset: that is told of, and it works once bound anew."""
    config = replace(pair.config, port=True)
    with Cluster(f"{pair.scenario}-port-sick", config) as nodes:
        assert nodes.device
        a, b = endpoints.of(nodes)
        endpoints.wait_up((a, b))
        with Load(a, b) as load:
            load.wait_flow()
            with nodes.device.fault("stall", a.number):
                wait_until(lambda: health(a)["sick"] == 1, TIMEOUT, "the device is sick")
                load.expect_witness()
            a.node.check(f"echo 1 >{place_of(a)}/reset", TIMEOUT)
            wait_until(partial(has_reset_in_log, a, 1), TIMEOUT, "the reset is told of")
            # What waited for the device before ends by its time-out, and calls it sick once more.
            a.node.check(a.unbind(), TIMEOUT)
            expect(health(a)["sick"] == 0, f"the device is new: {health(a)}")
            wait_until(partial(transfers, a), TIMEOUT, "programs find the device again")
            load.expect_witness()
            load.stop()
        works(nodes)
        nodes.check_logs()
        leftovers.check(nodes)
