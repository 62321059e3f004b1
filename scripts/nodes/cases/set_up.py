# SPDX-License-Identifier: GPL-2.0
"""Once a connection of programs is set up, the kernels of its nodes exchange nothing for it."""

import json
from typing import Any

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..streams import BEGUN, LIMIT
from ..techniques import RECEIVING, SENDING
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 870
MESSAGE = 1024
TIMEOUT = 60.0
SOURCE = "/tmp/set-up"


def report(job: Job) -> dict[str, Any]:
    """What a side says at its end."""
    result = job.wait(TIMEOUT)
    expect(result.rc == 0, f"exit {result.rc} of {job.command}\n{result.stderr}")
    said = json.loads(result.stderr)
    assert isinstance(said, dict)
    return said


def control_messages(a: Endpoint, b: Endpoint) -> tuple[tuple[int, int], ...]:
    """Of each side: how often the link has come up, and what its kernel has sent over it."""
    found = (a.peer(b), b.peer(a))
    return tuple((int(peer["generation"]), int(peer["sent"])) for peer in found)


def quiet(a: Endpoint, b: Endpoint, sending: str, receiving: str, count: int) -> list[Any]:
    """Let messages pass of which the kernels know nothing; return what both sides report.

    The kernels' messages are counted from the arrival of the first messages to that of the last,
    before either side ends.
    """
    a.node.check(f"rm -f {SOURCE} && mkfifo {SOURCE}")
    counter = (
        f"{{ head -c {BEGUN} >/dev/null && echo begun; "
        f"head -c {count * MESSAGE} >/dev/null && echo all; }}"
    )
    receive = b.command(f"{receiving} --json {LIMIT}")
    receiver = b.node.spawn(f"set -o pipefail; {receive} | {counter}")
    sender = a.spawn(f"{sending} --wait --json {LIMIT} <{SOURCE}")
    # Keeps the end of the data back.
    source = a.node.spawn(f"exec sleep 600 >{SOURCE}")
    try:
        a.node.check(f"head -c {BEGUN} /dev/zero >{SOURCE}")
        receiver.wait_output("begun", TIMEOUT)
        before = control_messages(a, b)
        # Fills the pipe: with a write for each message the sender would wait for the next one.
        a.node.check(f"head -c {count * MESSAGE} /dev/zero >{SOURCE}")
        receiver.wait_output("all", TIMEOUT)
        after = control_messages(a, b)
        expect(after == before, f"{sending}, {receiving}: {before} became {after}")
        source.kill()
        return [report(sender), report(receiver)]
    finally:
        for job in (source, sender, receiver):
            job.end()


@case_of(USUAL, IVSHMEM, LOOPBACK)
def rings_leave_the_kernels_alone(pair: Cluster) -> None:
    """While thousands of messages pass no control message does, and fewer calls than messages."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    endpoints.wait_quiet((a, b))
    count = 10_000
    sending = f"connect {b.number} {PORT} --ring --buffer {MESSAGE}"
    for said in quiet(a, b, sending, f"listen {PORT} --ring", count):
        expect(said["messages"] >= count, f"fewer messages: {said}")
        # A side that is faster than the other sleeps now and then, more often on a loaded machine.
        expect(said["syscalls"] < said["messages"], f"many system calls: {said}")


@case_of(USUAL)
def messages_leave_the_kernels_alone(pair: Cluster) -> None:
    """All mappings exist when a connection is made, by every technique (C-036)."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    endpoints.wait_quiet((a, b))
    count = 500
    pairs = [(technique, "copy-dma") for technique in SENDING]
    pairs += [("pio", technique) for technique in RECEIVING if technique != "copy-dma"]
    for by, into in pairs:
        sending = f"send {b.number} {PORT} --message {MESSAGE} --technique {by}"
        for said in quiet(a, b, sending, f"recv {PORT} --technique {into}", count):
            expect(said["messages"] >= count, f"fewer messages: {said}")
