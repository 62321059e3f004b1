# SPDX-License-Identifier: GPL-2.0
"""Streams of the library that the two programs carry through rings in the window."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .. import endpoints
from ..agent import Job
from ..cluster import Cluster
from ..endpoints import LOSS_TIMEOUT, Endpoint
from ..polling import wait_until
from ..qemu import Backend
from ..topologies import IVSHMEM, LOOPBACK, USUAL
from .registry import case_of, expect

PORT = 906
TIMEOUT = 120.0
# As /tests/ring_stream has them: in each direction.
BUFFERS = 8
BUFFER = 64 << 10
RING = "ring"
FULL = "ring+full"


def ends_of(pair: Cluster) -> tuple[Endpoint, Endpoint]:
    """Both ends, linked."""
    a, b = endpoints.of(pair)
    endpoints.wait_up((a, b))
    return a, b


def used(*ends: Endpoint) -> list[tuple[int, int]]:
    """What connections and their rings take, at each end."""
    infos = [end.info() for end in ends]
    return [(info["connections"], info["window_used"]) for info in infos]


def expect_freed(before: list[tuple[int, int]], *ends: Endpoint) -> None:
    """Nothing of the streams is left."""
    wait_until(lambda: used(*ends) == before, LOSS_TIMEOUT, f"no more than {before} is in use")


@contextmanager
def between(
    client: tuple[Endpoint, str], server: tuple[Endpoint, str], sizes: tuple[int, int]
) -> Iterator[tuple[Job, Job]]:
    """Let a program of each end do and ask for what its words say, with buffers of these sizes."""

    def start(side: int, node: str = "") -> Job:
        end, words = (client, server)[side]
        where = f"{end.device} {PORT} {node}"
        return end.node.spawn(f"exec /tests/ring_stream {words} {sizes[side]} {where}")

    jobs = [start(1)]
    try:
        jobs[0].wait_output("listening", TIMEOUT)
        jobs.insert(0, start(0, str(server[0].number)))
        yield jobs[0], jobs[1]
    finally:
        for job in jobs:
            job.end()


def said(job: Job, timeout: float = TIMEOUT) -> list[str]:
    """What a program has said of its stream."""
    result = job.wait(timeout)
    expect(result.rc == 0, f"{job.command}: {result}")
    words = result.stdout.split()
    return words[1:] if words[:1] == ["listening"] else words


def expect_whole(
    a: Endpoint,
    b: Endpoint,
    kinds: tuple[str, str],
    way: str,
    sizes: tuple[int, int] = (BUFFER, BUFFER),
) -> None:
    """All bytes arrive, both ways at once, in this way."""
    here, there = kinds
    with between((a, f"both {here}"), (b, f"both {there}"), sizes) as jobs:
        for job in jobs:
            expect(said(job) == [way, "end"], f"{job.command}: not by {way}: {job.text('out')}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def bytes_arrive_unchanged(pair: Cluster) -> None:
    """They go by rings where both sides want them, and nothing of these is left."""
    a, b = ends_of(pair)
    before = used(a, b)
    matches = a.info()["backend"] == Backend.ADAPTER
    for here, there, way in (
        (RING, RING, RING),
        (RING, "calls", "calls"),
        ("calls", RING, "calls"),
        # The device comes first.
        ("matched+ring", "matched+ring", "matched" if matches else RING),
    ):
        for one, other in ((a, b), (b, a)):
            expect_whole(one, other, (here, there), way)
    expect_freed(before, a, b)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def an_opening_takes_one_round_trip(pair: Cluster) -> None:
    """The drivers send one message each way to open rings, and one to end them, none for data."""
    a, b = ends_of(pair)
    endpoints.wait_quiet((a, b))
    before = a.peer(b)
    expect_whole(a, b, (RING, RING), RING)
    after = a.peer(b)
    messages = {way: after[way] - before[way] for way in ("sent", "received")}
    expect(messages == {"sent": 2, "received": 2}, f"{messages}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def windows_without_room(pair: Cluster) -> None:
    """Rings that no window has room for leave the data to system calls."""
    a, b = ends_of(pair)
    # Beside the bytes of the ring, a segment has a header.
    size = a.info()["window_size"] // BUFFERS
    expect_whole(a, b, (RING, RING), "calls", (size, size))


@case_of(USUAL, IVSHMEM, LOOPBACK)
def one_window_without_room(pair: Cluster) -> None:
    """Where one side has no room for its ring, both go by system calls."""
    a, b = ends_of(pair)
    before = used(a, b)
    for kinds in ((FULL, RING), (RING, FULL)):
        expect_whole(a, b, kinds, "calls")
    expect_freed(before, a, b)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def sizes_that_differ(pair: Cluster) -> None:
    """Each side has a ring of its own size."""
    a, b = ends_of(pair)
    before = used(a, b)
    for sizes in ((BUFFER, 2 * BUFFER), (BUFFER, 100)):
        expect_whole(a, b, (RING, RING), RING, sizes)
        expect_whole(b, a, (RING, RING), RING, sizes)
    expect_freed(before, a, b)


@case_of(USUAL, IVSHMEM)
def sides_that_wait_let_each_other_sleep(pair: Cluster) -> None:
    """Two sides that have nothing to say ring no doorbell."""
    a, b = ends_of(pair)
    with between((a, f"idle {RING}"), (b, f"idle {RING}"), (BUFFER, BUFFER)) as jobs:
        for job in jobs:
            job.wait_output(RING, TIMEOUT)

        def are_asleep() -> bool:
            passes = [end.intake()["passes"] for end in (a, b)]
            # Ten times as long as the library ever sleeps.
            time.sleep(1)
            expect(all(job.running for job in jobs), "the streams have ended")
            return [end.intake()["passes"] for end in (a, b)] == passes

        wait_until(are_asleep, TIMEOUT, "a second without a doorbell")


def cut_off(a: Endpoint, b: Endpoint, lose: Callable[[Job], object]) -> None:
    """Cut a stream from b off; its reader gets an error, and no end."""
    with between((a, f"drain {RING}"), (b, f"pour {RING}"), (BUFFER, BUFFER)) as (reader, writer):
        reader.wait_output("begun", TIMEOUT)
        lose(writer)
        found = said(reader, LOSS_TIMEOUT)
        expect(found == [RING, "begun", "ECONNRESET"], f"{found}")


@case_of(USUAL, IVSHMEM, LOOPBACK)
def the_writer_is_killed(pair: Cluster) -> None:
    """What arrives is no end of the data."""
    a, b = ends_of(pair)
    before = used(a, b)
    cut_off(a, b, lambda writer: writer.kill())
    expect_freed(before, a, b)


@case_of(USUAL, IVSHMEM, LOOPBACK)
def the_reader_is_killed(pair: Cluster) -> None:
    """The writer gets an error instead of waiting for room."""
    a, b = ends_of(pair)
    before = used(a, b)
    with between((a, f"drain {RING}"), (b, f"pour {RING}"), (BUFFER, BUFFER)) as (reader, writer):
        writer.wait_output("begun", TIMEOUT)
        reader.kill()
        found = said(writer, LOSS_TIMEOUT)
        expect(found[-1] in ("EPIPE", "ECONNRESET"), f"{found}")
    expect_freed(before, a, b)


@case_of(USUAL, IVSHMEM)
def the_driver_of_the_writer_is_unbound(pair: Cluster) -> None:
    """The reader gets an error, too, and the next stream works."""
    a, b = ends_of(pair)
    unbind, bind = b.binding()
    cut_off(a, b, lambda _: b.node.check(unbind))
    b.node.check(bind)
    endpoints.wait_up((a, b))
    expect_whole(a, b, (RING, RING), RING)
