# SPDX-License-Identifier: GPL-2.0
"""Sockets whose data the two `uldma run` copy through rings in the window."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..cluster import Cluster
from ..endpoints import Endpoint
from ..polling import wait_until
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect
from .sockets import (
    CLIENTS,
    HTTP_PORT,
    IPERF_PORT,
    REFUSED,
    SIZE,
    TIMEOUT,
    address,
    digest,
    ends_of,
    lose_link,
    lose_peer,
    report,
    run,
    serving,
)

RING = "--ring"
FILE = "/tmp/web/file"


@contextmanager
def file_server(there: Endpoint, options: str) -> Iterator[None]:
    """Serve a file, by a program that is linked statically."""
    there.node.check(f"mkdir -p /tmp/web && head -c {SIZE} /dev/urandom >{FILE}", TIMEOUT)
    server = f"httpd -f -p {HTTP_PORT} -h /tmp/web"
    try:
        with serving(there, server, HTTP_PORT, f"--serve {HTTP_PORT} {options}"):
            yield
    finally:
        there.node.check("rm -rf /tmp/web")


def get(here: Endpoint, there: Endpoint, options: str, clients: int = 1) -> dict[str, Any]:
    """Get the file several times at once, and check it; what the client's broker counted."""
    url = f"http://{address(there)}:{HTTP_PORT}/file"
    gets = " & ".join(f"curl -sS --fail -o /tmp/got{n} {url}" for n in range(clients))
    result = here.node.run(run(here, f"sh -c '{gets} & wait'", f"--json {options}"), TIMEOUT)
    expect(result.rc == 0, f"{options}: {result}")
    sent = digest(there, FILE)
    for number in range(clients):
        expect(digest(here, f"/tmp/got{number}") == sent, f"{options}: file {number} has changed")
    here.node.check("rm -f /tmp/got*")
    return report(result.stderr)


def used(ends: tuple[Endpoint, Endpoint]) -> list[tuple[int, int]]:
    """What connections and their rings take, at each end."""
    infos = [end.info() for end in ends]
    return [(info["connections"], info["window_used"]) for info in infos]


@case_of(USUAL, IVSHMEM, LOOPBACK)
def clients_of_a_server(pair: Cluster) -> None:
    """A file arrives whole, by rings where both sides want them, and nothing of them is left."""
    a, b = ends_of(pair)
    before = used((a, b))
    matches = a.info()["backend"] == "adapter"
    with file_server(b, RING):
        counts = get(a, b, RING, CLIENTS)
        expect((counts["connected"], counts["rings"]) == (CLIENTS, CLIENTS), f"{counts}")
        # The end of a connection is no reset.
        expect((counts["refused"], counts["reset"]) == (0, 0), f"{counts}")
        counts = get(a, b, "")
        expect((counts["connected"], counts["rings"]) == (1, 0), f"one side: {counts}")
    with file_server(b, ""):
        counts = get(a, b, RING)
        expect((counts["connected"], counts["rings"]) == (1, 0), f"the other side: {counts}")
    with file_server(b, f"--matched {RING}"):
        counts = get(a, b, f"--matched {RING}")
        expect(counts["rings"] == (0 if matches else 1), f"the device comes first: {counts}")
    wait_until(lambda: used((a, b)) == before, TIMEOUT, f"no more than {before} is in use")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def windows_without_room(pair: Cluster) -> None:
    """Rings that no window has room for leave the data to system calls."""
    a, b = ends_of(pair)
    # Beside the bytes of the ring, a segment has a header.
    buffers = f"{RING} --buffers 8 --buffer {a.info()['window_size'] // 8}"
    with file_server(b, buffers):
        counts = get(a, b, buffers)
        expect((counts["connected"], counts["rings"]) == (1, 0), f"{counts}")


@case_of(USUAL, IVSHMEM)
def sizes_that_differ(pair: Cluster) -> None:
    """A side that wants a ring of another size is refused, and another one is served after that."""
    a, b = ends_of(pair)
    before = used((a, b))
    with file_server(b, RING):
        url = f"http://{address(b)}:{HTTP_PORT}/file"
        options = f"{RING} --buffers 8 --json"
        result = a.node.run(run(a, f"curl -sS -o /tmp/none {url}", options), TIMEOUT)
        expect(result.rc == REFUSED, f"{result}")
        expect(get(a, b, RING)["rings"] == 1, "no rings after a side that was refused")
    wait_until(lambda: used((a, b)) == before, TIMEOUT, f"no more than {before} is in use")


@case_of(USUAL, IVSHMEM)
def streams(pair: Cluster) -> None:
    """iperf3 on both nodes: two streams at once, either way."""
    a, b = ends_of(pair)
    for options in ("-P 2", "-P 2 -R", "--bidir"):
        with serving(b, f"iperf3 -s -1 -p {IPERF_PORT}", IPERF_PORT, RING):
            client = f"iperf3 -J -c {address(b)} -p {IPERF_PORT} -n {SIZE} {options}"
            result = a.node.run(run(a, client, f"--json {RING}"), TIMEOUT)
            expect(result.rc == 0, f"{options}: {result}")
            end = json.loads(result.stdout)["end"]
            expect(end["sum_received"]["bytes"] > 0, f"{options}: {end}")
            counts = report(result.stderr)
            # The third one is iperf3's own.
            expect(counts["rings"] == counts["connected"] == 3, f"{options}: {counts}")


@case_of(USUAL, IVSHMEM)
def idle_connections(pair: Cluster) -> None:
    """Sides that wait for each other let each other sleep."""
    a, b = ends_of(pair)
    before = a.info()["connections"]
    with file_server(b, RING):
        # Neither side says anything.
        url = f"telnet://{address(b)}:{HTTP_PORT}"
        shell = " & ".join(CLIENTS * [f"sleep 600 | curl -sS {url}"])
        clients = a.node.spawn(f"exec {run(a, f"sh -c '{shell} & wait'", RING)}")
        try:

            def are_open() -> bool:
                expect(clients.running, f"clients: {clients.text('err')}")
                return bool(a.info()["connections"] >= before + CLIENTS)

            wait_until(are_open, TIMEOUT, f"{CLIENTS} connections")

            def are_asleep() -> bool:
                passes = [end.intake()["passes"] for end in (a, b)]
                # Ten times as long as the library ever sleeps.
                time.sleep(1)
                expect(are_open(), "the connections have ended")
                return [end.intake()["passes"] for end in (a, b)] == passes

            wait_until(are_asleep, TIMEOUT, "a second without a doorbell")
        finally:
            clients.end()
            a.node.run("killall sleep curl")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def losses(pair: Cluster) -> None:
    """A stream that is cut off is an error for its reader, and no end: by a kill, by the link."""
    a, b = ends_of(pair)
    before = used((a, b))
    expect(lose_peer(pair, RING)["rings"] == 1, "no rings")
    wait_until(lambda: used((a, b)) == before, TIMEOUT, f"no more than {before} is in use")
    # A loopback has one driver for both ends.
    if a.node != b.node:
        expect(lose_link(pair, RING)["rings"] == 1, "no rings")
