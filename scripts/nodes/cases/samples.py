# SPDX-License-Identifier: GPL-2.0
"""The samples: what people read first has to work."""

import itertools
import re

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import Endpoint
from ..qemu import Backend
from ..techniques import BY_PROCESSOR, RECEIVING, REFUSED, SENDING
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case, case_of, expect

PORT = 820
# More than the programs have memory for at a time, and no multiple of anything.
FILE = (3 << 20) + 17
TIMEOUT = 60.0
LANGUAGES = ("c", "rust")
# Those about memory of one node, and what they say when it went well.
ALONE = {
    "copy": "copied 1048576 bytes",
    "optimistic": "524288 of 1048576 bytes, then a page that is not in memory\n1048576 of 1048576",
    "stale": "1048576 of 1048576 bytes are stale",
}
WAYS = {"bytes": "some bytes\n", "messages": "some bytes\n", "memory": "[42]\n"}
CLIENTS = 2
# Processes of the ring, in turns on the two nodes.
RANKS = 4
BROADCAST = 1 << 20
# An answer that comes within a moment needs none; processors that others use as well delay some.
# A client that slept for each answer would make twice as many as there are round trips.
MOST_CALLS = 10000


def serve(end: Endpoint, program: str, arguments: str) -> Job:
    """Start a sample that listens."""
    job = end.node.spawn(f"set -o pipefail; ULDMA_DEVICE={end.path} /samples/{program} {arguments}")
    job.wait_output("listening", TIMEOUT)
    return job


def output(job: Job) -> str:
    """What a sample says that ends well."""
    result = job.wait(TIMEOUT)
    expect(result.rc == 0, f"exit {result.rc} of {job.command}\n{result.stderr}")
    return result.stdout


@case
def alone(pair: Cluster) -> None:
    """Programs that need no peer."""
    for language in LANGUAGES:
        for program, said in ALONE.items():
            found = pair.a.check(f"/samples/{language}/{program}")
            expect(said in found, f"{language}/{program}: {found}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def ways(pair: Cluster) -> None:
    """The programs of the first page, of which either side may start first."""
    a, b = endpoints.of(pair)[:2]
    endpoints.wait_up((a, b))
    for way, said in WAYS.items():
        receiver = b.spawn_sample("rust/ways", f"{way} {PORT}")
        output(a.spawn_sample("rust/ways", f"{way} {PORT} {b.number}"))
        expect(output(receiver) == said, f"{way}: {receiver.text()}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def pcic(pair: Cluster) -> None:
    """PCIComm's functions carry a file, whichever way the peer is named."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    a.node.check(f"head -c {FILE} /dev/urandom >/tmp/sample")
    sent = a.node.check("sha256sum </tmp/sample")
    for peer in ("", str(b.number), f"uldma{a.device}", f"uldma{a.device}:{b.number}"):
        receiver = serve(b, "c/pcic_recv", f"{PORT} | sha256sum")
        output(a.spawn_sample("c/pcic_send", f"{peer} {PORT} </tmp/sample"))
        expect(output(receiver) == sent, f"the file has arrived changed by {peer!r}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def connection(pair: Cluster) -> None:
    """Memory goes to the peer, and comes back to its owner."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    receiver = serve(b, "rust/connection", f"{PORT}")
    output(a.spawn_sample("rust/connection", f"{PORT} {b.number}"))
    expect(f"received 1048576 bytes from node {a.number}" in output(receiver), "not received")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def channels(pair: Cluster) -> None:
    """One process answers several, with hardly a system call."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    server = serve(b, "rust/channels", f"{PORT}")
    clients = [a.spawn_sample("rust/channels", f"{PORT} {b.number}") for _ in range(CLIENTS)]
    for client in clients:
        said = output(client)
        found = re.fullmatch(r"(\d+) round trips with (\d+) system calls\n", said)
        expect(found is not None and int(found[2]) <= MOST_CALLS, said)
    said = output(server)
    expect(said == f"answered {CLIENTS * 10001} messages\n", said)


def shift(ends: list[Endpoint], technique: str) -> None:
    """Run the ring over two ends."""
    jobs = [
        ends[rank % 2].spawn_sample(
            "rust/ring_shift",
            f"{technique} {rank} {RANKS} {ends[(rank + 1) % 2].number}",
        )
        for rank in range(RANKS)
    ]
    try:
        for job in jobs:
            said = output(job)
            expect(said == f"20 rounds of {RANKS} shifts by {technique}\n", said)
    finally:
        for job in jobs:
            job.end()


@case_of(USUAL, IVSHMEM, LOOPBACK)
def ring_shift(pair: Cluster) -> None:
    """Blocks go around a ring of processes by every technique of the link (C-043)."""
    ends = endpoints.of(pair)[:2]
    endpoints.wait_up(ends)
    has_engine = pair.config.backends == (Backend.ADAPTER,)
    for technique in (*SENDING, "redirect") if has_engine else BY_PROCESSOR:
        shift(ends, technique)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def irregular(pair: Cluster) -> None:
    """Numbers and lengths of messages that depend on data work by every pair (C-044)."""
    a, b = endpoints.of(pair)[:2]
    endpoints.wait_up((a, b))
    pairs = itertools.product(BY_PROCESSOR, BY_PROCESSOR)
    if pair.config.backends == (Backend.ADAPTER,):
        pairs = itertools.product(SENDING, RECEIVING)
    for sending, receiving in pairs:
        if (sending, receiving) == REFUSED:
            continue
        server = serve(b, "rust/irregular", f"{sending} {receiving} {PORT}")
        client = a.spawn_sample("rust/irregular", f"{sending} {receiving} {PORT} {b.number}")
        try:
            counts = {output(job) for job in (client, server)}
            expect(len(counts) == 1, f"{counts}")
        finally:
            server.end()
            client.end()


@case
def broadcast(pair: Cluster) -> None:
    """Two processes of one node have what was sent once."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    receiver = serve(b, "rust/broadcast", "receive")
    output(a.spawn_sample("rust/broadcast", "send"))
    said = output(receiver)
    for which in ("first", "second"):
        expect(f"{which} receiver: {BROADCAST} of {BROADCAST} bytes" in said, said)
