# SPDX-License-Identifier: GPL-2.0
"""A sender ends well only if the program at the other side has taken all: it has written it."""

import json
from collections.abc import Iterator
from typing import Any

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..streams import LIMIT
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 870
START_TIMEOUT = 30.0
END_TIMEOUT = 60.0
# More than all that is on its way can be.
SIZE = 8 << 20
# What a receiver takes that then takes no more.
SOME = 1 << 20
# What it may have written beside that, or have written and not told: a pipe, and pieces.
SLACK = 256 << 10
WAYS = ("", "--matched", "--ring")
FAILED = 1
# Readers of what `listen` writes: one ends, one stops.
ENDS = f"head -c {SOME} >/dev/null"
STOPS = f"{{ head -c {SOME} >/dev/null; echo begun; exec sleep 600; }}"


def each_way(pair: Cluster, ways: tuple[str, ...] = WAYS) -> Iterator[tuple[Endpoint, ...]]:
    """Both ends, once for each way, with the data in the file /tmp/much of both nodes."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    for end in ends:
        end.node.check(f"head -c {SIZE} /dev/urandom >/tmp/much")
    yield from (tuple(ends) for _ in ways)


def send(a: Endpoint, b: Endpoint, way: str, source: str = "</tmp/much") -> Job:
    """Start to send to the process that listens at b."""
    return a.spawn(f"connect {b.number} {PORT} --wait --json {LIMIT} {way} {source}")


def error_of(job: Job) -> dict[str, Any]:
    """The error of a sender, which must have failed since its data was not taken."""
    result = job.wait(END_TIMEOUT)
    expect(result.rc == FAILED, f"exit {result.rc} of {job.command}\n{result.stderr}")
    error = json.loads(result.stderr.splitlines()[-1])["error"]
    assert isinstance(error, dict)
    expect(error["kind"] == "not-taken", f"{job.command}: {error}")
    return error


def report_of(job: Job) -> dict[str, Any]:
    """The report of a side, which must have ended well."""
    result = job.wait(END_TIMEOUT)
    expect(result.rc == 0, f"exit {result.rc} of {job.command}\n{result.stderr}")
    report = json.loads(result.stderr.splitlines()[-1])
    assert isinstance(report, dict)
    return report


def expect_some(error: dict[str, Any]) -> None:
    """What was taken is what the reader has had, and no more than it may have had."""
    expect(SOME - SLACK <= error["bytes_taken"] <= SOME + SLACK, str(error))


@case_of(USUAL, IVSHMEM, LOOPBACK)
def output_without_room(pair: Cluster) -> None:
    """The receiver can write nothing: nothing was taken, however little it was."""
    for way, (a, b) in zip(WAYS, each_way(pair), strict=True):
        for source in ("</tmp/much", "</proc/version"):
            listener = b.spawn(f"listen {PORT} {LIMIT} {way} >/dev/full")
            error = error_of(send(a, b, way, source))
            expect(error["bytes_taken"] == 0, f"{way}: {error}")
            result = listener.wait(END_TIMEOUT)
            expect(result.rc == FAILED and "No space" in result.stderr, f"{result}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def receiver_that_gives_up(pair: Cluster) -> None:
    """The receiver's output is closed after a part of the data."""
    for way, (a, b) in zip(WAYS, each_way(pair), strict=True):
        listen = b.command(f"listen {PORT} {LIMIT} {way}")
        listener = b.node.spawn(f"{{ {listen}; echo $? >&2; }} | {ENDS}")
        expect_some(error_of(send(a, b, way)))
        result = listener.wait(END_TIMEOUT)
        # Its reader has gone, which is nothing to complain of.
        expect(result.stderr == f"{FAILED}\n", f"{way}: {result}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def receiver_that_is_killed(pair: Cluster) -> None:
    """The receiver is killed while data is on its way."""
    for way, (a, b) in zip(WAYS, each_way(pair), strict=True):
        b.node.check("rm -f /tmp/slow && mkfifo /tmp/slow")
        reader = b.node.spawn(f"exec 3</tmp/slow; {STOPS} <&3")
        listener = b.spawn(f"listen {PORT} {LIMIT} {way} >/tmp/slow")
        sender = send(a, b, way)
        try:
            reader.wait_output("begun", START_TIMEOUT)
            expect(sender.running, f"{way}: {sender.text('err')}")
            listener.kill()
            expect_some(error_of(sender))
        finally:
            for job in (reader, listener, sender):
                job.end()


@case_of(USUAL, IVSHMEM, LOOPBACK)
def all_that_is_taken(pair: Cluster) -> None:
    """Both sides end well when all was written, and tell how much it was."""
    for way, (a, b) in zip(WAYS, each_way(pair), strict=True):
        for source, size in (("</tmp/much", SIZE), ("</dev/null", 0)):
            listener = b.spawn(f"listen {PORT} {LIMIT} --json {way} >/tmp/came </dev/null")
            sent, came = report_of(send(a, b, way, source)), report_of(listener)
            expect((sent["bytes_sent"], sent["bytes_taken"]) == (size, size), f"{way}: {sent}")
            expect(came["bytes_received"] == size, f"{way}: {came}")
            expect(int(b.node.check("stat -c %s /tmp/came")) == size, f"{way}: {came}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def listener_that_sends(pair: Cluster) -> None:
    """The same where the side that listens has the data."""
    ways = WAYS[:2]
    for way, (a, b) in zip(ways, each_way(pair, ways), strict=True):
        listen = f"listen {PORT} --close --json {LIMIT} {way} </tmp/much"
        connect = f"connect {b.number} {PORT} --keep --wait {LIMIT} {way} </dev/null"
        for output, taken in ((">/tmp/came", SIZE), (">/dev/full", 0)):
            listener = b.spawn(listen)
            result = a.node.run(a.command(f"{connect} {output}"), END_TIMEOUT)
            expect((result.rc == 0) == (taken == SIZE), f"{way}: {result}")
            told = report_of(listener) if taken else error_of(listener)
            expect(told["bytes_taken"] == taken, f"{way}: {told}")
        # The other side ends before it has read anything.
        listener = b.spawn(f"listen {PORT} --json {LIMIT} {way} </dev/zero >/dev/null")
        a.node.run(a.command(f"connect {b.number} {PORT} --wait {LIMIT} {way} </dev/null"))
        error_of(listener)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def messages_that_are_not_taken(pair: Cluster) -> None:
    """The same for messages, of which a killed receiver does not tell how many it has taken."""
    ends = endpoints.of(pair)
    endpoints.wait_up(ends)
    a, b = ends
    a.node.check(f"head -c {SIZE} /dev/urandom >/tmp/much")
    send_messages = f"send {b.number} {PORT} --wait --json {LIMIT} </tmp/much"
    receiver = b.spawn(f"recv {PORT} {LIMIT} >/tmp/came")
    report = report_of(a.spawn(send_messages))
    expect((report["bytes"], report["bytes_taken"]) == (SIZE, SIZE), str(report))
    expect(receiver.wait(END_TIMEOUT).rc == 0, receiver.text("err"))
    receiver = b.spawn(f"recv {PORT} {LIMIT} >/dev/full")
    error = error_of(a.spawn(send_messages))
    expect(error["bytes_taken"] in (0, None), str(error))
    expect(receiver.wait(END_TIMEOUT).rc == FAILED, receiver.text("err"))
    b.node.check("rm -f /tmp/slow && mkfifo /tmp/slow")
    reader = b.node.spawn(f"exec 3</tmp/slow; {STOPS} <&3")
    receiver = b.spawn(f"recv {PORT} {LIMIT} >/tmp/slow")
    sender = a.spawn(send_messages)
    try:
        reader.wait_output("begun", START_TIMEOUT)
        receiver.kill()
        expect(error_of(sender)["bytes_taken"] is None, "a killed receiver has told something")
    finally:
        for job in (reader, receiver, sender):
            job.end()
