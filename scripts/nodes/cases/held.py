# SPDX-License-Identifier: GPL-2.0
"""A device that is slow between finding an address and using it."""

from collections.abc import Callable
from dataclasses import replace

from .. import endpoints, leftovers
from ..cluster import Cluster
from ..device import Device
from ..endpoints import Endpoint
from ..leftovers import pins
from ..load import works
from ..polling import wait_until
from .registry import case, expect

PORT = 740
FIFO = "/tmp/held"
TIMEOUT = 60.0


def pending(device: Device, node: int) -> bool:
    """Whether the driver waits for the device."""
    state = device.node(node)
    return bool(state["invalidations_pending"] or state["invalidations_queued"])


@case
def buffer_comes_back_untouched(pair: Cluster) -> None:
    """A program gets a buffer back only when no transfer can write to its pages any more.

    The transfer names the page without a region, after the buffer's region was invalidated.
    """
    device = pair.device
    assert device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
    job = a.node.spawn(f"exec /kselftest/uldma/uldma_held {FIFO} {PORT}")

    def done(what: str) -> None:
        job.wait_output(what, TIMEOUT)
        expect(job.running, f"uldma_held has ended before: {what}\n{job.text('err')}")

    def go_on() -> None:
        a.node.check(f"echo >{FIFO}", TIMEOUT)

    peer = None
    try:
        done("listening")
        go_on()
        peer = b.spawn(f"connect {a.number} {PORT} --wait --timeout 60 </dev/zero >/dev/null")
        done("filled")
        device.hold(a.number)
        go_on()
        done("started")
        wait_until(lambda: bool(device.node(a.number)["held"]), TIMEOUT, "a chunk is held")
        go_on()
        wait_until(
            lambda: "returned" in job.text() or pending(device, a.number),
            TIMEOUT,
            "the buffer comes back or the driver waits for the device",
        )
        early = "returned" in job.text()
        device.release(a.number)
        done("returned")
        wait_until(lambda: not device.node(a.number)["held"], TIMEOUT, "nothing is held")
        go_on()
        result = job.wait(TIMEOUT)
        expect(result.rc == 0, f"the buffer was written to after it came back\n{result.stderr}")
        expect(not early, "the buffer came back while the device could write to it")
    finally:
        device.release(a.number)
        job.end()
        if peer:
            peer.end()


def end_while_waiting(pair: Cluster, command: str, has_begun: Callable[[Endpoint], bool]) -> None:
    """Take the device away while a process waits for the invalidation of its region."""
    device = pair.device
    assert device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = pins(a.node)
    place = a.node.check(f"readlink -f /sys/class/misc/uldma{a.device}/device").strip()
    device.hold(a.number)
    try:
        transfer = a.spawn("dma --size 4K --count 1 --timeout 5")
        wait_until(lambda: bool(device.node(a.number)["held"]), TIMEOUT, "a chunk is held")
        worker = a.spawn("register --size 4K")
        wait_until(lambda: pending(device, a.number), TIMEOUT, "the driver waits for the device")
        ending = a.node.spawn(f"cd {place} && {command}")
        wait_until(lambda: has_begun(a), TIMEOUT, "the device is taken away")
    finally:
        device.release(a.number)
    for job in (ending, worker, transfer):
        job.wait(TIMEOUT)
    driver = "/sys/bus/pci/drivers/uldma"
    address = place.rpartition("/")[2]
    a.node.check(f"test ! -e {place}/driver || echo {address} >{driver}/unbind", TIMEOUT)
    expect(pins(a.node) == before, "pins are left of a driver that is unbound")
    a.node.check(f"echo {address} >{driver}/bind && test -c {a.path}", TIMEOUT)
    works(pair)


@case
def unbound_while_a_process_waits(pair: Cluster) -> None:
    """The driver is unbound while an invalidation waits: both the process and unbinding end."""

    def is_unbinding(a: Endpoint) -> bool:
        return a.node.run(f"test ! -e {a.path}").rc == 0

    end_while_waiting(pair, "echo ${PWD##*/} >driver/unbind", is_unbinding)


@case
def reset_while_a_process_waits(pair: Cluster) -> None:
    """The device is reset while an invalidation waits, and has lost its queues: the wait ends."""
    with Cluster(f"{pair.scenario}-port-held", replace(pair.config, port=True)) as nodes:

        def is_reset(a: Endpoint) -> bool:
            assert nodes.device
            return not nodes.device.node(a.number)["held"]

        end_while_waiting(nodes, "echo 1 >reset", is_reset)
        nodes.check_logs()
        leftovers.check(nodes)
