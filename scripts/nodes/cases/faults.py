# SPDX-License-Identifier: GPL-2.0
"""A device that lies, under load: its node's kernel is well, and other nodes notice nothing."""

from collections.abc import Callable

from .. import endpoints
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..leftovers import pins
from ..load import Load, works
from ..polling import wait_until
from .registry import case, expect

TIMEOUT = 60.0
# Exit status of `uldma`.
FAILED = 1
TIMED_OUT = 4
MISMATCH = 5
# The driver may say once of each object what becomes of it. The load has fewer objects than this,
# and thousands of transfers.
MOST_LINES = 100
# Of which many are a process's.
REGIONS = 200
PROCESSES = 20

EndpointStep = Callable[[Endpoint], None]


def driver_log(end: Endpoint) -> list[str]:
    """The driver's messages about the device so far."""
    return end.node.check("dmesg | grep -E ' uldma [0-9a-f]{4}:' || true").splitlines()


def transfer(end: Endpoint, options: str = "", timeout: int = 3) -> int:
    """Let a program transfer something; its exit status."""
    command = f"dma --size 64K --count 4 --timeout {timeout} {options}"
    return end.node.run(end.command(command), TIMEOUT).rc


def ends_with(*statuses: int) -> EndpointStep:
    """Programs that transfer end with one of these."""

    def effect(a: Endpoint) -> None:
        found = transfer(a)
        expect(found in statuses, f"a transfer ended with {found} instead of {statuses}")

    return effect


def no_recovery(_: Endpoint) -> None:
    """Do nothing: the device recovers by itself."""


def rebind(end: Endpoint) -> None:
    """Let the driver begin anew."""
    again = end.unbind()
    end.node.check(again, TIMEOUT)


def run_with_fault(
    pair: Cluster, kind: str, effect: EndpointStep, recover: EndpointStep
) -> list[str]:
    """Run a load while node a's device has a fault, then recover; returns the driver's log."""
    assert pair.device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = len(driver_log(a))
    with Load(a, b) as load:
        load.wait_flow()
        with pair.device.fault(kind, a.number):
            effect(a)
            load.expect_witness()
        load.stop()
        recover(a)
        load.expect_witness()
    lines = driver_log(a)[before:]
    say(f"{kind}: the driver has said {len(lines)} lines")
    some = "\n".join(lines[:5])
    expect(len(lines) <= MOST_LINES, f"{kind}: {len(lines)} lines in the log:\n{some}")
    works(pair)
    return lines


@case
def no_memory_answers(pair: Cluster) -> None:
    """Transfers fail, and the driver says why."""

    def effect(a: Endpoint) -> None:
        expect(transfer(a) not in (0, TIMED_OUT), "a transfer without memory did not fail")
        wait_until(
            lambda: any("bus address" in line for line in driver_log(a)), TIMEOUT, "a message"
        )

    run_with_fault(pair, "bus-error", effect, no_recovery)


@case
def no_completion_comes(pair: Cluster) -> None:
    """A waiting call returns an error when its time is over."""
    run_with_fault(pair, "drop-completion", ends_with(TIMED_OUT), rebind)


@case
def completions_are_forged(pair: Cluster) -> None:
    """Tickets that were never given out complete nothing, and programs report what they find."""

    def effect(a: Endpoint) -> None:
        for options in ("", "--method kernel"):
            found = transfer(a, options)
            expect(found == FAILED, f"a transfer {options} ended with {found}")

    run_with_fault(pair, "forge-completion", effect, rebind)


@case
def no_interrupt_comes(pair: Cluster) -> None:
    """The driver's own clock wakes a sleeping call, of the driver or of a context."""

    def effect(a: Endpoint) -> None:
        for options in ("", "--method kernel"):
            found = transfer(a, options, 30)
            expect(found == 0, f"a transfer {options} ended with {found}")

    run_with_fault(pair, "drop-interrupt", effect, no_recovery)


@case
def data_arrives_changed(pair: Cluster) -> None:
    """Only a program that checks its data notices, and later data is right."""
    run_with_fault(pair, "corrupt", ends_with(MISMATCH), no_recovery)


@case
def registers_read_ones(pair: Cluster) -> None:
    """What the driver cannot know, it does not believe; binding anew mends it."""

    def effect(a: Endpoint) -> None:
        for options in ("", "--method kernel"):
            found = transfer(a, options)
            expect(found == TIMED_OUT, f"a transfer {options} ended with {found}")

    run_with_fault(pair, "ones", effect, rebind)


@case
def one_line_for_all_objects(pair: Cluster) -> None:
    """Hundreds of regions stay with a device that does not answer; the log has one line of it."""
    assert pair.device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before, pinned = len(driver_log(a)), pins(a.node)
    register = a.command(f"register --size 4K --times {REGIONS // PROCESSES}")
    with pair.device.fault("stall", a.number):
        # Each region is unregistered by itself, or by the end of its process, and none of it works.
        a.node.check(f"for i in $(seq {PROCESSES}); do ! {register} || exit 1; done", TIMEOUT)
        lines = driver_log(a)[before:]
        expect(pins(a.node) > pinned, "memory that the device may use was unpinned")
    expect(len(lines) == 1, f"{REGIONS} regions: {len(lines)} lines:\n" + "\n".join(lines[:5]))
    expect("does not answer" in lines[0], f"not what was to be said: {lines[0]}")
    wait_until(lambda: len(driver_log(a)) > before + 1, TIMEOUT, "a message of the answer")
    lines = driver_log(a)[before + 1 :]
    expect("answers again" in lines[0] and len(lines) == 1, "\n".join(lines))
    rebind(a)
    expect(pins(a.node) == pinned, "unbinding left pins")
    works(pair)


@case
def the_function_is_gone(pair: Cluster) -> None:
    """The card is pulled by surprise; the kernel releases it, and finds another one later."""

    def effect(a: Endpoint) -> None:
        expect(transfer(a) != 0, "a transfer without a device ended well")
        place = a.node.check(f"readlink -f /sys/class/misc/uldma{a.device}/device").strip()
        a.node.check(f"echo 1 >{place}/remove && ! test -e {a.path}", TIMEOUT)

    def find(a: Endpoint) -> None:
        a.node.check(f"echo 1 >/sys/bus/pci/rescan && test -c {a.path}", TIMEOUT)

    run_with_fault(pair, "gone", effect, find)


@case
def the_device_is_another(pair: Cluster) -> None:
    """A driver that is bound goes on; one that is to be bound refuses, and says so."""
    assert pair.device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = len(driver_log(a))
    with Load(a, b) as load:
        load.wait_flow()
        with pair.device.fault("bad-id", a.number):
            expect(transfer(a) == 0, "a device that was known before does not work")
            load.stop()
            again = a.unbind()
            expect(a.node.run(again).rc != 0, "the driver has taken what is no adapter")
            load.expect_witness()
        a.node.check(again)
        load.expect_witness()
    lines = [line for line in driver_log(a)[before:] if "not an uldma adapter" in line]
    expect(len(lines) == 1, f"{len(lines)} times: not an uldma adapter")
    works(pair)
