# SPDX-License-Identifier: GPL-2.0
"""A device that is slow between finding an address and using it."""

from .. import endpoints
from ..cluster import Cluster
from ..device import Device
from ..polling import wait_until
from .registry import case, expect

PORT = 740
FIFO = "/tmp/held"
TIMEOUT = 60.0


def pending(device: Device, node: int) -> bool:
    """Whether the driver waits for the device."""
    return bool(device.node(node)["invalidations_pending"])


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
