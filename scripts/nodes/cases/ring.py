# SPDX-License-Identifier: GPL-2.0
"""Rings by connections: the kernel sets them up, tells their end, and is not asked in between."""

import json
from typing import Any

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..streams import BEGUN, LIMIT, discard_stream, send_file
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 800
FILE = 16 << 20
SHORT = 1 << 20
START_TIMEOUT = 30.0
# The kernel tells the end of a process at once; the other one has to wake and to end.
END_TIMEOUT = 10.0
MESSAGES = 10_000
MESSAGE = 1024
# Exit status of a side that has lost the other.
LOST = 1


@case_of(USUAL, IVSHMEM, LOOPBACK)
def files_arrive_unchanged(pair: Cluster) -> None:
    """Random bytes, written into the other side's memory by the sender."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    send_file(a, b, PORT, FILE, "--ring", "--ring")
    send_file(b, a, PORT, SHORT, "--ring", "--ring")
    # Much smaller than the file, and not a multiple of the messages' size.
    small = "--ring --capacity 4K"
    send_file(a, b, PORT, SHORT + 7, f"{small} --buffer 1000", small)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def killing_one_side_ends_the_other(pair: Cluster) -> None:
    """The side that is left gets an error in time and can connect again."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    for killed in ("sender", "receiver"):
        receiver = discard_stream(b, PORT, "--ring")
        sender = a.spawn(f"connect {b.number} {PORT} --ring --wait {LIMIT} </dev/zero")
        receiver.wait_output("begun", START_TIMEOUT)
        gone, left = (sender, receiver) if killed == "sender" else (receiver, sender)
        gone.kill()
        result = left.wait(END_TIMEOUT)
        expect(result.rc == LOST, f"the {killed} was killed: exit {result.rc}\n{result.stderr}")
        expect("went away" in result.stderr, f"the {killed} was killed: {result.stderr}")
    send_file(a, b, PORT, SHORT, "--ring", "--ring")


def report(job: Job) -> dict[str, Any]:
    """What a side says at its end."""
    result = job.wait(START_TIMEOUT)
    expect(result.rc == 0, f"exit {result.rc} of {job.command}\n{result.stderr}")
    said = json.loads(result.stderr)
    assert isinstance(said, dict)
    return said


def control_messages(a: Endpoint, b: Endpoint) -> tuple[tuple[int, int], ...]:
    """Of each side: how often the link has come up, and what it has sent over it."""
    found = (a.peer(b), b.peer(a))
    return tuple((int(peer["generation"]), int(peer["sent"])) for peer in found)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def costs_nothing_once_set_up(pair: Cluster) -> None:
    """While thousands of messages pass no control message does, and there are few system calls."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    endpoints.wait_measured((a, b))
    many = MESSAGES * MESSAGE
    a.node.check("rm -f /tmp/ring && mkfifo /tmp/ring")
    listen = b.command(f"listen {PORT} --ring --json {LIMIT}")
    counter = (
        f"{{ head -c {BEGUN} >/dev/null && echo begun; head -c {many} >/dev/null && echo all; }}"
    )
    receiver = b.node.spawn(f"set -o pipefail; {listen} | {counter}")
    sender = a.spawn(
        f"connect {b.number} {PORT} --ring --buffer {MESSAGE} --wait --json {LIMIT} </tmp/ring"
    )
    # Keeps the end of the data back.
    source = a.node.spawn("exec sleep 600 >/tmp/ring")
    try:
        a.node.check(f"head -c {BEGUN} /dev/zero >/tmp/ring")
        receiver.wait_output("begun", START_TIMEOUT)
        before = control_messages(a, b)
        a.node.check(f"dd if=/dev/zero of=/tmp/ring bs={MESSAGE} count={MESSAGES} 2>/dev/null")
        receiver.wait_output("all", START_TIMEOUT)
        expect(control_messages(a, b) == before, f"{before} became {control_messages(a, b)}")
        source.kill()
        for said in (report(sender), report(receiver)):
            expect(said["messages"] >= MESSAGES, f"fewer messages: {said}")
            expect(said["syscalls"] * 10 < said["messages"], f"many system calls: {said}")
    finally:
        for job in (source, sender, receiver):
            job.end()
