# SPDX-License-Identifier: GPL-2.0
"""Streams that the device matches: which programs use them, and what becomes of early ends."""

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..polling import wait_until
from ..qemu import Backend
from ..streams import FileTransfer
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 905
START_TIMEOUT = 60.0
TIMEOUT = 120.0
# Of a program that was ended by the signal.
BUS_ERROR = 128 + signal.SIGBUS
# Not a multiple of any buffer.
SIZE = (1 << 20) + 13
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


def carry(a: Endpoint, b: Endpoint, here: str, there: str) -> tuple[bool, bool]:
    """Let `uldma` carry a file: whether both sides say that the stream was matched."""
    transfer = FileTransfer.start(a, b, PORT, SIZE, f"--json {here}", f"--json {there}")
    jobs = transfer.client, transfer.listener
    transfer.finish()
    reports = [json.loads(job.text("err").splitlines()[-1]) for job in jobs]
    for report, name in zip(reports, ("bytes_sent", "bytes_received"), strict=True):
        expect(report[name] == SIZE, f"{name}: {report}")
    return reports[0]["matched"], reports[1]["matched"]


@case_of(USUAL, IVSHMEM, LOOPBACK)
def programs_match_where_both_can(pair: Cluster) -> None:
    """`uldma connect` and `listen` go by calls where one side does, and say which it was."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    before = used(a, b)
    has_engine = a.info()["backend"] == Backend.ADAPTER
    can_pull = a.info()["backend"] != Backend.IVSHMEM
    for here, there, matched in (
        ("--matched", "--matched", has_engine),
        ("--matched", "", False),
        ("", "--matched", False),
        ("", "", False),
        *([("--pull", "--matched", False)] if can_pull else []),
        (
            "--matched --buffers 1 --buffer 4K",
            "--matched --once --buffers 3 --buffer 1000",
            has_engine,
        ),
    ):
        for one, other in ((a, b), (b, a)):
            found = carry(one, other, here, there)
            expect(found == (matched, matched), f"{here} to {there}: {found}")
    wait_until(lambda: used(a, b) == before, LOSS_TIMEOUT, "what the streams had is free")


@case_of(USUAL)
def what_was_written_early_is_sent(pair: Cluster) -> None:
    """Bytes that wait for the answer of the other side are sent when it has come."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    command = a.command(f"connect {b.number} {PORT} --wait --matched")
    for how in ("matched", "calls"):
        # Nothing accepts the connection yet.
        listener = b.node.spawn(f"/tests/matched_end late {PORT} {how}")
        sender = a.node.spawn(f"{{ echo early; exec sleep 600; }} | {command}")
        try:
            listener.wait_output("early", START_TIMEOUT)
            expect("early" in listener.text("out"), f"{how}: {listener.text('err')}")
        finally:
            sender.end()
            listener.end()
