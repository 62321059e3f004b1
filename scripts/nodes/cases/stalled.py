# SPDX-License-Identifier: GPL-2.0
"""A device that never answers."""

from collections.abc import Iterator
from contextlib import contextmanager

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..leftovers import pins
from ..polling import wait_until
from ..streams import send_file
from .held import TOO_LATE, Steps, hold_the_transfer
from .registry import case, expect

DRIVER = "/sys/bus/pci/drivers/uldma"
PROGRAM = "/kselftest/uldma/uldma_stalled_conn"
EXCHANGER = "uldma_stalled_exchange"
IMPORTER = "/kselftest/uldma/uldma_stalled_import"
UNBOUND = "/kselftest/uldma/uldma_stalled_unbind"
WAITER = "/kselftest/uldma/uldma_stalled_wait"
HEALTH = "cat /sys/kernel/debug/uldma0/health"
USAGE = "cat /sys/kernel/debug/uldma0/usage"
NAME = 0x7374616C
IMPORTS = 3
CONNECTIONS = 4
PORT = 784
# That of the program that accepts.
ACCEPTED = 783
SIZE = 65536
TIMEOUT = 60.0
# Waits that can be over at the same time: of the work items that close a file, that unpin its
# memory, and that end its connections.
WAITS = 3


def health(end: Endpoint) -> dict[str, int]:
    """What the driver says of how its device answers."""
    lines = end.node.check(HEALTH).splitlines()
    return {key: int(value) for key, value in (line.split() for line in lines)}


def usage(end: Endpoint, what: str) -> int:
    """How much of something the device has, by what the driver says."""
    lines = [line.split() for line in end.node.check(USAGE).splitlines()]
    [found] = [line[1] for line in lines if line[0] == what]
    return int(found)


def expect_paid(end: Endpoint) -> None:
    """The entries of the device's tables are charged to the user of the device, here root."""
    info = end.info()
    for what in ("regions", "pages"):
        there, paid = info[what], info["user"][what]
        expect(there == paid, f"{what}: {there} in the table, of which {paid} are paid for")


@contextmanager
def stalled(pair: Cluster, number: int) -> Iterator[None]:
    """The device of a node answers to nothing."""
    assert pair.device
    pair.device.control("stall", on=True, node=number)
    try:
        yield
    finally:
        pair.device.control("stall", on=False, node=number)


@case
def every_call_ends(pair: Cluster) -> None:
    """Calls end in bounded time, and pins stay until the driver is unbound."""
    expect(pair.device is not None, "there is no device")
    address = pair.a.check(f"ls {DRIVER} | grep :").strip()
    before = pins(pair.a)
    with stalled(pair, 0):
        result = pair.a.run("cd /kselftest/uldma && ./uldma_stalled", 120)
        expect(result.rc == 0, f"uldma_stalled: exit {result.rc}\n{result.stdout}{result.stderr}")
        expect(pins(pair.a) > before, "memory that the device may touch was unpinned")
        [end, _] = endpoints.of(pair)
        expect(end.info()["regions"] > 0, "a place that the device may use was given back")
        expect_paid(end)
        pair.a.check(f"echo {address} >{DRIVER}/unbind", 60)
        expect(pins(pair.a) == before, "unbinding left pins")
    pair.a.check(f"echo {address} >{DRIVER}/bind && test -c /dev/uldma0")
    output = pair.a.check("cd /kselftest/uldma && ./uldma_dma -t sizes")
    expect("fail:0" in output, f"no transfers after the device came back:\n{output}")


