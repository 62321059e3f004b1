# SPDX-License-Identifier: GPL-2.0
"""A node sleeps, and its adapter has lost everything when it is awake."""

from .. import endpoints, leftovers
from ..cluster import Cluster
from ..kernel import DEBUG
from ..load import works
from ..polling import wait_until
from .registry import Skip, case, expect
from .stalled import health
from .unplug import resets_in_log

TIMEOUT = 60.0
HOLDER = "/kselftest/uldma/uldma_asleep"


@case
def suspended_and_resumed(pair: Cluster) -> None:
    """Programs are told, and find the adapter again, which the driver has set up anew by itself."""
    if DEBUG:
        raise Skip("the debug kernel cannot be suspended")
    with Cluster(f"{pair.scenario}-sleep", pair.config) as nodes:
        a, b = endpoints.of(nodes)
        endpoints.wait_up((a, b))
        holder = a.node.spawn(HOLDER)
        holder.wait_output("ready", TIMEOUT)
        expect(holder.running, f"the process does not hold the device: {holder.text()}")
        job = a.node.sleep()
        endpoints.wait_down(b, a)
        a.node.wake()
        job.wait(TIMEOUT)
        told = holder.wait(TIMEOUT)
        expect(told.rc == 0, f"exit {told.rc}\n{told.stdout}{told.stderr}")
        wait_until(lambda: not a.node.run(f"test -c {a.path}").rc, TIMEOUT, "the device is there")
        found = health(a)
        expect(found["reset"] == 0 and found["sick"] == 0, f"the device is new: {found}")
        works(nodes)
        expect(resets_in_log(a) == 0, "the driver has found a reset that it was to do itself")
        nodes.check_logs()
        leftovers.check(nodes)
