# SPDX-License-Identifier: GPL-2.0
"""Processes that listen: what one peer does, or a process lacks, ends no wait for the next one."""

import re
from itertools import count

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .messages import run_program
from .registry import case_of, expect

PORT = 930
TIMEOUT = 60.0
LIMIT = "--timeout 60"
PINGS = f"ping --count 20 --port {PORT}"
# Exit codes of `uldma`.
FAILED = 1
TIMED_OUT = 4
# Longer than a request for pings.
NONSENSE = 2000


@case_of(USUAL, IVSHMEM)
def mute_peers_delay_no_message(pair: Cluster) -> None:
    """A listener for messages waits for nothing that a peer says after it has connected."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    run_program(a, b, "message_mute")


@case_of(LOOPBACK)
def a_bad_session_is_followed_by_others(pair: Cluster) -> None:
    """A server of pings tells of a peer that breaks the rules, and serves the next one."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    server = b.spawn(f"ping --serve --sessions 0 --port {PORT} {LIMIT}")
    try:
        connect = a.command(f"connect {b.number} {PORT} --wait --ring --capacity 64K {LIMIT}")
        result = a.node.run(f"head -c {NONSENSE} /dev/zero | {connect}", TIMEOUT)
        expect(result.rc == FAILED, f"{result}")
        a.check(f"{PINGS} {LIMIT}", TIMEOUT)
        server.wait_output(f"the session of node {a.number} has ended", TIMEOUT)
    finally:
        server.end()


def open_files(end: Endpoint, path: str = "") -> set[int]:
    """The descriptors that the one server of a node has: all of them, or those of a path."""
    # The shell that becomes the server may not have done so yet.
    files = end.node.run("ls -l /proc/$(pidof uldma)/fd").stdout
    return {int(number) for number in re.findall(rf"(\d+) -> {path}", files)}


def wait_listening(end: Endpoint) -> None:
    """Wait until the server has opened the device, and once more to listen."""
    wait_until(lambda: len(open_files(end, "/dev/uldma")) == 2, TIMEOUT, "a listener")


@case_of(LOOPBACK)
def a_server_that_lacks_files_goes_on(pair: Cluster) -> None:
    """A server that can open no file waits all the same, and tells whom it cannot serve."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    serve = f"ping --serve --sessions 0 --port {PORT} {LIMIT}"
    server = b.spawn(serve)
    try:
        wait_listening(b)
        # Descriptors of other programs may have been left to it, with higher numbers.
        files = next(number for number in count() if number not in open_files(b))
    finally:
        server.end()
    server = b.node.spawn(f"ulimit -n {files}; exec {b.command(serve)}")
    try:
        wait_listening(b)
        client = a.spawn(f"{PINGS} --timeout 10")
        server.wait_output("Too many open files", TIMEOUT)
        result = client.wait(TIMEOUT)
        expect(result.rc == TIMED_OUT, f"{result}")
        expect(server.running, "the server has ended")
    finally:
        server.end()