@case
def one_wait_for_all(pair: Cluster) -> None:
    """A process is killed with hundreds of buffers: one wait, and the device may come back."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = health(a)
    server = b.node.spawn(f"{PROGRAM} accept {CONNECTIONS}")
    server.wait_output("ready", TIMEOUT)
    process = a.node.spawn(f"ulimit -l unlimited; exec {PROGRAM} post {CONNECTIONS} {b.number + 1}")
    process.wait_output("posted", TIMEOUT)
    expect(process.running, f"nothing was posted: {process.text('err')}")
    try:
        with stalled(pair, a.number):
            process.end()
            wait_until(lambda: a.info()["connections"] == 0, TIMEOUT, "the connections are gone")
            waits = health(a)["timeouts"] - before["timeouts"]
            expect(1 <= waits <= WAITS, f"the device was waited for {waits} times")
            expect(health(a)["sick"] == 1, f"the device answers? {health(a)}")
            expect_paid(a)
    finally:
        server.end()
    wait_until(lambda: health(a)["sick"] == 0, TIMEOUT, "the device is well again")
    send_file(a, b, PORT, SIZE)
    send_file(b, a, PORT, SIZE)
    # What the device may have touched stays pinned until then.
    a.node.check(a.unbind(), TIMEOUT)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, SIZE)


@case
def imports_stay(pair: Cluster) -> None:
    """A process is killed that has nothing but imports.

    Its number, the places that it had and what it paid for them stay with the device until the
    driver is unbound.
    """
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    exporter = b.spawn(f"export {NAME:#x} --size {SIZE}")
    exporter.wait_output("exporting", TIMEOUT)
    expected = {"spaces": usage(a, "spaces"), "regions": usage(a, "regions")}
    try:
        # One by one, and all at once.
        for count in (1, IMPORTS):
            importer = a.node.spawn(f"{IMPORTER} {NAME:#x} {b.number + 1} {count}")
            importer.wait_output("imported", TIMEOUT)
            expect_paid(a)
            with stalled(pair, a.number):
                importer.end()
                wait_until(lambda: usage(a, "open_files") == 0, TIMEOUT, "the open file is gone")
            wait_until(lambda: health(a)["sick"] == 0, TIMEOUT, "the device is well again")
            expected["spaces"] += 1
            expected["regions"] += count
            for what, value in expected.items():
                found = usage(a, what)
                expect(found == value, f"{count} imports: {found} {what} instead of {value}")
            expect_paid(a)
    finally:
        exporter.end()
    a.node.check(a.unbind(), TIMEOUT)
    endpoints.wait_up((a, b))
    expect(usage(a, "spaces") == 0, "spaces are left of a device that was unbound")
    expect_paid(a)


@case
def calls_on_other_memory_go_on(pair: Cluster) -> None:
    """An exchange of pages waits for the device, and other calls on the file do not wait for it."""
    go_on_while_one_waits(pair)


@case
def the_end_of_memory_waits_without_the_lock(pair: Cluster) -> None:
    """All memory ends while an exchange of its pages waits for the device.

    The end waits for that call, and queries of the process's locked memory do not wait for it.
    """
    go_on_while_one_waits(pair, "cleanup")


@case
def calls_on_the_same_memory_wait_whatever_signals_come(pair: Cluster) -> None:
    """An exchange of pages waits for the device, and one of the same pages for its end."""
    go_on_while_one_waits(pair, "signals")


@case
def stopping_a_process_prolongs_no_call(pair: Cluster) -> None:
    """A process waits in all calls that have a time-out, is stopped and continued, and they end."""
    a, b = endpoints.of(pair)

    def is_in_time() -> bool:
        endpoints.wait_up((a, b))
        server = b.node.spawn(f"{PROGRAM} accept 1")
        server.wait_output("ready", TIMEOUT)
        a.node.check("rm -f /tmp/lines && mkfifo /tmp/lines")
        waiter = a.node.spawn(f"{WAITER} {b.number + 1} {ACCEPTED} <>/tmp/lines")
        try:
            waiter.wait_output("ready", TIMEOUT)
            b.node.freeze()
            try:
                with stalled(pair, a.number):
                    a.node.check("echo >/tmp/lines")
                    waiter.wait_output("ended", TIMEOUT)
            finally:
                b.node.thaw()
            a.node.check("echo >/tmp/lines")
            result = waiter.wait(TIMEOUT)
        finally:
            waiter.end()
            server.end()
        expect(result.rc in (0, TOO_LATE), f"exit {result.rc}\n{result.stdout}{result.stderr}")
        return result.rc == 0

    wait_until(is_in_time, TIMEOUT, "calls end while the link is up")


def go_on_while_one_waits(pair: Cluster, how: str = "") -> None:
    """Has an exchange wait for the device until the program's other calls were in time."""
    device = pair.device
    assert device
    a, b = endpoints.of(pair)

    def is_in_time() -> bool:
        steps = Steps(a, EXCHANGER, how)
        try:
            steps.done("ready")
            hold_the_transfer(device, a.number, steps)
            result = steps.job.wait(TIMEOUT)
        finally:
            device.release(a.number)
            steps.job.end()
        expect(result.rc in (0, TOO_LATE), f"exit {result.rc}\n{result.stdout}{result.stderr}")
        wait_until(lambda: health(a)["sick"] == 0, TIMEOUT, "the device is well again")
        return result.rc == 0

    wait_until(is_in_time, TIMEOUT, "other calls end while one waits for the device")
    a.node.check(a.unbind(), TIMEOUT)
    endpoints.wait_up((a, b))


@case
def unbind_ends_while_calls_wait(pair: Cluster) -> None:
    """The driver is unbound while a context ends, and memory of the same address space does."""
    a, b = endpoints.of(pair)

    def is_in_time() -> bool:
        unbind, bind = a.binding()
        with stalled(pair, a.number):
            job = a.node.spawn(UNBOUND)
            job.wait_output("ending the context", TIMEOUT)
            a.node.check(unbind, TIMEOUT)
            result = job.wait(TIMEOUT)
        expect(result.rc in (0, TOO_LATE), f"exit {result.rc}\n{result.stdout}{result.stderr}")
        a.node.check(bind, TIMEOUT)
        endpoints.wait_up((a, b))
        return result.rc == 0

    wait_until(is_in_time, TIMEOUT, "the driver is unbound while a call waits for the device")
