# SPDX-License-Identifier: GPL-2.0
"""A device that is slow between finding an address and using it."""

import re
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


ATTEMPTS = 10
# More than half of them find one.
LATE_ATTEMPTS = 40
# Whose words a late access takes to another place: a read the owner's, a write its own.
OWNER, PEER = 1, 2
# How a program ends that the machine was too slow for.
TOO_LATE = 2


def pending(device: Device, node: int) -> bool:
    """Whether the driver waits for the device."""
    state = device.node(node)
    return bool(state["invalidations_pending"] or state["invalidations_queued"])


class Steps:
    """A program that says what it has done, and waits until it may go on."""

    def __init__(self, at: Endpoint, program: str, arguments: str = "") -> None:
        self.node = at.node
        self.program = program
        at.node.check(f"rm -f {FIFO}; mkfifo {FIFO}")
        self.job = at.node.spawn(f"exec /kselftest/uldma/{program} {FIFO} {arguments}")

    def done(self, what: str) -> None:
        """Wait until it has done something, by the word that it prints then."""
        self.job.wait_output(what, TIMEOUT)
        errors = self.job.text("err")
        expect(self.job.running, f"{self.program} has ended before: {what}\n{errors}")

    def go_on(self) -> None:
        """Let it take the next step."""
        self.node.check(f"echo >{FIFO}", TIMEOUT)


def hold_the_transfer(device: Device, node: int, steps: Steps) -> None:
    """Hold the transfer that a program starts next, and let it take the step after that."""
    device.hold(node)
    steps.go_on()
    steps.done("started")
    wait_until(lambda: bool(device.node(node)["held"]), TIMEOUT, "a chunk is held")
    steps.go_on()


def waits_for_the_transfer(device: Device, node: int, steps: Steps) -> None:
    """Hold the transfer that a program starts next: its memory comes back only after that."""
    hold_the_transfer(device, node, steps)
    wait_until(
        lambda: "returned" in steps.job.text() or pending(device, node),
        TIMEOUT,
        "the memory comes back or the driver waits for the device",
    )
    early = "returned" in steps.job.text()
    device.release(node)
    steps.done("returned")
    wait_until(lambda: not device.node(node)["held"], TIMEOUT, "nothing is held")
    steps.go_on()
    result = steps.job.wait(TIMEOUT)
    expect(result.rc == 0, f"the memory was written to after it came back\n{result.stderr}")
    expect(not early, "the memory came back while the device could write to it")


@case
def full_queue_refuses(pair: Cluster) -> None:
    """A queue of a device that stands still refuses what has no room, and loses nothing."""
    device = pair.device
    assert device
    [a, _] = endpoints.of(pair)
    for how in ("kernel", "shadow"):
        steps = Steps(a, "uldma_full", how)
        try:
            steps.done("ready")
            device.hold(a.number)
            steps.go_on()
            steps.done("full")
            device.release(a.number)
            steps.go_on()
            result = steps.job.wait(TIMEOUT)
            expect(result.rc == 0, f"{how}: exit {result.rc}\n{result.stderr}")
        finally:
            device.release(a.number)
            steps.job.end()


@case
def buffer_comes_back_untouched(pair: Cluster) -> None:
    """A program gets a buffer back only when no transfer can write to its pages any more.

    The transfer names the page without a region, after the buffer's region was invalidated.
    """
    device = pair.device
    assert device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    steps = Steps(a, "uldma_held", str(PORT))
    peer = None
    try:
        steps.done("listening")
        steps.go_on()
        peer = b.spawn(f"connect {a.number} {PORT} --wait --timeout 60 </dev/zero >/dev/null")
        steps.done("filled")
        waits_for_the_transfer(device, a.number, steps)
    finally:
        device.release(a.number)
        steps.job.end()
        if peer:
            peer.end()


@case
def retracted_page_stays_retracted(pair: Cluster) -> None:
    """While the driver waits to free a page, no call makes the device use it for new transfers."""
    device = pair.device
    assert device
    a = endpoints.of(pair)[0]
    for _ in range(ATTEMPTS):
        steps = Steps(a, "uldma_held_exchange")
        try:
            steps.done("ready")
            hold_the_transfer(device, a.number, steps)
            steps.done("ending")
            wait_until(lambda: pending(device, a.number), TIMEOUT, "the driver waits")
            steps.go_on()
            steps.done("tried")
            device.release(a.number)
            steps.go_on()
            result = steps.job.wait(TIMEOUT)
        finally:
            device.release(a.number)
            steps.job.end()
        if result.rc != TOO_LATE:
            break
    expect(result.rc == 0, f"exit {result.rc}: a page that is freed was used\n{result.stderr}")


@case
def page_that_goes_is_not_written(pair: Cluster) -> None:
    """A process gets other memory only when no transfer can write to what was there."""
    device = pair.device
    assert device
    a = endpoints.of(pair)[0]
    steps = Steps(a, "uldma_held_optimistic")
    try:
        steps.done("ready")
        waits_for_the_transfer(device, a.number, steps)
    finally:
        device.release(a.number)
        steps.job.end()


@case
def page_goes_from_a_device_that_is_stuck(pair: Cluster) -> None:
    """Memory goes in bounded time, and the device that may write to it does no DMA any more."""
    device = pair.device
    assert device
    a = endpoints.of(pair)[0]
    place = a.node.check(f"readlink -f /sys/class/misc/uldma{a.device}/device").strip()
    steps = Steps(a, "uldma_held_optimistic")
    try:
        steps.done("ready")
        hold_the_transfer(device, a.number, steps)
        steps.done("returned")
        device.release(a.number)
        wait_until(lambda: not device.node(a.number)["held"], TIMEOUT, "nothing is held")
        steps.go_on()
        result = steps.job.wait(TIMEOUT)
        expect(result.rc == 0, f"other memory was written to\n{result.stderr}")
    finally:
        device.release(a.number)
        steps.job.end()
    driver = "/sys/bus/pci/drivers/uldma"
    address = place.rpartition("/")[2]
    a.node.check(f"echo {address} >{driver}/unbind && echo {address} >{driver}/bind", TIMEOUT)
    works(pair)


@case
def late_accesses_are_found(pair: Cluster) -> None:
    """A device that accesses memory again, after it has told that it does not, is found out.

    What it writes to may be the kernel's by then, so these nodes serve for nothing else.
    """
    program = "exec /kselftest/uldma/uldma_optimistic_stamps -v discarded"
    with Cluster(f"{pair.scenario}-late", pair.config) as nodes:
        assert nodes.device
        a = endpoints.of(nodes)[0]
        result = a.node.run(program, 3 * TIMEOUT)
        expect(result.rc == 0, f"exit {result.rc} without a fault\n{result.stderr}")
        found: set[int] = set()
        with nodes.device.fault("late", a.number):
            for _ in range(LATE_ATTEMPTS):
                result = a.node.run(program, 3 * TIMEOUT)
                words = re.findall(r"(?:read|write): .*: 0x([0-9a-f]+)", result.stderr)
                found |= {int(word, 16) >> 24 & 0xFF for word in words}
                if found >= {OWNER, PEER}:
                    break
        expect(OWNER in found, f"no late read was found\n{result.stderr}")
        expect(PEER in found, f"no late write was found\n{result.stderr}")


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
