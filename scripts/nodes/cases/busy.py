# SPDX-License-Identifier: GPL-2.0
"""A device that has much to do, which is not one that does not answer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from .held import pending
from .registry import case, expect
from .stalled import health

PROGRAM = "/kselftest/uldma/uldma_busy"
# Bytes per second: little for an adapter, so that queues of copies last for seconds.
BANDWIDTH = 64_000_000
ROUNDS = 20
TIMEOUT = 60.0
FLOOD_TIMEOUT = 300.0
# Seconds without progress after which a device does not answer, more than once.
LONG = 7.0
KERNEL = 0


def flood(a: Endpoint, b: Endpoint) -> None:
    """Keep the engine busy for a, and end connections meanwhile."""
    server = b.node.spawn(f"ulimit -l unlimited; exec {PROGRAM} serve")
    server.wait_output("ready", TIMEOUT)
    job = a.node.spawn(f"ulimit -l unlimited; exec {PROGRAM} flood {b.number + 1} {ROUNDS}")
    try:
        result = job.wait(FLOOD_TIMEOUT)
        expect(result.rc == 0, f"the flood has ended: {result.stderr}{server.text('err')}")
    finally:
        job.end()
        server.end()


@case
def a_flood_of_copies_is_no_failure(pair: Cluster) -> None:
    """A user floods the engine; the device stays well, and its memory comes back."""
    options = ["--bandwidth", str(BANDWIDTH)]
    with Cluster(f"{pair.scenario}-busy", pair.config, device_options=options) as busy:
        a, b = endpoints.of(busy)
        endpoints.wait_up((a, b))
        flood(a, b)
        found = health(a)
        expect(
            found["timeouts"] == 0 and found["kept_pages"] == 0,
            f"the device was called sick: {found}",
        )
        busy.check_logs()


@contextmanager
def held_beside_copies(pair: Cluster, a: Endpoint) -> Iterator[None]:
    """One chunk of a is held, so that invalidations wait; copies of another context go on."""
    device = pair.device
    assert device
    copies = a.node.spawn(f"ulimit -l unlimited; exec {PROGRAM} copy")
    copies.wait_output("copying", TIMEOUT)
    device.hold(a.number, KERNEL)
    transfer = a.spawn("dma --size 4K --count 1 --method kernel --timeout 60")
    try:
        wait_until(lambda: bool(device.node(a.number)["held"]), TIMEOUT, "a chunk is held")
        yield
    finally:
        device.release(a.number)
        transfer.end()
        copies.end()


def begin_waiting(pair: Cluster, a: Endpoint) -> Job:
    """Start a program that ends when an invalidation does."""
    device = pair.device
    assert device
    job = a.spawn("register --size 4K")
    wait_until(lambda: pending(device, a.number), TIMEOUT, "the driver waits for the device")
    return job


@case
def a_device_that_makes_progress_is_waited_for(pair: Cluster) -> None:
    """An invalidation takes longer than a device may be silent, and the device does other work."""
    device = pair.device
    assert device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = health(a)
    with held_beside_copies(pair, a):
        job = begin_waiting(pair, a)
        until = time.monotonic() + LONG
        wait_until(lambda: time.monotonic() > until, TIMEOUT, "a silent device were found")
        expect(pending(device, a.number), "the invalidation has ended")
        expect(health(a) == before, f"the device was called sick: {health(a)}, before {before}")
        device.release(a.number)
        result = job.wait(TIMEOUT)
        expect(result.rc == 0, f"the memory did not come back: {result.stderr}")
    expect(health(a) == before, f"the device was called sick: {health(a)}, before {before}")


@case
def progress_is_no_excuse_for_ever(pair: Cluster) -> None:
    """A device does other work and never ends an invalidation, until it is called sick.

    It is well again when it has ended that, although its queues are as full as before.
    """
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = health(a)
    device = pair.device
    assert device
    with held_beside_copies(pair, a):
        job = begin_waiting(pair, a)
        result = job.wait(TIMEOUT)
        expect(result.rc != 0, "the memory came back that the device may access")
        found = health(a)
        expect(found["sick"] == 1, f"the device is not sick: {found}")
        expect(found["timeouts"] == before["timeouts"] + 1, f"{found}, before {before}")
        expect(found["kept_pages"] > before["kept_pages"], f"{found}, before {before}")
        device.release(a.number)
        wait_until(lambda: health(a)["sick"] == 0, TIMEOUT, "the device is well again")
    a.node.check(a.unbind(), TIMEOUT)
    endpoints.wait_up((a, b))
