# SPDX-License-Identifier: GPL-2.0
"""Streams that the device matches, when they end early: both sides are told, and nothing stays."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..polling import wait_until
from ..topologies import USUAL
from .registry import case_of, expect

PORT = 905
START_TIMEOUT = 60.0
TIMEOUT = 120.0
# Of a program that was ended by the signal.
BUS_ERROR = 128 + signal.SIGBUS
# What a device has in use, and what of it the user pays for.
COUNTED = ("connections", "contexts_used", "regions", "pages", "window_used")
OF_USER = ("connections", "contexts", "endpoints", "pages", "regions", "window")


def used(*ends: Endpoint) -> list[list[int]]:
    """Return what is in use at each end."""
    infos = [end.info() for end in ends]
    return [
        [info[name] for name in COUNTED] + [info["user"][name] for name in OF_USER]
        for info in infos
    ]


@contextmanager
def flowing(a: Endpoint, b: Endpoint, how: str = "drain") -> Iterator[tuple[Job, Job]]:
    """Let a matched stream flow from a to b: both jobs."""
    receiver = b.node.spawn(f"exec /tests/matched_end {how} {PORT}")
    sender = a.node.spawn(f"exec /tests/matched_end pour {PORT} {b.number}")
    try:
        for job in (sender, receiver):
            job.wait_output("begun", START_TIMEOUT)
        yield sender, receiver
    finally:
        sender.end()
        receiver.end()


def expect_end(job: Job, expected: str) -> None:
    """A program reports how its stream has ended."""
    result = job.wait(LOSS_TIMEOUT)
    said = result.stdout.split()
    expect(result.rc == 0 and said[-1:] == [expected], f"{job.command}: not {expected}: {result}")


def expect_gone(job: Job) -> None:
    """A program whose own driver was unbound gets ENODEV, or accesses a page that has gone."""
    result = job.wait(LOSS_TIMEOUT)
    told = result.rc == 0 and result.stdout.split()[-1:] == ["ENODEV"]
    expect(told or result.rc == BUS_ERROR, f"{job.command}: not told: {result}")


def works(a: Endpoint, b: Endpoint) -> None:
    """The next connections carry matched streams, in both directions."""
    receiver = b.node.spawn(f"/tests/matched_stream receive {PORT}")
    sender = a.node.spawn(f"/tests/matched_stream send {PORT} {b.number}")
    try:
        for job in (sender, receiver):
            result = job.wait(TIMEOUT)
            expect(result.rc == 0, f"{job.command}: {result}")
    finally:
        sender.end()
        receiver.end()


def ends(pair: Cluster, act: Callable[[Endpoint, Endpoint], None]) -> None:
    """End streams in both directions by `act`, after which all is as before and works."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    for here, there in ((a, b), (b, a)):
        act(here, there)
        endpoints.wait_up((a, b))
        wait_until(lambda: used(a, b) == before, LOSS_TIMEOUT, "what the stream had is free")
    works(a, b)
    wait_until(lambda: used(a, b) == before, LOSS_TIMEOUT, "what the next streams had is free")


@case_of(USUAL)
def a_sender_is_killed(pair: Cluster) -> None:
    """The receiver gets all that was moved, and then ECONNRESET, as a part is missing."""

    def act(a: Endpoint, b: Endpoint) -> None:
        with flowing(a, b, "hold") as (sender, receiver):
            sender.kill()
            expect_end(receiver, "ECONNRESET")

    ends(pair, act)


@case_of(USUAL)
def a_receiver_is_killed(pair: Cluster) -> None:
    """The sender sees the end, as after a disconnect, and has memory that was not sent."""

    def act(a: Endpoint, b: Endpoint) -> None:
        with flowing(a, b) as (sender, receiver):
            receiver.kill()
            expect_end(sender, "end")

    ends(pair, act)


@case_of(USUAL)
def the_link_goes_down(pair: Cluster) -> None:
    """Both sides get ECONNRESET."""
    device = pair.device
    assert device

    def act(a: Endpoint, b: Endpoint) -> None:
        with flowing(a, b) as jobs:
            device.control("link", up=False)
            try:
                for job in jobs:
                    expect_end(job, "ECONNRESET")
            finally:
                device.control("link", up=True)

    ends(pair, act)


@case_of(USUAL)
def a_driver_is_unbound(pair: Cluster) -> None:
    """The program of that node gets ENODEV or SIGBUS, the other one ECONNRESET."""

    def act(a: Endpoint, b: Endpoint) -> None:
        for lost in (a, b):
            with flowing(a, b) as (sender, receiver):
                again = lost.unbind()
                try:
                    here, there = (sender, receiver) if lost is a else (receiver, sender)
                    expect_gone(here)
                    expect_end(there, "ECONNRESET")
                finally:
                    lost.node.check(again)
            endpoints.wait_up((a, b))

    ends(pair, act)


@case_of(USUAL)
def a_node_loses_its_power(pair: Cluster) -> None:
    """The other side gets ECONNRESET within the bound of the link."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a)
    with flowing(a, b) as (sender, _):
        b.node.kill()
        expect_end(sender, "ECONNRESET")
    pair.revive("b")
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    wait_until(lambda: used(a) == before, LOSS_TIMEOUT, "what the stream had is free")
    works(a, b)
