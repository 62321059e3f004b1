# SPDX-License-Identifier: GPL-2.0
"""Processes that listen: what one peer does, or the process lacks, ends no wait for the next one."""

import re
from itertools import count

from .. import endpoints
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..topologies import LOOPBACK
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
    files = end.node.check("ls -l /proc/$(pidof uldma)/fd")
    return {int(number) for number in re.findall(rf"(\d+) -> {path}", files)}


@case_of(LOOPBACK)
def a_server_that_lacks_files_goes_on(pair: Cluster) -> None:
    """A server that can open no file waits all the same, and tells of a peer that it cannot serve."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    serve = f"ping --serve --sessions 0 --port {PORT} {LIMIT}"
    server = b.spawn(serve)
    try:
        wait_until(lambda: len(open_files(b, "/dev/uldma")) == 2, TIMEOUT, "a listener")
        # Descriptors of other programs may have been left to it, with higher numbers.
        files = next(number for number in count() if number not in open_files(b))
    finally:
        server.end()
    server = b.node.spawn(f"ulimit -n {files}; exec {b.command(serve)}")
    try:
        client = a.spawn(f"{PINGS} --timeout 2")
        server.wait_output("Too many open files", TIMEOUT)
        result = client.wait(TIMEOUT)
        expect(result.rc == TIMED_OUT, f"{result}")
        expect(server.running, "the server has ended")
    finally:
        server.end()
