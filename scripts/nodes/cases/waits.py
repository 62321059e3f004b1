# SPDX-License-Identifier: GPL-2.0
"""Processes that wait, for the device or for their memory, and others that do not wait for them.

No case asks how long something takes. Others do all that they want to, and the one that waits is
found waiting before and after.
"""

import signal
import time
from collections.abc import Callable

from .. import endpoints
from ..cluster import Cluster
from ..console import say
from ..endpoints import Endpoint
from ..errors import NodesError
from ..polling import wait_until
from .held import ATTEMPTS, TOO_LATE, Steps
from .registry import Skip, case, expect
from .stalled import health

TIMEOUT = 60.0
# What is to be done within a wait for the device is tried again if it came too late.
PATIENCE = 120.0
NO_CONTEXT = "none"
PROGRAM = "uldma_stuck"
# Page tables take memory, of which a node has little; one more than the workers of a device once.
ATTACKERS = {"fork": 3, "touch": 17, "pin": 17}
# Exit status of a program that the kernel lacks something for.
SKIPPED = 4
CONTEXTS = "grep -hs uldma-context: /proc/[0-9]*/fdinfo/* || true"
# A program that has lost its memory, and so is closing its files, and that waits.
EXITING = """
for status in /proc/[0-9]*/status; do
    awk '/^Name:.uldma$/ {name = 1} /^State:.D/ {waits = 1} /^VmSize:/ {memory = 1}
        END {exit !name || !waits || memory}' "$status" 2>/dev/null && echo "$status"
done; true
"""


def contexts(end: Endpoint) -> list[int]:
    """The contexts of all programs."""
    lines = end.node.check(CONTEXTS).split()
    return [int(number) for number in lines[1::2] if number != NO_CONTEXT]


def run_verb(end: Endpoint, verb: str) -> None:
    """Let the attacker's program do one thing that is no attack."""
    end.node.check(f"ULDMA_DEVICE={end.path} /kselftest/uldma/{PROGRAM} {verb}", TIMEOUT)


def use_context(end: Endpoint) -> None:
    """Make a context, take the faults of its pages, and end it."""
    run_verb(end, "context")


def exit_with_memory(end: Endpoint) -> None:
    """Exit with registered memory."""
    run_verb(end, "exit")


def transfer(end: Endpoint) -> None:
    """Take the faults of the pages of regions, too, and end these."""
    end.check("dma --size 4K --count 2 --timeout 30", TIMEOUT)


def time_of(step: Callable[[Endpoint], object], end: Endpoint) -> float:
    """Take a step; how long it took."""
    began = time.monotonic()
    step(end)
    return time.monotonic() - began


@case
def contexts_go_on_while_one_ends(pair: Cluster) -> None:
    """A process ends while the device uses its context; others make, use and end theirs."""
    device = pair.device
    assert device
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    undisturbed = time_of(use_context, a)

    def is_in_time() -> bool:
        before = health(a)["timeouts"]
        # The one that ends, and another one: the device makes progress, so that the wait lasts.
        users = [a.spawn("dma --size 64K --count 10000000 --timeout 100")]
        try:
            wait_until(lambda: len(contexts(a)) == 1, TIMEOUT, "a program has a context")
            [context] = contexts(a)
            users.append(a.spawn("dma --size 4K --count 10000000 --timeout 100"))
            wait_until(lambda: len(contexts(a)) == len(users), TIMEOUT, "both have contexts")
            device.hold(a.number, context)
            wait_until(lambda: bool(device.node(a.number)["held"]), TIMEOUT, "a chunk is held")
            users[0].kill()
            wait_until(
                lambda: bool(a.node.check(EXITING)) or health(a)["timeouts"] > before,
                TIMEOUT,
                "the end of the program waits for the device",
            )
            # All regions of the device would end later than the chunk, but contexts need not.
            beside = time_of(use_context, a)
            waits = users[0].running and health(a)["timeouts"] == before
        except NodesError:
            waits = False
            # The device was given up before, and nothing works until it is well.
            if health(a)["timeouts"] == before:
                raise
        finally:
            device.release(a.number)
            for user in users:
                user.end()
        if waits:
            say(f"a context: {undisturbed:.2f} s, {beside:.2f} s while another one ends")
        wait_until(lambda: health(a)["sick"] == 0, TIMEOUT, "the device is well")
        return waits

    wait_until(is_in_time, PATIENCE, "others use contexts while the end of one waits")
    a.node.check(a.unbind(), TIMEOUT)
    endpoints.wait_up((a, b))


def open_devices(end: Endpoint) -> None:
    """Open the device, and another one, of all those that are opened under one lock."""
    end.node.check(f": <>{end.path} && : </dev/cpu_dma_latency", TIMEOUT)


def rebind_driver(end: Endpoint) -> None:
    """Take the device away from the driver, and give it back."""
    for command in end.binding():
        end.node.check(command, TIMEOUT)


STEPS = (open_devices, exit_with_memory, use_context, transfer, rebind_driver)


def times_beside(end: Endpoint, attack: str) -> list[float] | None:
    """Take all steps beside an attack; their times, or None if it ended before."""
    steps = Steps(end, PROGRAM, f"{attack} {ATTACKERS[attack]}")
    times = []
    try:
        steps.job.wait_output("locked 1", PATIENCE)
        began = time.monotonic()
        for number, step in enumerate(STEPS, 2):
            if not steps.job.running:
                break
            times.append(time_of(step, end))
            steps.go_on()
            steps.job.wait_output(f"locked {number}", TIMEOUT)
        lasted = time.monotonic() - began
        steps.job.kill(signal.SIGTERM)
        result = steps.job.wait(TIMEOUT)
    finally:
        steps.job.end()
    if result.rc == SKIPPED:
        raise Skip(f"the kernel has not what it takes to {attack}")
    expect(result.rc in (0, TOO_LATE), f"exit {result.rc}\n{result.stdout}{result.stderr}")
    if result.rc:
        return None
    say(f"{attack}: {ATTACKERS[attack]} address spaces locked for all of {lasted:.2f} s")
    return times


def others_go_on(pair: Cluster, attack: str) -> None:
    """Others do all that they want to while processes cannot change their address spaces."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    undisturbed = [time_of(step, a) for step in STEPS]
    endpoints.wait_up((a, b))
    for _ in range(ATTEMPTS):
        beside = times_beside(a, attack)
        endpoints.wait_up((a, b))
        if beside is not None:
            break
    expect(beside is not None, "no attack has lasted for as long as the others needed")
    for step, before, during in zip(STEPS, undisturbed, beside or (), strict=True):
        say(f"{attack}: {step.__name__}: {before:.2f} s, {during:.2f} s beside the attack")


@case
def slow_forks_delay_no_others(pair: Cluster) -> None:
    """Processes fork for minutes, in a control group that makes them wait for their memory."""
    others_go_on(pair, "fork")


@case
def pages_that_never_come_delay_no_others(pair: Cluster) -> None:
    """Processes read pages of a file whose server does not answer."""
    others_go_on(pair, "touch")


@case
def pins_that_never_end_delay_no_others(pair: Cluster) -> None:
    """Processes register pages of a file whose server does not answer."""
    others_go_on(pair, "pin")
